"""Label regression against plain Gaussian-process regression."""

import math

import torch

from sureshot.gaussian.recomputed import leave_one_out
from sureshot.inference.label_regression import fit_label_regression, label_targets, leave_one_out_path


def problem() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(9, 4, generator=generator, dtype=torch.float64)
    y = torch.arange(9) % 3
    weight = torch.rand(9, generator=generator, dtype=torch.float64) + 0.5
    return features, y, weight


def eigen(gram: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    root = weight.sqrt()
    eigenvalues, basis = torch.linalg.eigh(root[:, None] * gram * root)
    return eigenvalues, basis


def test_evidence_and_mean_are_those_of_regression() -> None:
    features, y, weight = problem()
    fitted = fit_label_regression(features, y, 3, weight, noise=0.3)
    targets, mean = label_targets(y, 3, weight)
    gram = features @ features.mT
    noisy = gram + torch.diag(0.3 / weight)
    normal = torch.distributions.MultivariateNormal(torch.zeros(9, dtype=torch.float64), noisy)
    # The density of one observation of variance noise / s, less its normaliser, plus those of s observations.
    observed = 0.5 * (2 * torch.pi * 0.3 / weight).log().sum() - 0.5 * weight.sum() * math.log(2 * torch.pi * 0.3)
    torch.testing.assert_close(fitted.log_evidence, normal.log_prob(targets - mean[:, None]).sum() + 3 * observed)
    expected = mean[:, None] + (targets - mean[:, None]) @ torch.linalg.solve(noisy, gram)
    torch.testing.assert_close(fitted.posterior.latent_mean(features)[0], expected)
    covariance = gram - gram @ torch.linalg.solve(noisy, gram)
    variance = fitted.posterior.latent_variance(features, torch.zeros(9, dtype=torch.float64))
    torch.testing.assert_close(variance[0, 0], covariance.diagonal())


def test_weights_are_copies() -> None:
    features, y, _ = problem()
    weight = torch.tensor([1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 1.0, 1.0, 2.0], dtype=torch.float64)
    rows = torch.arange(9).repeat_interleave(weight.long())
    fitted = fit_label_regression(features, y, 3, weight, noise=0.3)
    copies = fit_label_regression(features[rows], y[rows], 3, torch.ones(16, dtype=torch.float64), noise=0.3)
    torch.testing.assert_close(fitted.log_evidence, copies.log_evidence)
    torch.testing.assert_close(fitted.posterior.weights, copies.posterior.weights)
    ratio = torch.tensor([0.3], dtype=torch.float64)
    gram = features @ features.mT
    merged = leave_one_out_path(*eigen(gram, weight), y, 3, weight, ratio)
    ones = torch.ones(16, dtype=torch.float64)
    apart = leave_one_out_path(*eigen(gram[rows][:, rows], ones), y[rows], 3, ones, ratio)
    torch.testing.assert_close(merged.scale, apart.scale)


def test_leave_one_out_path_is_regression_without_the_datum() -> None:
    features, y, weight = problem()
    gram = features @ features.mT
    ratios = torch.tensor([0.03, 0.3], dtype=torch.float64)
    path = leave_one_out_path(*eigen(gram, weight), y, 3, weight, ratios)
    targets, mean = label_targets(y, 3, weight)
    for k, ratio in enumerate(ratios):
        for i in range(9):
            kept = torch.arange(9) != i
            noisy = gram[kept][:, kept] + torch.diag(ratio / weight[kept])
            alpha = torch.linalg.solve(noisy, (targets - mean[:, None])[:, kept].mT)
            torch.testing.assert_close(path.latent[k, :, i], mean + gram[i, kept] @ alpha)
            variance = gram[i, i] - gram[i, kept] @ torch.linalg.solve(noisy, gram[kept, i])
            torch.testing.assert_close(path.variance[k, i], path.scale[k] * variance)
        fitted = fit_label_regression(features, y, 3, weight, float(ratio))
        cavity, _ = leave_one_out(fitted.posterior.latent_mean(features)[0], fitted.variance, *fitted.sites)
        torch.testing.assert_close(cavity, path.latent[k])


def test_the_path_s_scale_maximises_the_evidence() -> None:
    features, y, weight = problem()
    ratio = 0.3
    decomposition = eigen(features @ features.mT, weight)
    best = float(leave_one_out_path(*decomposition, y, 3, weight, torch.tensor([ratio]).double()).scale)

    def evidence(scale: float) -> float:
        return float(fit_label_regression(scale**0.5 * features, y, 3, weight, ratio * scale).log_evidence)

    assert evidence(best) > max(evidence(0.98 * best), evidence(1.02 * best))

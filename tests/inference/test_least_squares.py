"""Least squares against plain Gaussian-process regression."""

import math

import pytest
import torch

from sureshot.gaussian.features import FeaturePosterior, FeaturePrior
from sureshot.gaussian.posterior import leave_one_out
from sureshot.inference.least_squares import (
    leave_one_out_by_factors,
    leave_one_out_path,
    leave_one_out_path_by_features,
    leave_one_out_residuals,
    regression_log_evidence,
    regression_sites,
)
from sureshot.likelihoods.gaussian import label_targets


def problem() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(9, 4, generator=generator, dtype=torch.float64)
    y = torch.arange(9) % 3
    weight = torch.rand(9, generator=generator, dtype=torch.float64) + 0.5
    return features, y, weight


def of_labels(y: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Targets, prior means and weights of three classes."""
    return *label_targets(y, 3, weight), weight


def real_targets() -> tuple[torch.Tensor, torch.Tensor]:
    """Two of each row, and prior means of which neither is the mean."""
    targets = torch.randn(2, 9, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return targets, torch.tensor([0.4, -1.0], dtype=torch.float64)


def regressed(
    features: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, noise: float
) -> tuple[FeaturePosterior, torch.Tensor]:
    """Posterior and log evidence with the targets' means as prior means."""
    n_classes = int(y.max()) + 1
    targets, mean = label_targets(y, n_classes, weight)
    prior = FeaturePrior(features.unsqueeze(0), mean.unsqueeze(-1))
    posterior = prior.condition(regression_sites(targets, weight, noise))
    evidence = regression_log_evidence(prior, targets, weight, noise)
    of_posterior = regression_log_evidence(prior, targets, weight, noise, posterior)
    torch.testing.assert_close(of_posterior, evidence, rtol=1e-10, atol=1e-10)
    return posterior, evidence.sum()


def eigen(gram: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    root = weight.sqrt()
    eigenvalues, basis = torch.linalg.eigh(root[:, None] * gram * root)
    return eigenvalues, basis


def test_evidence_and_mean_are_those_of_regression() -> None:
    features, y, weight = problem()
    posterior, evidence = regressed(features, y, weight, 0.3)
    targets, mean = label_targets(y, 3, weight)
    gram = features @ features.mT
    noisy = gram + torch.diag(0.3 / weight)
    normal = torch.distributions.MultivariateNormal(torch.zeros(9, dtype=torch.float64), noisy)
    # The density of one observation of variance noise / s, less its normaliser, plus those of s observations.
    observed = 0.5 * (2 * torch.pi * 0.3 / weight).log().sum() - 0.5 * weight.sum() * math.log(2 * torch.pi * 0.3)
    torch.testing.assert_close(evidence, normal.log_prob(targets - mean[:, None]).sum() + 3 * observed)
    expected = mean[:, None] + (targets - mean[:, None]) @ torch.linalg.solve(noisy, gram)
    torch.testing.assert_close(posterior.query_mean(features[None]), expected)
    covariance = gram - gram @ torch.linalg.solve(noisy, gram)
    variance = posterior.query_variance(features[None], gram.diagonal()[None])
    torch.testing.assert_close(variance[0], covariance.diagonal())


def test_weights_are_copies() -> None:
    features, y, _ = problem()
    weight = torch.tensor([1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 1.0, 1.0, 2.0], dtype=torch.float64)
    rows = torch.arange(9).repeat_interleave(weight.long())
    fitted, evidence = regressed(features, y, weight, 0.3)
    copies, of_copies = regressed(features[rows], y[rows], torch.ones(16, dtype=torch.float64), 0.3)
    torch.testing.assert_close(evidence, of_copies)
    torch.testing.assert_close(fitted.weights, copies.weights)
    ratio = torch.tensor([0.3], dtype=torch.float64)
    gram = features @ features.mT
    merged = leave_one_out_path(*eigen(gram, weight), *of_labels(y, weight), ratio, 1 / weight)
    ones = torch.ones(16, dtype=torch.float64)
    apart = leave_one_out_path(*eigen(gram[rows][:, rows], ones), *of_labels(y[rows], ones), ratio, ones)
    torch.testing.assert_close(merged.scale, apart.scale)
    torch.testing.assert_close(merged.latent[..., rows], apart.latent)
    torch.testing.assert_close(merged.variance[..., rows], apart.variance)


def test_leave_one_out_path_is_regression_without_the_datum() -> None:
    features, _, weight = problem()
    targets, mean = real_targets()
    gram = features @ features.mT
    ratios = torch.tensor([0.03, 0.3], dtype=torch.float64)
    path = leave_one_out_path(*eigen(gram, weight), targets, mean, weight, ratios, torch.ones_like(weight))
    for k, ratio in enumerate(ratios):
        for i in range(9):
            kept = torch.arange(9) != i
            noisy = gram[kept][:, kept] + torch.diag(ratio / weight[kept])
            alpha = torch.linalg.solve(noisy, (targets - mean[:, None])[:, kept].mT)
            torch.testing.assert_close(path.latent[k, :, i], mean + gram[i, kept] @ alpha)
            variance = gram[i, i] - gram[i, kept] @ torch.linalg.solve(noisy, gram[kept, i])
            torch.testing.assert_close(path.variance[k, i], variance)
        prior = FeaturePrior(features.unsqueeze(0), mean.unsqueeze(-1))
        posterior = prior.condition(regression_sites(targets, weight, ratio))
        cavity, _ = leave_one_out(posterior.mean, posterior.variance, *posterior.sites)
        torch.testing.assert_close(cavity, path.latent[k])


@pytest.mark.parametrize("width", [4, 9, 20])
def test_the_path_by_features_is_the_same(width: int) -> None:
    _, _, weight = problem()
    features = torch.randn(9, width, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    ratios = torch.tensor([1e-3, 0.3, 20.0], dtype=torch.float64)
    rows, share = torch.tensor([0, 3, 8]), torch.linspace(0.2, 1, 9, dtype=torch.float64)
    whole = leave_one_out_path(*eigen(features @ features.mT, weight), *real_targets(), weight, ratios, share)
    some = leave_one_out_path_by_features(features, *real_targets(), weight, ratios, share, rows)
    torch.testing.assert_close(some.latent, whole.latent[..., rows], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(some.variance, whole.variance[:, rows], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(some.scale, whole.scale, rtol=1e-10, atol=0)


def test_the_path_by_factors_is_the_same() -> None:
    features, _, weight = problem()
    gram, share = features @ features.mT, torch.linspace(0.2, 1, 9, dtype=torch.float64)
    ratios = torch.tensor([1e-3, 0.3, 20.0], dtype=torch.float64)
    whole = leave_one_out_path(*eigen(gram, weight), *real_targets(), weight, ratios, share)
    by_factors = list(leave_one_out_by_factors(gram, *real_targets(), weight, ratios, share))
    torch.testing.assert_close(torch.stack([one.latent for one in by_factors]), whole.latent, rtol=1e-10, atol=1e-10)
    assert [one.scale for one in by_factors] == pytest.approx(whole.scale.tolist(), rel=1e-10)


@pytest.mark.parametrize("scale", [0.2, 7.0])
def test_a_factor_knows_the_posterior_at_any_output_scale(scale: float) -> None:
    features, y, weight = problem()
    ratio = 0.3
    (found,) = leave_one_out_by_factors(
        features @ features.mT, *of_labels(y, weight), torch.tensor([ratio], dtype=torch.float64), torch.ones(9)
    )
    posterior, evidence = regressed(scale**0.5 * features, y, weight, ratio * scale)
    assert found.log_evidence(weight, ratio * scale, scale) == pytest.approx(float(evidence), rel=1e-10)
    mean = label_targets(y, 3, weight)[1][:, None] + found.dual @ features @ features.mT
    torch.testing.assert_close(mean, posterior.mean, rtol=1e-9, atol=1e-9)


def test_the_path_s_scale_maximises_the_evidence() -> None:
    features, y, weight = problem()
    ratio = 0.3
    decomposition = eigen(features @ features.mT, weight)
    ratios = torch.tensor([ratio], dtype=torch.float64)
    best = float(leave_one_out_path(*decomposition, *of_labels(y, weight), ratios, torch.ones_like(weight)).scale)

    def evidence(scale: float) -> float:
        return float(regressed(scale**0.5 * features, y, weight, ratio * scale)[1])

    assert evidence(best) > max(evidence(0.98 * best), evidence(1.02 * best))


def test_many_weak_rows_count() -> None:
    """Nothing is left out: 2000 rows that each say next to nothing."""
    features = torch.randn(2000, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y, weight = torch.arange(2000) % 2, torch.full((2000,), 1e-5, dtype=torch.float64)
    A = torch.eye(3, dtype=torch.float64) + features.mT @ (weight[:, None] * features)
    targets = torch.stack([1 - 2 * y, 2 * y - 1]).to(torch.float64)
    expected = torch.linalg.solve(A, (targets * weight) @ features, left=False)
    torch.testing.assert_close(regressed(features, y, weight, 1.0)[0].weights, expected, rtol=1e-10, atol=1e-12)


def test_residuals_are_those_of_the_path() -> None:
    features, y, weight = problem()
    gram = features @ features.mT
    ratio = torch.tensor(0.3, dtype=torch.float64)
    share = torch.linspace(0.2, 1, 9, dtype=torch.float64)
    path = leave_one_out_path(*eigen(gram, weight), *of_labels(y, weight), ratio[None], share)
    residual, variance = leave_one_out_residuals(gram, ratio, *of_labels(y, weight), share)
    torch.testing.assert_close(residual, label_targets(y, 3, weight)[0] - path.latent[0])
    torch.testing.assert_close(variance, path.variance[0] + ratio)


def test_gradients_of_residuals() -> None:
    features, y, weight = problem()
    ratio = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    share = torch.linspace(0.2, 1, 9, dtype=torch.float64)

    def residuals(features: torch.Tensor, ratio: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return leave_one_out_residuals(features @ features.mT, ratio, *of_labels(y, weight), share)

    assert torch.autograd.gradcheck(residuals, (features.requires_grad_(), ratio), atol=1e-7)

"""Laplace's method against dense algebra and brute force."""

import pytest
import torch
from torch import Tensor

from sureshot.gaussian.posterior import leave_one_out
from sureshot.inference.laplace import fit_logistic_laplace, fit_softmax_laplace
from tests.oracles.softmax_laplace import dense_softmax_laplace


def problem(n: int = 7, n_classes: int = 3, seed: int = 0, scale: float = 3.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    gram = scale * torch.exp(-0.5 * torch.cdist(x, x) ** 2)
    y = torch.arange(n) % n_classes
    weight = torch.randint(1, 4, (n,), generator=generator).double()
    return x, gram, y, weight


def test_weight_space_softmax_mode_is_the_exact_mode() -> None:
    _, gram, y, weight = problem()
    features = torch.linalg.cholesky(gram)
    found = fit_softmax_laplace(features, y, 3, weight, tolerance=1e-9)
    mode, _, _ = dense_softmax_laplace(gram, y, 3, weight)
    torch.testing.assert_close(found.posterior.query_mean(features)[0], mode, rtol=0, atol=1e-6)


def test_softmax_temperature_and_kernel_scale_are_one_setting() -> None:
    _, gram, y, weight = problem()
    features = torch.linalg.cholesky(gram)
    hot = fit_softmax_laplace(features, y, 3, weight, temperature=0.5, tolerance=1e-9)
    scaled = fit_softmax_laplace(2 * features, y, 3, weight, tolerance=1e-9)
    latent_hot = hot.posterior.query_mean(features)[0]
    latent_scaled = scaled.posterior.query_mean(2 * features)[0]
    torch.testing.assert_close(latent_hot / 0.5, latent_scaled, rtol=0, atol=1e-6)
    torch.testing.assert_close(hot.log_evidence, scaled.log_evidence, rtol=0, atol=1e-6)


@pytest.mark.parametrize("prior_mean", [0.0, 0.7])
def test_logistic_laplace_equals_dense_algebra(prior_mean: float) -> None:
    _, gram, labels, s = problem()
    y = (labels > 0).long()
    fitted = fit_logistic_laplace(torch.linalg.cholesky(gram), y, s, prior_mean)
    inverse = torch.linalg.inv(gram)
    f = torch.full((len(y),), prior_mean, dtype=torch.float64)
    for _ in range(100):
        p = torch.sigmoid(f)
        w = torch.diag(s * p * (1 - p))
        f = f + torch.linalg.solve(inverse + w, s * (y - p) - inverse @ (f - prior_mean))
    features = torch.linalg.cholesky(gram)
    torch.testing.assert_close(fitted.posterior.query_mean(features)[0, 0], f, rtol=0, atol=1e-5)
    centred = f - prior_mean
    log_p = (s * torch.nn.functional.logsigmoid((2 * y - 1) * f)).sum()
    identity = torch.eye(len(y), dtype=torch.float64)
    evidence = log_p - 0.5 * centred @ inverse @ centred - 0.5 * torch.logdet(identity + gram @ w)
    torch.testing.assert_close(fitted.log_evidence, evidence, rtol=0, atol=1e-4)


def test_leave_one_out_is_close_to_refitting_without_the_datum() -> None:
    generator = torch.Generator().manual_seed(3)
    y = torch.arange(60) % 3
    centres = torch.tensor([[0.0, 1.5], [1.5, -1.0], [-1.5, -1.0]], dtype=torch.float64)
    x = centres[y] + torch.randn(60, 2, generator=generator, dtype=torch.float64)
    gram = 10 * torch.exp(-0.25 * torch.cdist(x, x) ** 2) + 10
    eigenvalues, basis = torch.linalg.eigh(gram)
    features = basis * eigenvalues.clamp_min(0).sqrt()
    ones = torch.ones(60, dtype=torch.float64)
    fitted = fit_softmax_laplace(features, y, 3, ones)
    latent = fitted.posterior.query_mean(features)[0]
    approximate, _ = leave_one_out(latent, fitted.variance, *fitted.sites)
    quick = fit_softmax_laplace(features, y, 3, ones, only_informative=True)
    cheap, _ = leave_one_out(latent, quick.variance, *quick.sites)
    torch.testing.assert_close(cheap, approximate, rtol=0, atol=1e-2)
    exact = torch.empty_like(approximate)
    for i in range(60):
        kept = torch.arange(60) != i
        without = fit_softmax_laplace(features[kept], y[kept], 3, ones[kept])
        exact[:, i] = without.posterior.weights[0] @ features[i]

    def score(latent: Tensor) -> float:
        return float(torch.log_softmax(latent, 0)[y, torch.arange(60)].mean())

    training = score(fitted.posterior.query_mean(features)[0])
    assert abs(score(approximate) - score(exact)) < 0.25 * abs(training - score(exact))


def test_leave_one_out_of_fixed_sites_is_exact() -> None:
    _, gram, y, s = problem()
    features = torch.linalg.cholesky(gram)
    fitted = fit_logistic_laplace(features, (y > 0).long(), s)
    mean, variance = leave_one_out(fitted.posterior.query_mean(features)[0], fitted.variance, *fitted.sites)
    w, b = fitted.sites.precision[0], fitted.sites.shift[0]
    for i in range(len(y)):
        kept = torch.arange(len(y)) != i
        precision = torch.linalg.inv(gram) + torch.diag(w * kept)
        covariance = torch.linalg.inv(precision)
        torch.testing.assert_close(variance[0, i], covariance[i, i], rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(mean[0, i], (covariance @ (b * kept))[i], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("size", [0.0, 1.0])
def test_a_start_changes_no_mode(size: float) -> None:
    """From the prior mean and from anywhere else, in scaled coordinates, as from zero in plain ones."""
    _, gram, y, weight = problem(n=9)
    root = torch.linalg.cholesky(gram)
    start = size * torch.sin(torch.arange(27, dtype=torch.float64)).view(3, 9)
    plain = fit_softmax_laplace(root, y, 3, weight, temperature=0.5, tolerance=1e-9)
    started = fit_softmax_laplace(root, y, 3, weight, temperature=0.5, start=start, tolerance=1e-9)
    torch.testing.assert_close(started.posterior.weights, plain.posterior.weights, rtol=0, atol=1e-7)
    torch.testing.assert_close(started.log_evidence, plain.log_evidence, rtol=0, atol=1e-7)
    two = (y > 0).long()
    newton = fit_logistic_laplace(root, two, weight, prior_mean=0.7)
    from_start = fit_logistic_laplace(root, two, weight, prior_mean=0.7, start=start[0])
    torch.testing.assert_close(from_start.posterior.weights, newton.posterior.weights, rtol=0, atol=1e-4)
    torch.testing.assert_close(from_start.log_evidence, newton.log_evidence, rtol=0, atol=1e-4)


def test_scaled_coordinates_save_steps() -> None:
    """On orthogonal features of very different size, where the plain search zigzags."""
    generator = torch.Generator().manual_seed(0)
    basis, _ = torch.linalg.qr(torch.randn(60, 60, generator=generator, dtype=torch.float64))
    features = basis * torch.logspace(2, -2, 60, dtype=torch.float64)
    y, weight = torch.arange(60) % 4, torch.ones(60, dtype=torch.float64)
    exact = fit_softmax_laplace(features, y, 4, weight, tolerance=1e-9).posterior.weights

    def distance(start: Tensor | None) -> float:
        found = fit_softmax_laplace(features, y, 4, weight, start=start, tolerance=1e-9, max_steps=25)
        return float((features @ (found.posterior.weights - exact)[0].mT).norm())

    assert distance(torch.zeros(4, 60, dtype=torch.float64)) < 0.1 * distance(None)


def test_labels_out_of_range_are_named() -> None:
    gram = torch.eye(3, dtype=torch.float64)
    with pytest.raises(ValueError, match="labels from 0 to n_classes - 1 = 1, but holds 0 to 2"):
        fit_logistic_laplace(gram, torch.tensor([0, 2, 1]), torch.ones(3, dtype=torch.float64))

import math

import pytest
import torch
from torch import Tensor

from experiments.iris_models import (
    MODELS,
    expected_log_softmax,
    joint_one_vs_each,
    softmax_bound,
    squared_exponential,
)
from experiments.pairwise import pairwise_differences
from sureshot.likelihoods import LogisticSoftmax, Softmax
from sureshot.likelihoods.polya_gamma import half_tanh_ratio

Y = torch.tensor([[0, 1, 2, 0]])


def tiny_gram() -> Tensor:
    x = torch.tensor([[[0.0, 0.3], [0.9, -0.2], [1.5, 1.0], [0.1, 1.1]]], dtype=torch.float64)
    return squared_exponential(x, x)


@pytest.fixture(scope="module")
def log_evidence() -> tuple[float, float]:
    """Softmax model's log evidence by sampling the prior, and its standard error."""
    (gram,), (y,), n_draws = tiny_gram(), Y, 400_000
    noise = torch.randn(n_draws, 3, y.shape[-1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    f = noise @ torch.linalg.cholesky(gram).mT
    logs = Softmax().log_likelihood(f, y.expand(n_draws, -1)).sum(-1)
    values = logs.exp()
    return math.log(values.mean()), float(values.std() / n_draws**0.5 / values.mean())


@pytest.mark.parametrize("model", MODELS)
def test_bound_is_below_the_log_evidence_and_near_it(model, log_evidence):
    gram = tiny_gram()
    fit = MODELS[model](gram, Y, 3)
    bound = float(softmax_bound(fit, Y))
    evidence, error = log_evidence
    assert bool(fit.converged.all())
    assert bound < evidence + 4 * error
    assert bound > evidence - 4.0
    assert float(fit.kl) > 0


def dense_bound(mean: Tensor, covariance: Tensor, prior: Tensor, y: Tensor, n_draws: int) -> tuple[float, float]:
    """Bound of N(mean, covariance) over all C N latents, by its definition: Monte Carlo and dense KL."""
    difference = torch.distributions.kl_divergence(
        torch.distributions.MultivariateNormal(mean, covariance),
        torch.distributions.MultivariateNormal(torch.zeros_like(mean), prior),
    )
    noise = torch.randn(n_draws, mean.numel(), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    f = (mean + noise @ torch.linalg.cholesky(covariance).mT).view(n_draws, 3, -1)
    logs = Softmax().log_likelihood(f, y.expand(n_draws, -1)).sum(-1)
    return float(logs.mean() - difference), float(logs.std() / n_draws**0.5)


def test_bound_of_the_joint_posterior_agrees_with_brute_force():
    gram, n = tiny_gram(), Y.shape[-1]
    fit = joint_one_vs_each(gram, Y, 3)
    # Rebuild the whole posterior covariance over the C N latents from the definition of mean field.
    a = torch.zeros(n * 2, 3 * n, dtype=torch.float64)
    for i, coefficients in enumerate(pairwise_differences(Y[0], 3, torch.float64)):
        for j in range(2):
            for c in range(3):
                a[2 * i + j, c * n + i] = coefficients[j, c]
    prior = torch.block_diag(*[gram[0]] * 3)
    covariance = prior
    for _ in range(500):
        first = covariance @ (a.T @ torch.full((2 * n,), 0.5, dtype=torch.float64))
        second = (a @ first) ** 2 + (a @ covariance @ a.T).diagonal()
        covariance = torch.linalg.inv(torch.linalg.inv(prior) + a.T @ torch.diag(half_tanh_ratio(second)) @ a)
    mean = covariance @ (a.T @ torch.full((2 * n,), 0.5, dtype=torch.float64))
    torch.testing.assert_close(fit.mean[0], mean.view(3, n), atol=1e-3, rtol=0)
    blocks = torch.stack([covariance[i::n, i::n] for i in range(n)])
    torch.testing.assert_close(fit.covariance[0], blocks, atol=1e-3, rtol=0)
    expected, error = dense_bound(mean, covariance, prior, Y[0], 200_000)
    assert float(softmax_bound(fit, Y)) == pytest.approx(expected, abs=4 * error + 1e-3)


def test_bound_of_the_laplace_posterior_agrees_with_brute_force():
    gram, n = tiny_gram(), Y.shape[-1]
    fit = MODELS["softmax (Laplace)"](gram, Y, 3)
    p = torch.softmax(fit.mean[0], 0)
    curvature = torch.zeros(3 * n, 3 * n, dtype=torch.float64)
    for c in range(3):
        for d in range(3):
            block = torch.diag(p[c] * (float(c == d) - p[d]))
            curvature[c * n : (c + 1) * n, d * n : (d + 1) * n] = block
    prior = torch.block_diag(*[gram[0]] * 3)
    covariance = torch.linalg.inv(torch.linalg.inv(prior) + curvature)
    expected, error = dense_bound(fit.mean[0].flatten(), covariance, prior, Y[0], 200_000)
    assert float(softmax_bound(fit, Y)) == pytest.approx(expected, abs=4 * error)


def test_bound_of_independent_classes_agrees_with_brute_force():
    gram = tiny_gram()
    fit = MODELS["logistic-softmax"](gram, Y, 3)
    sites = LogisticSoftmax().expected_sites(fit.mean, fit.covariance, Y, None)
    covariance = torch.block_diag(
        *[torch.linalg.inv(torch.linalg.inv(gram[0]) + torch.diag(w)) for w in sites.precision[0]]
    )
    expected, error = dense_bound(fit.mean[0].flatten(), covariance, torch.block_diag(*[gram[0]] * 3), Y[0], 200_000)
    assert float(softmax_bound(fit, Y)) == pytest.approx(expected, abs=4 * error + 1e-3)


def test_expectation_is_accurate_up_to_the_variance_of_the_prior():
    generator = torch.Generator().manual_seed(2)
    mean = torch.randn(3, 12, generator=generator, dtype=torch.float64) * 2
    root = torch.randn(12, 3, 3, generator=generator, dtype=torch.float64)
    covariance = root @ root.mT
    scale = covariance.diagonal(dim1=-2, dim2=-1).sqrt()
    covariance = covariance / (scale.unsqueeze(-1) * scale.unsqueeze(-2))  # correlations, unit variances
    y = torch.arange(12) % 3
    found = expected_log_softmax(mean, covariance, y)
    reference = expected_log_softmax(mean, covariance, y, n_nodes=80)
    torch.testing.assert_close(found, reference, atol=1e-5, rtol=0)
    noise = torch.randn(200_000, 12, 3, 1, generator=generator, dtype=torch.float64)
    f = mean + (torch.linalg.cholesky(covariance) @ noise).squeeze(-1).mT
    draws = Softmax().log_likelihood(f, y.expand(200_000, -1))
    assert bool(((draws.mean(0) - found).abs() < 5 * draws.std(0) / 200_000**0.5).all())


def test_variances_and_diagonal_covariances_are_the_same():
    mean = torch.tensor([[0.5, -1.0], [0.0, 2.0], [-0.3, 0.1]], dtype=torch.float64)
    variance = torch.tensor([[0.5, 1.0], [0.2, 0.7], [1.3, 0.4]], dtype=torch.float64)
    y = torch.tensor([0, 2])
    torch.testing.assert_close(
        expected_log_softmax(mean, variance, y), expected_log_softmax(mean, torch.diag_embed(variance.mT), y)
    )


@pytest.mark.parametrize("model", MODELS)
def test_splits_in_a_batch_do_not_touch_each_other(model):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(3, 6, 2, generator=generator, dtype=torch.float64)
    y = torch.tensor([[0, 1, 2, 0, 1, 2], [2, 1, 0, 0, 0, 1], [1, 2, 0, 2, 1, 0]])
    queries = torch.randn(3, 4, 2, generator=generator, dtype=torch.float64)
    gram, cross = squared_exponential(x, x), squared_exponential(x, queries)
    together = MODELS[model](gram, y, 3)
    for s in range(3):
        alone = MODELS[model](gram[s : s + 1], y[s : s + 1], 3)
        for a, b in zip(alone.query(cross[s : s + 1]), together.query(cross), strict=True):
            torch.testing.assert_close(a[0], b[s], atol=1e-5, rtol=1e-5)
        assert float(alone.kl) == pytest.approx(float(together.kl[s]), abs=1e-4)

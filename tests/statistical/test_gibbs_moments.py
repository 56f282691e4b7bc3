"""Long Gibbs runs against quadrature and elliptical slice sampling.

Other ways to integrate the same posterior, of given data. Whether samplers are right on average over data that the
models themselves make is for test_gibbs_joint and test_simulation_based_calibration: likelihoods that do not sum to
one over the labels, one-vs-each above all, are no obstacle there (see `conftest`).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from sureshot.gaussian.features import FeaturePrior
from sureshot.gaussian.gram import GramPrior
from sureshot.inference.gibbs import run_gibbs
from sureshot.inference.one_vs_each.gibbs import run_one_vs_each_gibbs
from sureshot.likelihoods.base import Likelihood
from sureshot.likelihoods.logistic import Logistic
from sureshot.likelihoods.logistic_softmax import LogisticSoftmax
from sureshot.likelihoods.one_vs_each import OneVsEach
from sureshot.likelihoods.sites import ConjugateLikelihood

F64 = torch.float64
# Largest of a few dozen standard scores; P(|z| > 4.2) = 2.7e-5 each, and the seeds are fixed.
LIMIT = 4.2

Scores = Callable[..., Tensor]
SliceSampler = Callable[..., Tensor]


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gram(n: int, variance: float, width: float = 2.5) -> Tensor:
    x = torch.linspace(0, width, n, dtype=F64).unsqueeze(-1)
    return variance * torch.exp(-0.5 * torch.cdist(x, x) ** 2)


def powers(f: Tensor) -> Tensor:
    """Latents, squares and one cross product: means, variances and a covariance are all compared."""
    return torch.cat([f, f**2, f[..., :1] * f[..., 1:2]], -1)


def posterior_by_quadrature(log_likelihood: Callable[[Tensor], Tensor], K: Tensor, mean: Tensor) -> Tensor:
    """Exact `powers` of two latents under ``N(mean, K)`` times the likelihood, on a fine grid."""
    axis = torch.linspace(-9, 9, 801, dtype=F64)
    white = torch.cartesian_prod(axis, axis)
    f = mean + white @ torch.linalg.cholesky(K).mT
    log_weight = log_likelihood(f) - 0.5 * white.square().sum(-1)
    weight = torch.softmax(log_weight, 0)
    return weight @ powers(f)


BINARY_MEAN = torch.tensor([1.5, 1.5], dtype=F64)
BINARY_Y = torch.tensor([1, 0])


def binary_exact(K: Tensor, weight: Tensor) -> Tensor:
    def log_likelihood(f: Tensor) -> Tensor:
        return (Logistic().log_likelihood(f.unsqueeze(-2), BINARY_Y) * weight).sum(-1)

    return posterior_by_quadrature(log_likelihood, K, BINARY_MEAN)


@pytest.mark.parametrize("kind", ["gram", "features"])
@pytest.mark.parametrize("weight", [None, torch.tensor([3.0, 1.0], dtype=F64)], ids=["plain", "weighted"])
def test_binary_moments_by_quadrature(kind: str, weight: Tensor | None, scores: Scores) -> None:
    K = gram(2, 6.0, 1.0)
    mean = torch.tensor(1.5, dtype=F64)
    prior = (
        GramPrior(K.unsqueeze(0), mean) if kind == "gram" else FeaturePrior(torch.linalg.cholesky(K).unsqueeze(0), mean)
    )
    result = run_gibbs(prior, Logistic(), BINARY_Y, 400, 100, weight, seeded(0), keep="all")
    assert result.latents is not None
    draws = powers(result.latents[20:, :, 0])
    exact = binary_exact(K, torch.ones(2, dtype=F64) if weight is None else weight)
    assert float(scores(draws, exact=exact).abs().max()) < LIMIT


def test_two_class_one_vs_each_is_logistic_with_twice_the_variance(scores: Scores) -> None:
    """``f_1 - f_0`` has prior covariance 2 K; one-vs-each of two classes is the logistic model."""
    K = gram(2, 3.0, 1.0)
    result = run_one_vs_each_gibbs(
        K, torch.tensor([0.0, 1.5], dtype=F64), BINARY_Y, 2, 400, 100, generator=seeded(2), keep="all"
    )
    assert result.differences is not None
    own_minus_rival = result.differences[20:].sum(-2)  # the other entry of each datum is zero
    sign = torch.where(BINARY_Y == 1, 1.0, -1.0).to(F64)
    exact = binary_exact(2 * K, torch.ones(2, dtype=F64))
    assert float(scores(powers(sign * own_minus_rival), exact=exact).abs().max()) < LIMIT


MULTI_Y = torch.tensor([0, 2, 1, 0])
MULTI_MEAN = torch.tensor([0.7, -0.4, 0.1], dtype=F64)


def by_slice_sampling(
    sampler: SliceSampler, likelihood: Likelihood, variance: float, weight: Tensor | None = None
) -> Tensor:
    counts = torch.ones(4, dtype=F64) if weight is None else weight

    def log_likelihood(f: Tensor) -> Tensor:
        return (likelihood.log_likelihood(f, MULTI_Y) * counts).sum(-1)

    root = torch.linalg.cholesky(gram(4, variance))
    mean = MULTI_MEAN.unsqueeze(-1).expand(3, 4)
    return sampler(log_likelihood, root, mean, 400, 400, seeded(3))[50:]


def differences(f: Tensor) -> Tensor:
    index = MULTI_Y.expand(*f.shape[:-2], 4).unsqueeze(-2)
    return f.gather(-2, index) - f


def rival_powers(psi: Tensor) -> Tensor:
    """Differences to rivals only (own entries are constant zeros), with squares and a cross product."""
    rivals = psi[..., MULTI_Y.unsqueeze(0) != torch.arange(3).unsqueeze(-1)]
    return powers(rivals)


@pytest.mark.slow
@pytest.mark.parametrize("weight", [None, torch.tensor([1.0, 2, 0, 1], dtype=F64)], ids=["plain", "weighted"])
def test_one_vs_each_by_slice_sampling(weight: Tensor | None, slice_sampler: SliceSampler, scores: Scores) -> None:
    kept = MULTI_Y.new_ones(4) if weight is None else (weight > 0)
    oracle = rival_powers(differences(by_slice_sampling(slice_sampler, OneVsEach(), 4.0, weight)))
    observed = kept.bool().expand(3, 4)[MULTI_Y.unsqueeze(0) != torch.arange(3).unsqueeze(-1)]
    columns = torch.cat([observed, observed, (observed[:1] & observed[1:2])])
    for factorisation in ("dense", "star"):
        result = run_one_vs_each_gibbs(
            gram(4, 4.0), MULTI_MEAN, MULTI_Y, 3, 400, 150, weight, seeded(4), "all", None, factorisation
        )
        assert result.differences is not None
        draws = rival_powers(result.differences[30:])
        assert float(scores(draws[..., columns], oracle[..., columns]).abs().max()) < LIMIT


def test_one_vs_each_predictions_by_slice_sampling(slice_sampler: SliceSampler, scores: Scores) -> None:
    """Rao-Blackwellised query moments, averaged over chains, against latents drawn at the query."""
    K = gram(5, 4.0)
    root = torch.linalg.cholesky(K)
    keep = torch.tensor([0, 1, 3, 4])

    def log_likelihood(f: Tensor) -> Tensor:
        return OneVsEach().log_likelihood(f[..., keep], MULTI_Y).sum(-1)

    oracle = slice_sampler(log_likelihood, root, MULTI_MEAN.unsqueeze(-1).expand(3, 5), 400, 300, seeded(5))[
        50:, ..., 2
    ]
    result = run_one_vs_each_gibbs(K[keep][:, keep], MULTI_MEAN, MULTI_Y, 3, 20_000, 15, generator=seeded(6))
    mean, covariance = result.predict_latents(K[keep][:, 2:3], K[2:3, 2])
    means, covariances = mean[..., 0], covariance[:, 0]
    second = covariances + means.unsqueeze(-1) * means.unsqueeze(-2)
    independent = torch.cat([means, second.flatten(1)], -1)
    draws = torch.cat([oracle, (oracle.unsqueeze(-1) * oracle.unsqueeze(-2)).flatten(-2)], -1)
    # Chains are independent, so fold them into "sweeps" to measure both in the same way.
    z = scores(independent.reshape(200, 100, -1), draws)
    assert float(z.abs().max()) < LIMIT


@pytest.mark.slow
@pytest.mark.parametrize(
    "likelihoods",
    [(LogisticSoftmax(), LogisticSoftmax(augmentation="poisson_gamma")), (LogisticSoftmax(0.5),)],
    ids=["both augmentations", "temperature 0.5"],
)
def test_logistic_softmax_by_slice_sampling(
    likelihoods: tuple[ConjugateLikelihood, ...], slice_sampler: SliceSampler, scores: Scores
) -> None:
    prior = GramPrior(gram(4, 2.0).unsqueeze(0), MULTI_MEAN.unsqueeze(-1))
    oracle = powers(by_slice_sampling(slice_sampler, likelihoods[0], 2.0).flatten(-2))
    for likelihood in likelihoods:
        result = run_gibbs(prior, likelihood, MULTI_Y, 400, 200, generator=seeded(7), keep="all")
        assert result.latents is not None
        draws = powers(result.latents[40:].flatten(-2))
        assert float(scores(draws, oracle).abs().max()) < LIMIT

"""Predictions for fixed kernels, against dense algebra and importance sampling."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import logsigmoid

from sureshot.structure.grammar import Grammar, KernelPrior
from sureshot.structure.leaves import LogNormal
from sureshot.structure.prediction import (
    averaged_probabilities,
    class_moments,
    moments,
    probabilities,
    unexplained_variance,
)
from sureshot.structure.rejuvenation import Rejuvenation
from sureshot.structure.smc import SmcSettings, SmcState, smc_step
from sureshot.structure.structure import Structure
from tests.structure.oracles import F64, differences, draws_and_log_weights, kernel_matrix, seeded
from tests.structure.toys import probability_of_one

# Kernels that nothing learns: every particle has the same, and only the latents are left.
FIXED = KernelPrior(Grammar(scale=1, mean_variance=1), 1)
K, Z = Structure.parse("SQUARED-EXPONENTIAL + LINEAR"), torch.tensor([0.5, 1.0, -0.5, 0.3, 0.2], dtype=F64)
LATENTS_ONLY = SmcSettings(Rejuvenation({}, 0))
X = torch.tensor([[-1.0], [-0.3], [0.1], [0.8], [1.5]], dtype=F64)
QUERIES = torch.tensor([[-2.0], [0.0], [0.5], [3.0]], dtype=F64)


def conditioned(y: torch.Tensor, n_classes: int, n_particles: int) -> SmcState:
    state = SmcState.start(FIXED, n_particles, n_classes, seeded(0), K)
    for z in state.particles.z:
        z.copy_(Z)
    return smc_step(state, X, y, seeded(1), LATENTS_ONLY)[0]


def test_two_classes_against_importance_sampling() -> None:
    y = torch.tensor([0, 0, 1, 0, 1])
    found = probabilities(conditioned(y, 2, 4000), QUERIES)
    covariance = kernel_matrix(FIXED, K, Z, torch.cat([X, QUERIES]))
    exact = probability_of_one(covariance, y, 50_000, seeded(2))
    torch.testing.assert_close(found[:, 1], exact, rtol=0, atol=5e-3)
    torch.testing.assert_close(found.sum(-1), torch.ones(4, dtype=F64))


@pytest.mark.parametrize("n_classes", [2, 3, 4])
def test_moments_of_classes_against_dense_algebra(n_classes: int) -> None:
    y = torch.tensor([0, 2, 1, 0, 1]).clamp_max(n_classes - 1)
    state = conditioned(y, n_classes, 4)
    mean, covariance = class_moments(state, QUERIES)
    classes, a = torch.eye(n_classes, dtype=F64), differences(y, n_classes)
    whole = kernel_matrix(FIXED, K, Z, torch.cat([X, QUERIES]))
    seen, cross = torch.kron(classes, whole[:5, :5].contiguous()), torch.kron(classes, whole[:5, 5:].contiguous())
    prior = torch.kron(classes, whole[5:, 5:].contiguous())
    for m, omega in enumerate(state.latent.omega):
        gain = cross.mT @ a.mT @ torch.linalg.inv(a @ seen @ a.mT + torch.diag(1 / omega))
        latents = (gain @ (0.5 / omega)) / 2**0.5
        spread = (prior - gain @ a @ cross) / 2
        torch.testing.assert_close(mean[m].flatten(), latents)
        torch.testing.assert_close(
            covariance[m], spread.view(n_classes, 4, n_classes, 4).diagonal(dim1=1, dim2=3).permute(2, 0, 1)
        )


def test_three_classes_against_draws_of_their_latents() -> None:
    """Of each particle the likelihoods of all classes in expectation, normalised."""
    state = conditioned(torch.tensor([0, 0, 2, 1, 1]), 3, 50)
    found = probabilities(state, QUERIES)
    mean, covariance = class_moments(state, QUERIES)
    noise = torch.randn(4000, 50, 4, 3, generator=seeded(3), dtype=F64)
    f = mean.mT + torch.einsum("mqcd,smqd->smqc", torch.linalg.cholesky(covariance), noise)
    pairs = logsigmoid(f.unsqueeze(-1) - f.unsqueeze(-2))
    likelihood = (pairs.sum(-1) - pairs.diagonal(dim1=-2, dim2=-1)).exp().mean(0)  # (M, Q, C)
    expected = torch.einsum("m,mqc->qc", state.log_weights.exp(), likelihood / likelihood.sum(-1, keepdim=True))
    torch.testing.assert_close(found, expected, rtol=0, atol=5e-3)
    torch.testing.assert_close(found.sum(-1), torch.ones(4, dtype=F64))


def test_three_classes_against_importance_sampling() -> None:
    """Likelihoods of all classes in expectation over the posterior, normalised once.

    Particles are normalised one by one, given their Polya-Gamma variables: hence the tolerance.
    """
    y = torch.tensor([0, 0, 2, 1, 1])
    found = probabilities(conditioned(y, 3, 2000), QUERIES)
    classes, a = torch.eye(3, dtype=F64), differences(y, 3)
    whole = kernel_matrix(FIXED, K, Z, torch.cat([X, QUERIES]))
    blocks = (whole[:5, :5], whole[:5, 5:], whole[5:, 5:])
    seen, cross, prior = (torch.kron(classes, block.contiguous()) for block in blocks)
    covariance = a @ seen @ a.mT
    psi, log_weights = draws_and_log_weights(covariance.unsqueeze(0), 40_000, seeded(0))
    gain = cross.mT @ a.mT @ torch.linalg.inv(covariance)
    root = torch.linalg.cholesky(prior - gain @ a @ cross + 1e-9 * torch.eye(12, dtype=F64))
    noise = torch.randn(40_000, 12, generator=seeded(1), dtype=F64)
    f = (psi.squeeze(1) @ gain.mT + noise @ root.mT).unflatten(-1, (3, 4)) / 2**0.5
    pairs = logsigmoid(f.unsqueeze(2) - f.unsqueeze(1))
    likelihood = (pairs.sum(2) - pairs.diagonal(dim1=1, dim2=2).mT).exp()
    expected = torch.einsum("s,scq->qc", torch.softmax(log_weights.squeeze(-1), 0), likelihood)
    torch.testing.assert_close(found, expected / expected.sum(-1, keepdim=True), rtol=0, atol=0.015)


@pytest.mark.parametrize("n_classes", [1, 2, 3])
def test_what_data_leave_of_differences_is_little_near_rows_and_all_far_away(n_classes: int) -> None:
    """Whatever all classes' latents have in common, which no label tells."""
    bumps = KernelPrior(Grammar(scale=10, nugget=LogNormal(math.log(2), 0)), 1)
    state = SmcState.start(bumps, 8, n_classes, seeded(0), Structure.parse("SQUARED-EXPONENTIAL"))
    x = torch.linspace(-0.5, 0.5, 60, dtype=F64).unsqueeze(-1)
    y = ((x[:, 0] + 0.5) * n_classes).long().clamp_max(n_classes - 1)
    state, _ = smc_step(state, x, y, seeded(1), LATENTS_ONLY, n_classes)
    queries = torch.cat([x[::10], torch.tensor([[-90.0], [90.0]], dtype=F64)])
    found = unexplained_variance(state, queries, moments(state, queries)[1])
    assert float(found[-2:].min()) > 0.99
    assert n_classes == 1 or float(found[:-2].max()) < 0.7


@pytest.mark.parametrize("n_classes", [2, 3])
def test_what_data_leave_is_the_mean_variance_of_differences(n_classes: int) -> None:
    """Without nuggets, in units of the prior's; of particles by their weights."""
    state = conditioned(torch.tensor([0, 0, 1, 0, n_classes - 1]), n_classes, 6)
    state = replace(state, log_weights=torch.tensor([0.5, 0.3, 0.1, 0.05, 0.04, 0.01], dtype=F64).log())
    covariance = class_moments(state, QUERIES)[1]  # of f / sqrt(2)
    pairs = [(a, b) for b in range(n_classes) for a in range(b)]
    of_pairs = [covariance[..., a, a] + covariance[..., b, b] - 2 * covariance[..., a, b] for a, b in pairs]
    left = torch.stack(of_pairs).mean(0)
    own = FIXED.kernel(K, Z[1:])(QUERIES).diagonal()
    shares = (left - FIXED.nugget(Z[0])) / own  # a difference of f / sqrt(2) has the prior variance of one f
    expected = state.log_weights.exp() @ shares.clamp_max(1)
    assert 0.05 < float(expected.min()) < float(expected.max()) < 0.95
    torch.testing.assert_close(unexplained_variance(state, QUERIES, moments(state, QUERIES)[1]), expected)


def test_a_temperature_divides_latents_their_deviations_too() -> None:
    """By the trapezoid rule of two classes' logistic function, and by draws of three classes' latents."""
    mean = torch.tensor([[[0.8, -2.0]], [[3.0, 0.1]]], dtype=F64)
    variance = torch.tensor([[4.0, 0.5], [2.0, 9.0]], dtype=F64)
    weights, temperature = torch.tensor([0.3, 0.7], dtype=F64), 2.5
    t = torch.linspace(-9, 9, 4001, dtype=F64)
    f = mean[:, 0].unsqueeze(-1) + variance.sqrt().unsqueeze(-1) * t
    density = (-0.5 * t.square()).exp() / math.sqrt(2 * math.pi)
    exact = torch.einsum("m,mq->q", weights, torch.trapezoid(torch.sigmoid(f / temperature) * density, t))
    found = averaged_probabilities(mean, variance[..., None, None], weights, temperature)
    torch.testing.assert_close(found, torch.stack([1 - exact, exact], -1), rtol=0, atol=1e-6)
    centre = torch.tensor([[[1.0], [-0.5], [0.3]]], dtype=F64)
    covariance = torch.tensor([[[[4.0, 1.0, 0.0], [1.0, 2.0, -0.5], [0.0, -0.5, 3.0]]]], dtype=F64)
    noise = torch.randn(200_000, 3, generator=seeded(0), dtype=F64)
    g = (centre[0, :, 0] + noise @ torch.linalg.cholesky(covariance[0, 0]).mT) / temperature
    pairs = logsigmoid(g.unsqueeze(-1) - g.unsqueeze(-2))
    likelihood = (pairs.sum(-1) - pairs.diagonal(dim1=-2, dim2=-1)).exp().mean(0)
    three = averaged_probabilities(centre, covariance, torch.ones(1, dtype=F64), temperature)
    torch.testing.assert_close(three[0], likelihood / likelihood.sum(), rtol=0, atol=3e-3)


def test_without_data_all_classes_are_as_probable() -> None:
    state = SmcState.start(KernelPrior(Grammar(scale=1, mean_variance=1), 1), 40, 2, seeded(0))
    torch.testing.assert_close(probabilities(state, QUERIES), torch.full((4, 2), 0.5, dtype=F64))
    state = SmcState.start(KernelPrior(Grammar(scale=1, mean_variance=1), 1), 40, 3, seeded(0))
    torch.testing.assert_close(probabilities(state, QUERIES), torch.full((4, 3), 1 / 3, dtype=F64), rtol=0, atol=5e-3)


def test_a_query_does_not_depend_on_those_beside_it() -> None:
    state = conditioned(torch.tensor([0, 0, 2, 1, 1]), 3, 10)
    together = probabilities(state, QUERIES)
    alone = torch.cat([probabilities(state, query.unsqueeze(0)) for query in QUERIES])
    torch.testing.assert_close(alone, together, rtol=1e-9, atol=1e-9)

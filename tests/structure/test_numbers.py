"""Numbers with Gaussian noise: weights against Gaussian densities, posteriors against importance sampling, removal."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from sureshot.kernels.shared_rows import SharedRows
from sureshot.structure.grammar import Grammar, KernelPrior
from sureshot.structure.number_rows import left_out, pulls
from sureshot.structure.numbers import Numbers, started
from sureshot.structure.particles import Particles
from sureshot.structure.prediction import moments
from sureshot.structure.rejuvenation import Rejuvenation
from sureshot.structure.removal import without
from sureshot.structure.smc import SmcSettings, SmcState, rejuvenated, smc_step
from sureshot.structure.structure import Structure
from tests.structure.oracles import F64, kernel_matrix, seeded
from tests.structure.toys import leaves_alone

PRIOR = KernelPrior(replace(Grammar.preset("series"), max_depth=3), 1)
STILL = SmcSettings(Rejuvenation({}, 0, 0), resample_below=0.0, split_below=0.0)
MOVING = SmcSettings(Rejuvenation(refreshes=0))
X = torch.linspace(-1.7, 1.7, 16, dtype=F64).unsqueeze(-1)
Y = (X[:, 0] + torch.sin(6 * X[:, 0]) + 0.3 * torch.randn(16, generator=seeded(3), dtype=F64)) / 1.3
LOG_2_PI = math.log(2 * math.pi)
QUERIES = torch.tensor([[-2.2], [0.1], [X[3, 0]], [2.5]], dtype=F64)


def density(prior: KernelPrior, structure: Structure, z: Tensor, x: Tensor, y: Tensor) -> float:
    covariance = kernel_matrix(prior, structure, z, x).numpy()
    log_determinant = np.linalg.slogdet(covariance)[1]
    return float(-0.5 * (y.numpy() @ np.linalg.solve(covariance, y.numpy()) + log_determinant + len(y) * LOG_2_PI))


def densities(particles: Particles, x: Tensor, y: Tensor, prior: KernelPrior = PRIOR) -> Tensor:
    pairs = zip(particles.structures, particles.z, strict=True)
    return torch.tensor([density(prior, structure, z, x, y) for structure, z in pairs], dtype=F64)


def still(n_particles: int, sizes: tuple[int, ...] = (16,), prior: KernelPrior = PRIOR, seed: int = 0) -> SmcState:
    """Particles that never move."""
    state, n = started(prior, n_particles, seeded(seed), None), 0
    for size in sizes:
        state, _ = smc_step(state, X[n : n + size], Y[n : n + size], seeded(seed), STILL)
        n += size
    return state


@pytest.mark.parametrize("sizes", [(16,), (1, 15), (4, 4, 8), (1,) * 16])
def test_weights_of_new_numbers_multiply_to_the_evidence(sizes: tuple[int, ...]) -> None:
    state = still(1, sizes)
    assert state.log_evidence == pytest.approx(float(densities(state.particles, X, Y)), abs=1e-10)


def test_weights_are_those_of_importance_sampling() -> None:
    state = still(12, (5, 11))
    exact = densities(state.particles, X, Y)
    torch.testing.assert_close(state.log_weights, exact - exact.logsumexp(0), rtol=1e-10, atol=1e-9)
    assert state.log_evidence == pytest.approx(float(exact.logsumexp(0)) - math.log(12), abs=1e-9)
    torch.testing.assert_close(state.latent.log_likelihood, exact, rtol=1e-10, atol=1e-9)


def test_predictions_are_those_of_dense_arithmetic() -> None:
    state = still(6)
    mean, covariance = moments(state, QUERIES)
    for k, (structure, z) in enumerate(zip(state.particles.structures, state.particles.z, strict=True)):
        every = kernel_matrix(PRIOR, structure, z, torch.cat([X, QUERIES])).numpy()
        gain = np.linalg.solve(every[:16, :16], every[:16, 16:])
        np.testing.assert_allclose(mean[k, 0], gain.T @ Y.numpy(), atol=1e-8)
        left = every.diagonal()[16:] - (every[:16, 16:] * gain).sum(0)
        np.testing.assert_allclose(covariance[k, :, 0, 0], left, atol=1e-8)


@pytest.mark.parametrize("sets", [[[3], [0], [15]], [[2, 7], [11, 4]], [[5, 6, 7]]])
def test_left_out_rows_are_those_of_a_posterior_that_never_saw_them(sets: list[list[int]]) -> None:
    state = still(5)
    rows = torch.tensor(sets)
    found = left_out(state, [(torch.arange(len(sets)), rows)], len(sets))
    fall = pulls(state, QUERIES, [(torch.arange(len(sets)), rows)], len(sets))
    whole = torch.einsum("m,mq->q", state.log_weights.exp(), moments(state, QUERIES)[0][:, 0])
    for e, gone in enumerate(sets):
        stays = torch.ones(16, dtype=torch.bool)
        stays[gone] = False
        dense = densities(state.particles, X[stays], Y[stays])
        torch.testing.assert_close(found.weights[:, e], dense.softmax(0), rtol=0, atol=1e-8)
        fewer = without(state, stays)
        torch.testing.assert_close(fewer.log_weights, dense - dense.logsumexp(0), rtol=1e-10, atol=1e-8)
        mean, covariance = moments(fewer, X[gone[:1]])
        torch.testing.assert_close(found.mean[:, e], mean[:, 0, 0], rtol=0, atol=1e-8)
        torch.testing.assert_close(found.variance[:, e], covariance[:, 0, 0, 0], rtol=0, atol=1e-8)
        left = torch.einsum("m,mq->q", state.log_weights.exp(), moments(fewer, QUERIES)[0][:, 0])
        torch.testing.assert_close(fall[:, e], whole - left, rtol=0, atol=1e-8)


def test_removal_is_the_state_without_the_rows() -> None:
    state, stays = still(8), torch.arange(16) < 11
    fewer, never = without(state, stays), still(8, (11,))
    torch.testing.assert_close(fewer.log_weights, never.log_weights, rtol=0, atol=1e-8)
    assert fewer.log_evidence == pytest.approx(never.log_evidence, abs=1e-8)
    torch.testing.assert_close(fewer.y, Y[:11])


def test_without_data_structures_are_as_frequent_as_the_grammar_says() -> None:
    state = started(PRIOR, 400, seeded(1), None)
    state, _ = rejuvenated(state, seeded(2), MOVING)
    alone = float(leaves_alone(state.particles).mean())
    p = 18 / 28
    assert abs(alone - p) < 4 * (p * (1 - p) / 400) ** 0.5


def reference(n: int) -> tuple[float, float, float, float]:
    """Log evidence and the posterior probability of a leaf alone, each with its error, by 20,000 draws of the prior."""
    particles = Particles.drawn(PRIOR, 20_000, seeded(7))
    gram = particles.grams(PRIOR, SharedRows(X[:n]))
    s = gram + particles.nuggets(PRIOR)[:, None, None] * torch.eye(n, dtype=F64)
    factor, failed = torch.linalg.cholesky_ex(s)
    u = torch.linalg.solve_triangular(factor, Y[:n].expand(len(s), -1).unsqueeze(-1), upper=False).squeeze(-1)
    logs = -0.5 * u.square().sum(-1) - factor.diagonal(dim1=-2, dim2=-1).log().sum(-1) - 0.5 * n * math.log(2 * math.pi)
    logs = torch.where((failed == 0) & logs.isfinite(), logs, -math.inf)
    values = (logs - logs.max()).exp()
    shares = values / values.sum()
    assert 1 / float(shares.square().sum()) > 150, "the reference itself must be worth something"
    alone = leaves_alone(particles)
    p = float(shares @ alone)
    error = float((shares.square() @ (alone - p).square()).sqrt())
    return float(logs.max() + values.mean().log()), float(values.std() / values.mean()) / len(s) ** 0.5, p, error


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(12,), (4, 4, 4)])
def test_evidence_and_posterior_are_those_of_importance_sampling(sizes: tuple[int, ...]) -> None:
    log_evidence, error, p, p_error = reference(12)
    evidences, alone = [], []
    for seed in range(12):
        generator, state, n = seeded(seed), started(PRIOR, 32, seeded(100 + seed), None), 0
        for size in sizes:
            state, _ = smc_step(state, X[n : n + size], Y[n : n + size], generator, MOVING)
            n += size
        evidences.append(math.exp(state.log_evidence - log_evidence))
        alone.append(float(state.log_weights.exp() @ leaves_alone(state.particles)))
    for found, expected, exact in ((evidences, 1.0, error), (alone, p, p_error)):
        assert abs(np.mean(found) - expected) < 4 * np.hypot(np.std(found, ddof=1) / 12**0.5, exact)


def test_batches_of_other_targets_are_refused() -> None:
    state = still(2)
    for y in (torch.tensor([1]), torch.tensor([math.nan], dtype=F64)):
        with pytest.raises(ValueError, match="finite floating-point numbers"):
            smc_step(state, X[:1], y, seeded(0), STILL)
    with pytest.raises(ValueError, match="finite"):
        Numbers.empty(1).restored({"target": torch.tensor([[math.inf]])})


def test_a_kernel_that_overflows_has_no_weight() -> None:
    state = started(PRIOR, 2, seeded(0), Structure(("LINEAR",)))
    state.particles.z[0][1] = 800.0
    expected = density(PRIOR, state.particles.structures[1], state.particles.z[1], X, Y) - math.log(2)
    found, told = smc_step(state, X, Y, seeded(0), STILL)
    assert found.log_evidence == pytest.approx(expected, abs=1e-9)
    assert told.ancestors == (1, 1)

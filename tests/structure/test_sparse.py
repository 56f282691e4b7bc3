"""Kernels seen through inducing inputs, against dense algebra, collapsed latents and importance sampling."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor

from sureshot.approximations.exact import lifted
from sureshot.kernels.shared_rows import SharedRows
from sureshot.likelihoods.quadrature import log_expected_sigmoid
from sureshot.structure.collapsed import Collapsed
from sureshot.structure.contrasts import Contrasts
from sureshot.structure.grammar import Grammar, KernelPrior
from sureshot.structure.least_squares import LeastSquaresMeans, means_left_out
from sureshot.structure.leave_one_out import left_out
from sureshot.structure.particles import Particles
from sureshot.structure.prediction import distance_from_rows, distances_left_out, moments
from sureshot.structure.removal import without
from sureshot.structure.smc import SmcSettings, SmcState, extended, settled, smc_step
from tests.structure.oracles import F64, log_evidences, mean_and_error, seeded
from tests.structure.toys import TOYS

PRIOR = KernelPrior(Grammar(), 2)
X = torch.randn(24, 2, generator=seeded(1), dtype=F64)
QUERIES = torch.randn(7, 2, generator=seeded(2), dtype=F64)
FEW = torch.randn(5, 2, generator=seeded(3), dtype=F64)
TWO = torch.tensor([[-0.2], [0.2]], dtype=F64)
CASES = pytest.mark.parametrize(("n_classes", "later"), [(2, False), (3, False), (4, True)])


def conditioned(n_classes: int, later: bool, inducing: Tensor | None) -> SmcState:
    """Particles that have seen all rows in two batches, nothing moved; of a class that comes later, if wanted."""
    y = torch.arange(len(X)) % n_classes
    y = y.sort().values if later else y
    first = int((y < n_classes - 1).sum()) if later else 10
    generator = seeded(5)
    state = SmcState.start(PRIOR, 6, n_classes - later, generator, inducing=inducing)
    state, _ = extended(state, X[:first], y[:first], n_classes - later, generator)
    return extended(state, X[first:], y[first:], n_classes, generator)[0]


def gram(prior: KernelPrior, particles: Particles, x: Tensor, inducing: Tensor) -> Tensor:
    """Kernels of rows with each other (M, N, N) as they are seen through inducing inputs, without nuggets."""
    whole, cross, own = (
        particles.grams(prior, SharedRows(*rows)) for rows in ((x, x), (inducing, x), (inducing, inducing))
    )
    through = cross.mT @ torch.linalg.solve(lifted(own), cross)
    return through + torch.diag_embed((whole - through).diagonal(dim1=-2, dim2=-1))


def collapsed(state: SmcState, inducing: Tensor) -> Collapsed:
    """Latents of the same variables, by the whole covariance."""
    kernels = gram(state.prior, state.particles, state.x, inducing)
    covariance = state.contrasts.covariance(state.contrasts, kernels, state.particles.nuggets(state.prior))
    return Collapsed.of(state.latent.variables["omega"], covariance)


def differences(mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Of latents (M, L, Q) from the first one: they are known up to what all classes share."""
    if mean.shape[1] == 1:
        return mean, covariance
    less = torch.eye(mean.shape[1], dtype=F64)
    less = less - less[0]
    return less @ mean, less @ covariance @ less.mT


def close(first: Tensor, second: Tensor) -> None:
    torch.testing.assert_close(first, second, rtol=1e-8, atol=1e-8)


@CASES
def test_with_all_rows_it_is_the_collapsed_representation(n_classes: int, later: bool) -> None:
    exact, state = (conditioned(n_classes, later, inducing) for inducing in (None, X))
    close(state.latent.variables["omega"], exact.latent.variables["omega"])
    close(state.latent.log_likelihood, exact.latent.log_likelihood)
    close(state.log_weights, exact.log_weights)
    assert state.log_evidence == pytest.approx(exact.log_evidence, abs=1e-8)
    out, exact_out = left_out(state), left_out(exact)
    close(out.weights, exact_out.weights) if n_classes == 2 else None  # else they are known up to a shared latent
    for found, expected in (
        (moments(state, QUERIES), moments(exact, QUERIES)),
        (out[:2], exact_out[:2]),
    ):
        for one, other in zip(differences(*found), differences(*expected), strict=True):
            close(one, other)
    for found, expected in (
        [LeastSquaresMeans.of(one, 1.5).means(one, QUERIES) for one in (state, exact)],
        [means_left_out(one, 1.5, out.copies) for one in (state, exact)],
    ):
        assert found.shape == expected.shape
        torch.testing.assert_close(found - found[:, :1] * (n_classes > 2), expected - expected[:, :1] * (n_classes > 2))
    close(distance_from_rows(state, QUERIES), distance_from_rows(exact, QUERIES))
    close(distances_left_out(state), distances_left_out(exact))


@CASES
def test_with_few_it_is_that_of_the_covariance_that_they_leave(n_classes: int, later: bool) -> None:
    state = conditioned(n_classes, later, FEW)
    dense = collapsed(state, FEW)
    fresh = state.recomputed().latent
    close(state.latent.log_likelihood, dense.log_likelihood)
    for grown, other in zip(state.latent.parts.values(), fresh.parts.values(), strict=True):
        close(grown, other)
    found = moments(state, QUERIES)
    kernels = gram(PRIOR, state.particles, torch.cat([X, QUERIES]), FEW)
    own = kernels.diagonal(dim1=-2, dim2=-1)[:, 24:] + state.particles.nuggets(PRIOR).unsqueeze(-1)
    signs = state.contrasts.of_classes(n_classes) / 2**0.5 if n_classes > 2 else 2.0 * state.contrasts.own[:, None] - 1
    for q in range(len(QUERIES)):
        cross = kernels[:, state.contrasts.row, 24 + q].unsqueeze(-1) * signs
        mean, solved = dense.predicted(cross)
        prior = own[:, q, None, None] * torch.eye(signs.shape[1], dtype=F64) * (1 if n_classes == 2 else 0.5)
        close(found[0][..., q], mean)
        close(found[1][:, q], prior - solved.mT @ solved)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_copies_of_a_row_are_left_out_with_it(n_classes: int) -> None:
    x, y = X.clone(), torch.arange(len(X)) % n_classes
    x[[6, 12, 3]] = x[[0, 0, 2]]  # the last is no copy, but contradicts row 2
    found = []
    for inducing in (None, x):
        state = SmcState.start(PRIOR, 6, n_classes, generator := seeded(5), inducing=inducing)
        state, _ = extended(state, x, y, n_classes, generator)
        out = left_out(state)
        found.append((differences(*out[:2]), distances_left_out(state)))
    for one, other in zip(*(part[0] for part in found), strict=True):
        close(one, other)
    close(found[0][1], found[1][1])
    assert len(found[0][1]) == 22
    for row, leave in ((0, [0, 6, 12]), (2, [2]), (5, [5])):
        fewer = without(state, ~torch.isin(torch.arange(24), torch.tensor(leave)))
        place = int((out.copies.first == row).nonzero())
        close(out.weights[:, place], fewer.log_weights.exp())


@pytest.mark.parametrize("n_classes", [2, 3])
def test_rows_left_out_and_taken_away_are_never_seen(n_classes: int) -> None:
    state = conditioned(n_classes, False, FEW)
    out = left_out(state)
    for row in (0, 13):
        rows = torch.arange(24) != row
        fewer = without(state, rows)
        keep = state.contrasts.row != row
        never = Collapsed.of(state.latent.variables["omega"][:, keep], fewer_covariance(fewer))
        close(fewer.latent.log_likelihood, never.log_likelihood)
        mean, covariance = moments(fewer, X[[row]])
        for one, other in zip(
            differences(out.mean[..., [row]], out.covariance[:, [row]]), differences(mean, covariance), strict=True
        ):
            close(one, other)
        if n_classes == 2:
            sign = 2.0 * state.y[row] - 1
            increments = -log_expected_sigmoid(sign * mean[:, 0, 0], covariance[:, 0, 0, 0])
            expected = (state.log_weights + increments).logsumexp(0)
            assert fewer.log_evidence - state.log_evidence == pytest.approx(float(expected), abs=1e-8)


def fewer_covariance(state: SmcState) -> Tensor:
    kernels = gram(state.prior, state.particles, state.x, FEW)
    return state.contrasts.covariance(state.contrasts, kernels, state.particles.nuggets(state.prior))


@pytest.mark.parametrize("inducing", [X, FEW], ids=["all rows", "few"])
def test_removal_has_the_weights_of_collapsed_latents(inducing: Tensor) -> None:
    state = conditioned(4, False, inducing)
    rows = torch.arange(24) % 5 != 0
    classes = torch.tensor([True, False, True, True])
    for keep, of_classes in ((rows, None), (state.y != 1, classes)):
        fewer = without(state, keep, of_classes)
        dense, kernels = collapsed(state, inducing), gram(PRIOR, state.particles, X, inducing)
        old, nuggets = state.contrasts, state.particles.nuggets(PRIOR)
        kept = keep[old.row] & (classes[old.own] & classes[old.other] if of_classes is not None else True)
        covariance = old.covariance(old, kernels, nuggets)
        left, log_weights = dense.without(kept, covariance, covariance[:, kept][:, :, kept])
        close(fewer.latent.log_likelihood, left.log_likelihood)
        total = float((state.log_weights + log_weights).logsumexp(0))
        assert fewer.log_evidence - state.log_evidence == pytest.approx(total, abs=1e-8)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_latents_are_drawn_from_their_posterior(n_classes: int) -> None:
    """Given the variables: means and covariances of many draws."""
    m, n = 6000, 3
    x, y = X[:n], torch.arange(n) % n_classes
    contrasts = Contrasts.of_labels(y, n_classes)
    one = Particles.drawn(KernelPrior(Grammar(mean_variance=1), 2), 1, seeded(4))
    omega = 0.05 + 0.3 * torch.rand(1, len(contrasts), generator=seeded(5), dtype=F64)
    state = SmcState.start(KernelPrior(Grammar(mean_variance=1), 2), m, n_classes, seeded(0), inducing=FEW[:2])
    state = replace(state, x=x, y=y, contrasts=contrasts, particles=one)
    features = state.data.covariance(one)
    features = features._replace(phi=features.phi.expand(m, -1, -1), own=features.own.expand(m, -1))  # type: ignore[union-attr]
    latent = state.latent.restored({"omega": omega.expand(m, -1)}).given(range(m), features)
    psi = latent.drawn(features, seeded(6))
    kernels = gram(state.prior, one, x, FEW[:2])[0]
    prior = contrasts.covariance(contrasts, kernels, one.nuggets(state.prior)[0])
    spread = torch.linalg.inv(torch.linalg.inv(prior) + torch.diag(omega[0]))
    scores = (psi.mean(0) - spread @ torch.full((len(contrasts),), 0.5, dtype=F64)) / (psi.std(0) / m**0.5)
    assert float(scores.abs().max()) < 4
    scale = spread.diagonal().sqrt()
    assert float(((psi.mT.cov() - spread) / scale / scale.unsqueeze(-1)).abs().max()) < 5 / m**0.5 * 2**0.5


@cache
def reference(whole: bool) -> tuple[float, float]:
    """The log evidence of a toy by importance sampling of kernels from the prior, and its standard error."""
    toy = TOYS["threshold"]
    inducing = toy.x if whole else TWO
    particles, contrasts = Particles.drawn(toy.prior, 3000, seeded(0)), Contrasts.of_labels(toy.y, toy.n_classes)
    kernels = gram(toy.prior, particles, toy.x, inducing)
    covariance = contrasts.covariance(contrasts, kernels, particles.nuggets(toy.prior))
    return mean_and_error(log_evidences(covariance, 40, seeded(1)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "exchanged"),
    [([1, 6, 13], False), ([6, 14], True)],
    ids=["a stream", "other inputs on the way"],
)
def test_the_evidence_is_that_of_kernels_seen_through_them(sizes: list[int], exchanged: bool) -> None:
    toy, inducing, other = TOYS["threshold"], TWO, torch.tensor([[1.0]], dtype=F64)
    exact, error = reference(False)
    found = []
    for seed in range(6):
        generator, n = seeded(seed), 0
        state = SmcState.start(toy.prior, 32, 2, generator, inducing=other if exchanged else inducing)
        for size in sizes:
            if exchanged and n:
                state, _ = settled(state.seen_through(inducing), generator, SmcSettings())
            state, _ = smc_step(state, toy.x[n : n + size], toy.y[n : n + size], generator, SmcSettings())
            n += size
        found.append(state.log_evidence)
    mean, spread = mean_and_error(torch.tensor(found, dtype=F64))
    assert abs(mean - exact) < 3.5 * math.hypot(spread, error)
    whole, _ = reference(True)
    assert abs(whole - exact) > 0.2, "it must be another model than that of the kernels seen whole"


def test_other_inputs_change_weights_by_likelihoods_only() -> None:
    state = conditioned(3, False, FEW)
    through = state.seen_through(QUERIES)
    dense = [collapsed(state, inducing).log_likelihood for inducing in (FEW, QUERIES)]
    expected = state.log_weights + dense[1] - dense[0]
    close(through.log_weights, expected - expected.logsumexp(0))
    assert through.log_evidence - state.log_evidence == pytest.approx(float(expected.logsumexp(0)), abs=1e-8)
    same = conditioned(2, False, X).seen_through(torch.cat([FEW, X]))
    assert same.log_evidence == pytest.approx(conditioned(2, False, None).log_evidence, abs=1e-8)


def test_a_batch_that_is_cut_has_the_latents_of_its_rows() -> None:
    state = SmcState.start(PRIOR, 6, 2, seeded(0), inducing=FEW)
    cut, taken = extended(state, X, torch.arange(24) % 2, 2, seeded(1), enough=5.0)
    assert 0 < taken < 24
    close(cut.latent.log_likelihood, collapsed(cut, FEW).log_likelihood)


def test_kernels_that_overflow_die() -> None:
    state = SmcState.start(PRIOR, 4, 2, seeded(0), inducing=FEW)
    state.particles.z[1][1:] = 800.0
    found, _ = extended(state, X, torch.arange(24) % 2, 2, seeded(1))
    assert found.log_weights[1] == -math.inf
    assert bool(found.log_weights[[0, 2, 3]].isfinite().all())
    moved, _ = smc_step(state, X, torch.arange(24) % 2, seeded(1), SmcSettings())
    assert bool(moved.latent.log_likelihood.isfinite().all())


def test_only_of_collapsed_latents() -> None:
    with pytest.raises(ValueError, match="inducing inputs need collapsed latents, got 'whitened'"):
        SmcState.start(PRIOR, 2, 2, seeded(0), representation="whitened", inducing=FEW)

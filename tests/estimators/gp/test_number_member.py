"""Members of a regression against dense brute force."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from sureshot.approximations.base import Finite
from sureshot.approximations.by_name import BY_NAME, Parts
from sureshot.approximations.inducing import Inducing
from sureshot.approximations.random_features import FeatureMap
from sureshot.estimators.gp.model import LEAST_SQUARES
from sureshot.estimators.gp.number_member import GlobalNumberMember, LocalNumberMember
from sureshot.estimators.gp.plan import Locality, Plan
from sureshot.estimators.gp.tuning.local_learning import local_kernel
from sureshot.estimators.numbers.support import NumberSupport
from sureshot.estimators.numbers.target_scale import TargetScale
from sureshot.estimators.rows.labelled_rows import LabelledRows, sample_of
from sureshot.estimators.rows.preprocessing import Scaling
from sureshot.kernels import Expression, Scale

RNG = np.random.default_rng(0)
N, D = 25, 3
X, WEIGHT = RNG.normal(size=(N, D)), RNG.integers(1, 4, size=N).astype(float)
Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] ** 2]) + 0.1 * RNG.normal(size=(N, 2))
ROWS = LabelledRows(X, Y, WEIGHT)
TARGET = TargetScale.of(Y, WEIGHT)
SCALED = TARGET(Y)
AS_THEY_ARE = Scaling(np.arange(D), np.zeros(D), np.ones(D))
CPU = torch.device("cpu")
OUTPUT_SCALE, NOISE, LENGTHSCALE, FACTOR = 1.7, 0.05, 1.3, 1.2
KERNEL = Scale(
    torch.tensor(OUTPUT_SCALE, dtype=torch.float64),
    local_kernel("matern32", torch.tensor([LENGTHSCALE], dtype=torch.float64)),
)
PLAN = Plan(AS_THEY_ARE, KERNEL, replace(LEAST_SQUARES, noise=NOISE), "plug_in", FACTOR, math.nan)
SUPPORT = NumberSupport.scaled(ROWS, TARGET, AS_THEY_ARE, CPU)
QUERIES = RNG.normal(size=(6, D))


def matern(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    distance = np.sqrt(3) * np.linalg.norm(a[:, None] - b[None], axis=-1) / LENGTHSCALE
    return (1 + distance) * np.exp(-distance)


def dense(
    keep: np.ndarray,
    queries: np.ndarray,
    scale: float,
    noise: float,
    weight: np.ndarray = WEIGHT,  # by which the prior mean is that of all
) -> tuple[np.ndarray, np.ndarray]:
    """Means (Q, 2) and latent variances (Q,) given some of the rows."""
    mean = np.average(SCALED, axis=0, weights=weight)
    gram = scale * matern(X[keep], X[keep]) + np.diag(noise / weight[keep])
    cross = scale * matern(queries, X[keep])
    solved = np.linalg.solve(gram, cross.T)
    return mean + solved.T @ (SCALED[keep] - mean), scale - (cross.T * solved).sum(0)


@pytest.mark.parametrize("inputs", [SUPPORT.x, SUPPORT.x.clone()], ids=["by one factor", "by features"])
def test_a_global_member_is_the_dense_posterior(inputs: torch.Tensor) -> None:
    member = GlobalNumberMember.of(PLAN, SUPPORT, Inducing(KERNEL, inputs))
    found = member.moments(torch.from_numpy(QUERIES))
    mean, variance = dense(np.arange(N), QUERIES, OUTPUT_SCALE, NOISE)
    np.testing.assert_allclose(found.mean, mean, atol=1e-8)
    np.testing.assert_allclose(found.variance, FACTOR**2 * variance, atol=1e-8)
    np.testing.assert_allclose(found.total, FACTOR**2 * (variance + NOISE), atol=1e-8)
    copies = np.repeat(np.arange(N), WEIGHT.astype(int))
    covariance = OUTPUT_SCALE * matern(X[copies], X[copies]) + NOISE * np.eye(len(copies))
    prior = np.average(SCALED, axis=0, weights=WEIGHT)
    expected = sum(
        stats.multivariate_normal.logpdf(SCALED[copies, k], np.full(len(copies), prior[k]), covariance) for k in (0, 1)
    )
    np.testing.assert_allclose(member.log_evidence, expected, rtol=1e-8)


@pytest.mark.parametrize("inputs", [SUPPORT.x, SUPPORT.x.clone()], ids=["by one factor", "by features"])
def test_rows_are_left_out_with_their_copies(inputs: torch.Tensor) -> None:
    place = torch.tensor([0, 7, 24])
    of_all = GlobalNumberMember.of(PLAN, SUPPORT, Inducing(KERNEL, inputs))
    found = of_all.left_out(SUPPORT, ROWS, place)
    for k, row in enumerate(place.tolist()):
        mean, variance = dense(np.delete(np.arange(N), row), X[[row]], OUTPUT_SCALE, NOISE)
        np.testing.assert_allclose(found.mean[k], mean[0], atol=1e-8)
        np.testing.assert_allclose(found.variance[k], variance[0], atol=1e-8)


@pytest.mark.parametrize("name", ["sor", "fitc", "vfe", "svgp", "random_features", "fastfood"])
def test_approximations_are_the_dense_posterior_of_what_they_stand_for(name: str) -> None:
    """Given all rows, and without one of them, with its copies."""
    kind, points = BY_NAME[name], RNG.normal(size=(8, D))
    kernel: Expression = KERNEL.replace(**{"base_kernel.lengthscale": torch.tensor([LENGTHSCALE], dtype=torch.float64)})
    drawn = issubclass(kind, FeatureMap)
    if issubclass(kind, FeatureMap):
        basis: Finite = kind.drawn(kernel, D, 30, torch.Generator().manual_seed(0))
    else:
        basis = kind(kernel, torch.from_numpy(points))  # type: ignore[call-arg]
    member = GlobalNumberMember.of(PLAN, SUPPORT, basis)
    mean = np.average(SCALED, axis=0, weights=WEIGHT)

    def between(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if drawn:
            return (basis.features(torch.from_numpy(a)) @ basis.features(torch.from_numpy(b)).mT).numpy()
        inner = OUTPUT_SCALE * matern(points, points)
        return OUTPUT_SCALE * matern(a, points) @ np.linalg.solve(inner, matern(points, b) * OUTPUT_SCALE)

    def expected(keep: np.ndarray, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        missed = OUTPUT_SCALE - np.diag(between(X[keep], X[keep]))
        gram = between(X[keep], X[keep]) + np.diag(NOISE / WEIGHT[keep] + (missed if name == "fitc" else 0))
        cross = between(queries, X[keep])
        own = np.diag(between(queries, queries)) if name == "sor" else OUTPUT_SCALE
        solved = np.linalg.solve(gram, cross.T)
        return mean + solved.T @ (SCALED[keep] - mean), own - (cross.T * solved).sum(0)

    found = member.latents(torch.from_numpy(QUERIES))
    for part, other in zip(found[:2], expected(np.arange(N), QUERIES), strict=True):
        np.testing.assert_allclose(part, other, atol=1e-8)
    left = member.left_out(SUPPORT, ROWS, torch.tensor([0, 7, 24]))
    for k, row in enumerate((0, 7, 24)):
        others = expected(np.delete(np.arange(N), row), X[[row]])
        np.testing.assert_allclose(left.mean[k], others[0][0], atol=1e-8)
        np.testing.assert_allclose(left.variance[k], others[1][0], atol=1e-8)


def test_rows_that_have_been_learnt_from_look_as_far_off_as_new_ones() -> None:
    """Left-out errors of a member that evidence has learnt are as large as its deviations, which new rows have made."""
    basis = BY_NAME["vfe"](KERNEL, SUPPORT.x[:8])  # type: ignore[call-arg]
    factor = 1.7
    plan = replace(PLAN, temperature=factor, parts=Parts.of("vfe", basis, learnt=True))
    of_all, place = GlobalNumberMember.of(plan, SUPPORT, basis), torch.arange(N)
    plain = replace(of_all, plan=PLAN).left_out(SUPPORT, ROWS, place)
    found = of_all.left_out(SUPPORT, ROWS, place)
    np.testing.assert_array_equal(found.total, plain.total)
    numbers = SUPPORT.targets[0].mT
    ratio = (numbers - found.mean) / (numbers - plain.mean)
    np.testing.assert_allclose(ratio, float(ratio[0, 0]), rtol=1e-8)
    squared = ((numbers - found.mean).square() / (factor**2 * found.total[:, None])).mean()
    np.testing.assert_allclose(float(squared), 1, atol=0.05)


def test_a_local_member_with_all_rows_near_is_the_dense_posterior() -> None:
    gain = 0.8
    kernel = KERNEL.replace(outputscale=torch.ones((), dtype=torch.float64))
    plan = replace(PLAN, kernel=kernel, local=Locality(N, gain))
    member = LocalNumberMember.of(plan, SUPPORT, ROWS)
    found = member.latents(torch.from_numpy(QUERIES))
    mean, variance = dense(np.arange(N), QUERIES, 1.0, NOISE)
    np.testing.assert_allclose(found.mean, mean, atol=1e-5)  # neighbours are kept in single precision
    np.testing.assert_allclose(found.total, gain * (variance + NOISE), atol=1e-5)
    left = member.left_out(SUPPORT, ROWS, torch.tensor([3]))
    mean, variance = dense(np.delete(np.arange(N), 3), X[[3]], 1.0, NOISE)
    np.testing.assert_allclose(left.mean, mean, atol=1e-5)
    np.testing.assert_allclose(left.variance, gain * variance, atol=1e-5)


def test_a_row_pulls_by_what_is_missing_without_it() -> None:
    member = GlobalNumberMember.of(PLAN, SUPPORT, Inducing(KERNEL, SUPPORT.x))
    place, share = torch.tensor([0, 7, 24]), torch.tensor([1.0, 0.5, 1.0], dtype=torch.float64)
    found = member.pulls(SUPPORT, ROWS, torch.from_numpy(QUERIES), place, share)
    whole, _ = dense(np.arange(N), QUERIES, OUTPUT_SCALE, NOISE)
    for entry, (row, part) in enumerate(zip(place.tolist(), share.tolist(), strict=True)):
        left = WEIGHT.copy()
        left[row] *= 1 - part
        without, _ = dense(np.flatnonzero(left), QUERIES, OUTPUT_SCALE, NOISE, left)
        np.testing.assert_allclose(found[:, entry], whole - without, atol=1e-8)


def test_of_a_local_member_the_prior_mean_stays() -> None:
    kernel = KERNEL.replace(outputscale=torch.ones((), dtype=torch.float64))
    member = LocalNumberMember.of(replace(PLAN, kernel=kernel, local=Locality(N, 0.8)), SUPPORT, ROWS)
    place, share = torch.tensor([3]), torch.ones(1, dtype=torch.float64)
    found = member.pulls(SUPPORT, ROWS, torch.from_numpy(QUERIES), place, share)
    expected = (dense(np.delete(np.arange(N), rows), QUERIES, 1.0, NOISE)[0] for rows in ([], [3]))
    whole, without = expected
    np.testing.assert_allclose(found[:, 0], whole - without, atol=1e-5)


@pytest.mark.parametrize("inputs", [SUPPORT.x, SUPPORT.x[:9].clone()], ids=["all rows", "inducing inputs"])
def test_covariances_are_those_of_the_dense_posterior(inputs: torch.Tensor) -> None:
    member = GlobalNumberMember.of(PLAN, SUPPORT, Inducing(KERNEL, inputs))
    z, both = inputs.numpy(), np.concatenate([X, QUERIES])
    inverse = np.linalg.inv(OUTPUT_SCALE * matern(z, z))
    through = (OUTPUT_SCALE * matern(both, z)) @ inverse @ (OUTPUT_SCALE * matern(z, both))
    gram, cross = through[:N, :N] + np.diag(NOISE / WEIGHT), through[:N, N:]
    expected = OUTPUT_SCALE * matern(QUERIES, QUERIES) - cross.T @ np.linalg.solve(gram, cross)
    found = member.covariance(torch.from_numpy(QUERIES))
    np.testing.assert_allclose(found, FACTOR**2 * expected, atol=1e-8)
    np.testing.assert_allclose(found.diagonal(), member.moments(torch.from_numpy(QUERIES)).variance, atol=1e-8)


def test_rows_that_a_member_does_not_see_are_queries_like_others() -> None:
    plan = replace(PLAN, share=0.5)
    seen = ROWS.lots < 0.5
    support = NumberSupport.scaled(sample_of(ROWS, 0.5), TARGET, AS_THEY_ARE, CPU)
    assert 3 < seen.sum() < N - 3
    for inputs in (support.x, support.x.clone()):
        member = GlobalNumberMember.of(plan, support, Inducing(KERNEL, inputs))
        found = member.left_out(support, ROWS, torch.arange(N))
        for row in range(N):
            keep = np.setdiff1d(np.flatnonzero(seen), [row])
            gram = OUTPUT_SCALE * matern(X[keep], X[keep]) + np.diag(NOISE / WEIGHT[keep])
            cross = OUTPUT_SCALE * matern(X[[row]], X[keep])
            mean = np.average(SCALED[seen], axis=0, weights=WEIGHT[seen])
            expected = mean + cross @ np.linalg.solve(gram, SCALED[keep] - mean)
            np.testing.assert_allclose(found.mean[row], expected[0], atol=1e-8)
            spread = OUTPUT_SCALE - (cross @ np.linalg.solve(gram, cross.T))[0, 0]
            np.testing.assert_allclose(found.variance[row], spread, atol=1e-8)

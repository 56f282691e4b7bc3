"""Members of a regression against dense brute force."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from sureshot.approximations.inducing import Inducing
from sureshot.estimators.gp.model import LEAST_SQUARES
from sureshot.estimators.gp.number_member import GlobalNumberMember, LocalNumberMember
from sureshot.estimators.gp.plan import Locality, Plan
from sureshot.estimators.gp.tuning.local_learning import local_kernel
from sureshot.estimators.numbers.support import NumberSupport
from sureshot.estimators.numbers.target_scale import TargetScale
from sureshot.estimators.rows.labelled_rows import LabelledRows
from sureshot.estimators.rows.preprocessing import Scaling
from sureshot.kernels import Scale

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

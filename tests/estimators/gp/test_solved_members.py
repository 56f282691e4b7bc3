"""`GPRegressor` by products of kernel matrices: members against dense matrices, and fitted models."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from sureshot import GPRegressor
from sureshot.estimators.gp.model import LEAST_SQUARES
from sureshot.estimators.gp.plan import Plan
from sureshot.estimators.gp.solved_member import PRODUCTS, SolvedNumberMember
from sureshot.estimators.numbers.support import NumberSupport
from sureshot.estimators.numbers.target_scale import TargetScale
from sureshot.estimators.rows.labelled_rows import LabelledRows
from sureshot.estimators.rows.preprocessing import Scaling
from sureshot.kernels import RBF, Linear, Scale

RNG = np.random.default_rng(0)
SCALE, NOISE, FACTOR = 1.5, 0.05, 1.1
GRID = np.stack(np.meshgrid(0.25 * np.arange(12), 0.5 * np.arange(10), indexing="ij"), -1).reshape(-1, 2)
ROWS = {
    "iterative": RNG.normal(size=(60, 3)).astype(np.float32).astype(float),  # neighbours are kept in single precision
    "toeplitz": (0.125 * np.flatnonzero(RNG.random(80) < 0.8))[:, None],
    "kronecker": GRID,
    "kiss": RNG.normal(size=(60, 1)).astype(np.float32).astype(float),
}


def rbf(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    found: np.ndarray = SCALE * np.exp(-0.5 * ((a[:, None] - b[None]) ** 2).sum(-1))
    return found


def member_of(
    name: str, x: np.ndarray, weight: np.ndarray, n_neighbours: int = 256
) -> tuple[SolvedNumberMember, NumberSupport, LabelledRows, np.ndarray]:
    y = np.column_stack([np.sin(2 * x[:, 0]), x.sum(1)]) + 0.2 * np.random.default_rng(1).normal(size=(len(x), 2))
    rows, target = LabelledRows(x, y, weight), TargetScale.of(y, weight)
    scaling = Scaling(np.arange(x.shape[1]), np.zeros(x.shape[1]), np.ones(x.shape[1]))
    kernel = Scale(torch.tensor(SCALE, dtype=torch.float64), RBF(1.0))
    plan = Plan(scaling, kernel, replace(LEAST_SQUARES, noise=NOISE), "plug_in", FACTOR, math.nan)
    support = NumberSupport.scaled(rows, target, scaling, torch.device("cpu"))
    return SolvedNumberMember.found(plan, support, rows, name, n_neighbours, 0), support, rows, target(y)


@pytest.mark.parametrize("name", sorted(PRODUCTS))
def test_a_member_is_the_dense_posterior(name: str) -> None:
    x = ROWS[name]
    weight = np.ones(len(x)) if name == "kronecker" else RNG.integers(1, 4, size=len(x)).astype(float)
    member, support, rows, scaled = member_of(name, x, weight)
    exact = {"kiss": 2e-2}.get(name, 1e-8)  # the kernel itself is interpolated
    queries = x[:7] + 0.125
    prior = np.average(scaled, axis=0, weights=weight)
    noisy = rbf(x, x) + np.diag(NOISE / weight)
    cross = rbf(queries, x)
    found = member.moments(torch.from_numpy(queries))
    np.testing.assert_allclose(found.mean, prior + cross @ np.linalg.solve(noisy, scaled - prior), atol=exact)
    variance = SCALE - (cross.T * np.linalg.solve(noisy, cross.T)).sum(0)
    np.testing.assert_allclose(found.variance, FACTOR**2 * variance, atol=1e-8)
    np.testing.assert_allclose(found.noise, FACTOR**2 * NOISE, atol=1e-12)

    copies = np.repeat(np.arange(len(x)), weight.astype(int))
    covariance = rbf(x[copies], x[copies]) + NOISE * np.eye(len(copies))
    density = [stats.multivariate_normal(np.full(len(copies), prior[k]), covariance) for k in (0, 1)]
    evidence = sum(one.logpdf(scaled[copies, k]) for k, one in enumerate(density))
    np.testing.assert_allclose(member.log_evidence, evidence, rtol={"kiss": 1e-3}.get(name, 1e-8))

    place = torch.tensor([0, 5, len(x) - 1])
    without = member.left_out(support, rows, place)
    for k, row in enumerate(place.tolist()):
        keep = np.delete(np.arange(len(x)), row)
        across = rbf(x[[row]], x[keep])
        solved = np.linalg.solve(noisy[np.ix_(keep, keep)], np.column_stack([scaled[keep] - prior, across[0]]))
        np.testing.assert_allclose(without.mean[k], prior + across[0] @ solved[:, :2], atol=exact)
        np.testing.assert_allclose(without.variance[k], SCALE - across[0] @ solved[:, 2], atol=1e-8)


def test_variances_by_near_rows_are_never_less_and_near_means_of_left_out_rows() -> None:
    x = np.random.default_rng(3).uniform(-4, 4, size=(1000, 2))
    member, support, rows, scaled = member_of("iterative", x, np.ones(len(x)), n_neighbours=64)
    inverse = np.linalg.inv(rbf(x, x) + NOISE * np.eye(len(x)))
    prior, exact = scaled.mean(0), 1 / inverse.diagonal()
    found, near = (one.left_out(support, rows, torch.arange(len(x))) for one in (member, member.nearby))
    total = found.total.numpy()
    assert (total > exact - 1e-6).all()
    assert np.mean(total / exact) < 1.02
    expected = scaled - (inverse @ (scaled - prior)) * exact[:, None]
    error, of_near = ((one.mean.numpy() - expected) / exact[:, None] ** 0.5 for one in (found, near))
    assert np.sqrt(np.mean(error**2)) < 0.03
    assert np.abs(error).max() < 0.2
    assert np.sqrt(np.mean(error**2)) < 0.3 * np.sqrt(np.mean(of_near**2))  # than by the near rows alone


def function(x: np.ndarray) -> np.ndarray:
    found: np.ndarray = 100 + 10 * np.sin(2 * x).sum(1)
    return found


def regressor(approximation: str) -> GPRegressor:
    """That learns in less time."""
    return GPRegressor(approximation=approximation, n_neighbours=20)


def fitted_rows(name: str, n: int) -> np.ndarray:
    rng = np.random.default_rng(2)
    if name == "toeplitz":
        return (np.flatnonzero(rng.random(round(1.2 * n)) < 1 / 1.2) * (12 / n))[:, None]
    if name == "kronecker":
        side = round(n**0.5)
        columns = np.meshgrid(np.linspace(-2, 2, side), np.sort(rng.normal(size=side)), indexing="ij")
        return np.stack(columns, -1).reshape(-1, 2)[rng.random(side**2) < 0.95]
    return rng.uniform(-2, 2, size=(n, 2))


@pytest.fixture(scope="module", params=sorted(PRODUCTS))
def fitted(request: pytest.FixtureRequest) -> tuple[str, np.ndarray, np.ndarray, GPRegressor]:
    x = fitted_rows(request.param, 300)
    y = function(x) + 2 * np.random.default_rng(4).normal(size=len(x))
    return request.param, x, y, regressor(request.param).fit(x, y)


def test_it_finds_function_and_noise(fitted: tuple[str, np.ndarray, np.ndarray, GPRegressor]) -> None:
    _, x, _, model = fitted
    queries = x[::5] + 0.02
    mean, deviation = model.predict(queries, return_std=True)
    assert np.sqrt(np.mean((mean - function(queries)) ** 2)) < 1.2
    assert 1.6 < deviation.mean() < 2.6
    noisy = function(queries) + 2 * np.random.default_rng(5).normal(size=len(queries))
    assert abs(model.log_density(queries, noisy).mean() - model.leave_one_out_score_) < 0.4
    assert model.predict_interval(queries, 0.9).contain(noisy).mean() > 0.75
    assert math.isfinite(model.log_evidence_)


def test_a_file_gives_back_the_same_bits(
    fitted: tuple[str, np.ndarray, np.ndarray, GPRegressor], tmp_path: Path
) -> None:
    _, x, _, model = fitted
    model.save(tmp_path / "model")
    loaded = GPRegressor.load(tmp_path / "model")
    for one, other in zip(loaded.predict(x + 0.1, True), model.predict(x + 0.1, True), strict=True):
        np.testing.assert_array_equal(one, other)
    assert loaded.leave_one_out_score_ == model.leave_one_out_score_
    assert loaded.log_evidence_ == model.log_evidence_


def test_rows_that_come_and_go_leave_the_posterior_of_those_that_stay(
    fitted: tuple[str, np.ndarray, np.ndarray, GPRegressor],
) -> None:
    name, x, y, _ = fitted
    ids = np.arange(len(x))
    model = regressor(name).fit(x[:-20], y[:-20], row_id=ids[:-20])
    before = model.predict(x, True)
    model.partial_fit(x[-20:], y[-20:], row_id=ids[-20:])
    assert not np.allclose(model.predict(x), before[0])
    model.forget(ids[-20:])
    for one, other in zip(model.predict(x, True), before, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_targets_and_weights() -> None:
    x = fitted_rows("iterative", 120)
    y, weight = function(x) + np.random.default_rng(4).normal(size=len(x)), np.arange(len(x)) % 3
    both = regressor("iterative").fit(x, np.column_stack([y, -2 * y]))
    mean, deviation = both.predict(x, return_std=True)
    np.testing.assert_allclose(mean[:, 1], -2 * mean[:, 0], rtol=1e-6)
    np.testing.assert_allclose(deviation[:, 1], 2 * deviation[:, 0], rtol=1e-6)
    weighted = regressor("iterative").fit(x, y, sample_weight=weight)
    copied = regressor("iterative").fit(np.repeat(x, weight, 0), np.repeat(y, weight))
    np.testing.assert_allclose(copied.predict(x), weighted.predict(x), rtol=1e-6)


def test_many_rows_are_solved_by_conjugate_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sureshot.approximations.tiles.FACTORED", 100)
    x = fitted_rows("iterative", 400)
    y = function(x) + 2 * np.random.default_rng(4).normal(size=len(x))
    found = GPRegressor(RBF(0.6), approximation="iterative", standardize=False).fit(x, y)
    monkeypatch.setattr("sureshot.approximations.tiles.FACTORED", 1500)
    exact = GPRegressor(RBF(0.6), approximation="iterative", standardize=False).fit(x, y)
    np.testing.assert_allclose(found.predict(x), exact.predict(x), rtol=1e-6)
    assert abs(found.log_evidence_ - exact.log_evidence_) < 0.1 * abs(exact.log_evidence_)
    monkeypatch.setattr("sureshot.approximations.tiles.FACTORED", 100)
    more = found.partial_fit(x[:5] + 0.1, y[:5])._fitted.members[0]
    assert isinstance(more, SolvedNumberMember)
    known = more.dual_of(LabelledRows(x[:3], y[:3, None], np.ones(3)))
    assert bool((known != 0).all())
    assert bool((more.dual_of(LabelledRows(x[:3], y[:3, None] + 1, np.ones(3))) == 0).all())


def test_a_kernel_of_ones_own_keeps_its_length_scale() -> None:
    x = fitted_rows("kiss", 200)
    y = function(x) + 2 * np.random.default_rng(4).normal(size=len(x))
    for approximation in ("iterative", "kiss"):
        model = GPRegressor(RBF(0.6), approximation=approximation, standardize=False).fit(x, y)
        assert isinstance(model.kernel_, Scale)
        assert model.kernel_.base_kernel == RBF(0.6)
        assert np.sqrt(np.mean((model.predict(x) - function(x)) ** 2)) < 1.2
    as_given = GPRegressor("rbf", approximation="iterative", objective=None).fit(x, y)
    assert as_given.kernel_.parameters["outputscale"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"approximation": "toeplitz"}, "evenly spaced values of every column"),
        ({"approximation": "kronecker"}, "needs rows of a grid, and 30 rows are few"),
        ({"approximation": "kiss", "kernel": "matern32"}, "is none: use one of these"),
        ({"approximation": "iterative", "kernel": "linear"}, "needs a kernel of distances, one of 'rbf'"),
        ({"approximation": "iterative", "kernel": Linear()}, r"needs a kernel of distances.*got Linear\(1\)"),
        (
            {"approximation": "iterative", "time": "arrival"},
            "goes with approximation 'auto' or 'nearest_neighbours'; got 'iterative'",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(arguments: dict[str, Any], message: str) -> None:
    x = np.random.default_rng(0).normal(size=(30, 2))
    with pytest.raises(ValueError, match=message):
        GPRegressor(**arguments).fit(x, x[:, 0])

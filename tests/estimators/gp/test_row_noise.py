"""Noise that depends on the row, where it is known how."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

import sureshot
from sureshot import GPRegressor
from sureshot.estimators.gp.row_noise import RowNoise

N = 500


def drawn(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, numbers, and the standard deviations of their noise."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, size=(n, 2))
    deviation = np.where(x[:, 0] > 0, 0.4, 0.05)
    return x, np.sin(2 * x[:, 1]) + deviation * rng.normal(size=n), deviation


X, Y, _ = drawn(N, 0)
QUERIES, TRUE, NOISE = drawn(2000, 1)


@pytest.fixture(scope="module")
def model() -> GPRegressor:
    return GPRegressor().fit(X, Y, row_id=np.arange(N))


def test_deviations_follow_the_noise(model: GPRegressor) -> None:
    clear = np.abs(QUERIES[:, 0]) > 0.2
    deviation = model.predict(QUERIES, return_std=True)[1]
    ratio = (deviation / NOISE)[clear]
    assert 0.8 < np.median(ratio[NOISE[clear] > 0.1]) < 1.25
    assert 0.8 < np.median(ratio[NOISE[clear] < 0.1]) < 1.6
    plain = GPRegressor(noise="gaussian").fit(X, Y)
    assert model.log_density(QUERIES, TRUE).mean() > plain.log_density(QUERIES, TRUE).mean() + 0.3
    assert abs(model.leave_one_out_score_ - model.log_density(QUERIES, TRUE).mean()) < 0.15
    inside = model.predict_interval(QUERIES).contain(TRUE)
    assert 0.85 < inside[NOISE > 0.1].mean() < 0.95
    assert 0.83 < inside[NOISE < 0.1].mean() < 0.97


def test_one_width_where_noise_is_the_same() -> None:
    rng = np.random.default_rng(0)
    y = np.sin(2 * X[:, 1]) + 0.2 * rng.normal(size=N)
    assert GPRegressor().fit(X, y)._fitted.widths is None


def test_a_row_that_is_left_out_says_nothing_of_its_own_noise(model: GPRegressor) -> None:
    fitted = model._fitted
    noise, squared = fitted.predictor.row_noise, fitted.squared_errors.copy()
    place = np.array([4, 90])
    squared[4] = 1e6
    other = RowNoise.of(noise.widths, fitted.rows, squared)
    own, moved = (one.factors_without(fitted.rows, place)[0] for one in (noise, other))
    np.testing.assert_allclose(moved, own, rtol=0.02)  # but for the mean of all
    there = torch.from_numpy(fitted.rows.x[[4]])
    assert other.factors(there) > 1.2 * noise.factors(there)


def test_it_is_kept_in_files_and_by_updates(model: GPRegressor, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    loaded = sureshot.load(tmp_path / "model")
    for found, expected in zip(loaded.predict(QUERIES, True), model.predict(QUERIES, True), strict=True):
        np.testing.assert_array_equal(found, expected)
    updated = copy.deepcopy(model).partial_fit(QUERIES[:30], TRUE[:30], row_id=np.arange(N, N + 30))
    assert np.isnan(updated._fitted.squared_errors).sum() == N - np.isfinite(model._fitted.squared_errors).sum() + 30
    np.testing.assert_allclose(updated.predict(QUERIES, True)[1], model.predict(QUERIES, True)[1], rtol=0.1)
    updated.forget(np.arange(N, N + 30))
    for found, expected in zip(updated.predict(QUERIES, True), model.predict(QUERIES, True), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-8)
    fewer = copy.deepcopy(model).forget(np.arange(5))
    assert len(fewer._fitted.squared_errors) == N - 5


def test_each_of_several_targets_has_its_own() -> None:
    rng = np.random.default_rng(3)
    both = GPRegressor().fit(X, np.column_stack([Y, np.cos(X[:, 0]) + 0.1 * rng.normal(size=N)]))
    first, second = both.predict(QUERIES, return_std=True)[1].T
    noisy = QUERIES[:, 0] > 0.2
    assert np.median(first[noisy]) > 2 * np.median(first[QUERIES[:, 0] < -0.2])
    assert np.median(second[noisy]) < 1.5 * np.median(second[QUERIES[:, 0] < -0.2])

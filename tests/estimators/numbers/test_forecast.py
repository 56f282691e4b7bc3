"""A forecast says what the methods say, and from which coverage on intervals contain a number."""

from __future__ import annotations

import numpy as np
import pytest

from sureshot import GPRegressor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
Y = X[:, 0] + 0.3 * RNG.normal(size=60)


@pytest.mark.parametrize("targets", [1, 2])
def test_forecast_is_what_methods_say(targets: int) -> None:
    y = Y if targets == 1 else np.stack([Y, -2 * Y], 1)
    model = GPRegressor(kernel="rbf", objective=None).fit(X[:40], y[:40])
    found = model.forecast(X[40:])
    mean, deviation = model.predict(X[40:], return_std=True)
    np.testing.assert_array_equal(found.mean, mean)
    np.testing.assert_array_equal(found.deviation, deviation)
    np.testing.assert_array_equal(found.quantile([0.2, 0.7]), model.predict_quantile(X[40:], [0.2, 0.7]))
    np.testing.assert_array_equal(found.interval(0.8).lower, model.predict_interval(X[40:], 0.8).lower)
    np.testing.assert_array_equal(found.log_density(y[40:]), model.log_density(X[40:], y[40:]))
    error, level = found.errors(y[40:].reshape(20, -1))
    assert error.shape == level.shape == (20, targets)
    for coverage in (0.31, 0.5, 0.9):
        inside = found.interval(coverage).contain(y[40:]).reshape(20, -1)
        np.testing.assert_array_equal(inside, level < coverage)
    np.testing.assert_array_equal(np.sign(error), np.sign((y[40:] - mean).reshape(20, -1)))


def test_what_all_numbers_are_like() -> None:
    model = GPRegressor(kernel="rbf", objective=None).fit([[0.0], [1.0], [2.0]], [1.0, 2.0, 6.0], [1.0, 2.0, 1.0])
    assert model.n_rows_ == 4
    assert model.usual_.mean[0, 0] == pytest.approx(11 / 4)
    assert model.usual_.deviation[0, 0] == pytest.approx(np.std([1.0, 2.0, 2.0, 6.0]))

"""Which of several fits stays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sureshot import GPRegressor
from sureshot.estimators.gp.number_fitted import GPNumbersFitted
from sureshot.estimators.gp.number_fitting import safest

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, size=(60, 2))
Y = np.sin(2 * X[:, 0]) + 0.2 * RNG.normal(size=60)


def fitted(y: np.ndarray) -> GPNumbersFitted:
    found: GPNumbersFitted = GPRegressor("rbf", noise="gaussian", target_transform="none").fit(X, y)._fitted
    return found


@pytest.fixture(scope="module")
def thin() -> GPNumbersFitted:
    return fitted(Y)


def test_of_fits_that_left_out_rows_cannot_tell_apart_the_one_with_tails_stays(thin: GPNumbersFitted) -> None:
    heavy = replace(thin, degrees=20.0)
    lost = thin.left_out_densities - heavy.left_out_densities
    assert 0 < lost.mean() < 2 * lost.std() / len(lost) ** 0.5
    assert safest([thin, heavy]) is heavy
    assert safest([heavy, thin]) is heavy
    assert safest([thin, replace(thin)]) is thin


def test_tails_do_not_excuse_a_worse_fit(thin: GPNumbersFitted) -> None:
    worse = replace(fitted(RNG.permutation(Y)), degrees=8.0)
    assert safest([thin, worse]) is thin


def test_intervals_are_wider_where_a_left_out_row_had_said_whom_to_trust(thin: GPNumbersFitted, tmp_path: Path) -> None:
    assert thin.farther == 1  # nobody's trust was asked
    rng = np.random.default_rng(3)
    x = rng.uniform(-2, 2, (90, 2))
    y = np.sin(2 * x[:, 0]) * x[:, 1] + 0.02 * rng.standard_t(1.5, size=90)
    model = GPRegressor("rbf", noise="student_t", target_transform="none").fit(x, y)
    farther = model._fitted.farther
    assert 1.02 < farther < 3
    wide = model.predict_interval(x[:5])
    model._fitted = replace(model._fitted, farther=1.0)
    narrow = model.predict_interval(x[:5])
    np.testing.assert_allclose(wide.upper - wide.lower, farther * (narrow.upper - narrow.lower), rtol=1e-9)
    model._fitted = replace(model._fitted, farther=farther)
    model.save(tmp_path / "model")
    assert GPRegressor.load(tmp_path / "model")._fitted.farther == farther
    assert model.partial_fit(x[:1] + 0.5, y[:1])._fitted.farther == farther

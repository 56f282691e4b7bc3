"""From raw columns to kernel inputs, for columns and rows of any finite size."""

from __future__ import annotations

import numpy as np
import pytest

from sureshot.estimators.rows.preprocessing import LARGEST_INPUT, fit_scaling, with_rare_values, within_range

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("size", [1e-300, 1e-8, 1.0, 1e8, 1e200, 1e307])
def test_columns_of_any_size_are_standardised(size: float) -> None:
    x = RNG.normal(size=(50, 2)) * [size, 1.0]
    weight = RNG.random(50)
    scaled = fit_scaling(x, weight, "auto")(x)
    np.testing.assert_allclose(np.average(scaled, axis=0, weights=weight), 0, atol=1e-12)
    np.testing.assert_allclose(np.average(scaled**2, axis=0, weights=weight), 1)


def test_rows_beyond_all_bounds_keep_their_direction_and_stay_numbers() -> None:
    scaling = fit_scaling(RNG.normal(size=(20, 3)) * 1e-3, np.ones(20), True)
    near, far = np.array([[1.0, -2.0, 0.5]]), np.array([[1e300, -2e300, 5e299]])
    assert np.abs(scaling(far)).max() == LARGEST_INPUT
    np.testing.assert_allclose(scaling(far) / LARGEST_INPUT, scaling(near * 1e12) / np.abs(scaling(near * 1e12)).max())
    both = scaling(np.concatenate([near, far]))
    np.testing.assert_array_equal(both[:1], scaling(near))


def test_rows_within_bounds_are_left_alone() -> None:
    x = RNG.normal(size=(4, 2))
    assert within_range(x) is x


def test_columns_of_rare_values_are_divided_by_their_range() -> None:
    x = np.zeros((40, 3))
    x[:, 0] = RNG.normal(size=40)
    x[0, 1], x[:20, 2] = 5.0, 1.0
    weight = np.ones(40)
    plain = fit_scaling(x, weight, "auto")
    scaling = with_rare_values(plain, x, weight)
    np.testing.assert_array_equal(scaling.scale[[0, 2]], plain.scale[[0, 2]])
    constant = np.column_stack([x, np.full(40, 7.0)])
    kept = with_rare_values(fit_scaling(constant, weight, "auto"), constant, weight)
    np.testing.assert_array_equal(kept.kept, np.arange(4))
    assert (kept.mean[3], kept.scale[3]) == (7.0, np.median([np.ptp(x[:, 0]), 5.0, 1.0]))
    assert plain.scale[1] < 1 < scaling.scale[1] == 5
    weight[0] = 100  # the value is then no rare one
    plain = fit_scaling(x, weight, "auto")
    assert with_rare_values(plain, x, weight).scale[1] == 5  # nor is the other
    unit = constant / np.linalg.norm(constant, axis=1, keepdims=True)
    as_they_are = fit_scaling(unit[:20], weight[:20], "auto")
    assert with_rare_values(as_they_are, unit[:20], weight[:20]) is as_they_are

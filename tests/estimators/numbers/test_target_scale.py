"""Scales of numbers: there and back, and their slopes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from sureshot.estimators.numbers.target_scale import TRANSFORMS, TargetScale
from sureshot.estimators.numbers.targets import LARGEST

RNG = np.random.default_rng(0)
POSITIVE = np.column_stack([np.exp(RNG.normal(size=40)), 3 + RNG.gamma(2, size=40)])


@given(arrays(float, st.tuples(st.integers(1, 8), st.integers(1, 3)), elements=st.floats(-LARGEST, LARGEST)))
def test_scaled_numbers_are_finite_and_come_back(y: np.ndarray) -> None:
    scale = TargetScale.of(y, np.arange(1.0, len(y) + 1))
    scale.check_parts()
    found = scale(y)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(scale.back(found), y, rtol=1e-9, atol=1e-9 * np.abs(y).max())


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_there_and_back_with_the_slope_of_differences(transform: str) -> None:
    scale = TargetScale.of(POSITIVE, np.ones(40), transform)
    scale.check_parts()
    z = scale(POSITIVE)
    np.testing.assert_allclose(z.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(z.std(0), 1)
    np.testing.assert_allclose(scale.back(z), POSITIVE, rtol=1e-10)
    step = 1e-6
    slope = (scale(POSITIVE + step) - scale(POSITIVE - step)) / (2 * step)
    np.testing.assert_allclose(scale.log_slope(POSITIVE), np.log(slope), atol=1e-6)


def test_powers_are_those_of_scipy() -> None:
    scale = TargetScale.of(POSITIVE, np.ones(40), "yeo_johnson")
    for k in (0, 1):
        u = (POSITIVE[:, k] - POSITIVE[:, k].mean()) / POSITIVE[:, k].std()
        expected = stats.yeojohnson(u, float(scale.power[k]))
        np.testing.assert_allclose(scale(POSITIVE)[:, k], (expected - expected.mean()) / expected.std(), rtol=1e-9)
        assert abs(stats.skew(expected)) < abs(stats.skew(u)) / 3


def test_means_and_deviations_are_weighted() -> None:
    y, weight = np.array([[1.0, 5.0], [2.0, 5.5], [4.0, -1.0]]), np.array([1.0, 2.0, 3.0])
    scale, copies = TargetScale.of(y, weight), np.repeat(y, [1, 2, 3], axis=0)
    np.testing.assert_allclose(scale.centre, copies.mean(0))
    np.testing.assert_allclose(scale.unit, copies.std(0))


def test_a_constant_target_has_a_scale() -> None:
    scale = TargetScale.of(np.full((3, 1), 7.0), np.ones(3))
    np.testing.assert_array_equal(scale(np.full((3, 1), 7.0)), 0.0)
    assert TargetScale.of(np.array([[-7.0, 0.0]]), np.ones(1)).unit.tolist() == [7.0, 1.0]


def test_numbers_without_a_logarithm_and_wild_ones() -> None:
    scale = TargetScale.of(POSITIVE, np.ones(40), "log")
    assert np.isneginf(scale(np.array([[0.0, -1.0]]))).all()
    for transform in TRANSFORMS:
        one = TargetScale.of(POSITIVE, np.ones(40), transform)
        assert np.isfinite(one.back(np.array([[1e3, -1e3], [50.0, -50.0]]))).all()

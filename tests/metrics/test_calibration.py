"""Bins by hand, temperature scaling against a grid and against the truth."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sureshot.metrics import (
    apply_temperature,
    expected_calibration_error,
    fit_temperature,
    likeliest_temperature,
    negative_log_likelihood,
    reliability_curve,
)


def two_columns(confidence: list[float]) -> np.ndarray:
    """Class 0 with the given probability: right if it is at least one half and the label is 0."""
    first = np.array(confidence)
    return np.column_stack([first, 1.0 - first])


def test_full_confidence_falls_into_the_last_bin() -> None:
    probabilities = two_columns([0.95, 1.0])
    y = [0, 1]  # right, wrong
    assert expected_calibration_error(probabilities, y) == pytest.approx(0.475)
    assert reliability_curve(probabilities, y).count.tolist() == [0] * 14 + [2]


def test_bins_are_open_below_and_closed_above() -> None:
    curve = reliability_curve(two_columns([0.6, 0.6000001, 0.8, 1.0]), [0, 0, 0, 0], n_bins=5)
    assert curve.count.tolist() == [0, 0, 1, 2, 1]
    assert curve.edges.tolist() == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]


@pytest.mark.parametrize("n_bins", [1, 2, 3, 7, 10, 15, 100])
def test_every_edge_belongs_to_the_bin_below(n_bins: int) -> None:
    edges = np.array([k / n_bins for k in range(n_bins + 1) if 2 * k >= n_bins])
    curve = reliability_curve(np.column_stack([edges, 1 - edges]), np.zeros(edges.size, dtype=int), n_bins)
    expected = np.bincount([max(k - 1, 0) for k in range(n_bins + 1) if 2 * k >= n_bins], minlength=n_bins)
    assert curve.count.tolist() == expected.tolist()


def test_hand_computed_errors() -> None:
    # Two bins are filled: 0.55 and 0.60 (both right), 0.9 three times (one right).
    probabilities = two_columns([0.55, 0.6, 0.9, 0.9, 0.9])
    y = [0, 0, 0, 1, 1]
    low_gap, high_gap = 1.0 - 0.575, 0.9 - 1.0 / 3.0
    curve = reliability_curve(probabilities, y, n_bins=10)
    assert curve.count.tolist() == [0, 0, 0, 0, 0, 2, 0, 0, 3, 0]
    assert curve.gap[[5, 8]] == pytest.approx([low_gap, high_gap])
    assert np.isnan(curve.confidence).sum() == np.isnan(curve.accuracy).sum() == 8
    assert expected_calibration_error(probabilities, y, 10) == pytest.approx((2 * low_gap + 3 * high_gap) / 5)
    assert curve.maximum_error() == pytest.approx(high_gap)


def test_minimum_count_leaves_rare_bins_out() -> None:
    probabilities = two_columns([0.99] + [0.75] * 4)
    y = [1, 0, 0, 0, 1]
    curve = reliability_curve(probabilities, y)
    assert curve.maximum_error() == pytest.approx(0.99)
    assert curve.maximum_error(min_count=2) == pytest.approx(0.0)
    assert curve.maximum_error(min_count=9) == 0.0
    with pytest.raises(ValueError, match="min_count"):
        curve.maximum_error(min_count=0)


def test_a_calibrated_predictor_has_a_small_error() -> None:
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.full(4, 0.6), size=40_000)
    y = (rng.random((40_000, 1)) > probabilities.cumsum(axis=1)).sum(axis=1).clip(max=3)
    # Each of 15 bins of about 2700 has a standard error below 0.01.
    assert expected_calibration_error(probabilities, y) < 0.01
    assert expected_calibration_error(np.exp(apply_temperature(np.log(probabilities), 0.5)), y) > 0.05


@pytest.mark.parametrize("n_bins", [0, -3])
def test_refuses_bins(n_bins: int) -> None:
    with pytest.raises(ValueError, match="n_bins"):
        expected_calibration_error([[0.5, 0.5]], [0], n_bins)


def sharpened(temperature: float, n: int = 20_000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits that are ``temperature`` times too large, and labels drawn from the right ones."""
    rng = np.random.default_rng(seed)
    logits = 1.5 * rng.standard_normal((n, 5))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return temperature * logits, labels


@pytest.mark.parametrize("temperature", [0.05, 0.4, 1.0, 3.0, 40.0])
def test_recovers_the_temperature(temperature: float) -> None:
    logits, y = sharpened(temperature)
    # The standard error of log T at n = 20,000 is about 0.009 here; four of them are allowed.
    assert np.log(fit_temperature(logits, y)) == pytest.approx(np.log(temperature), abs=0.036)


def test_is_the_minimum_on_a_grid() -> None:
    logits, y = sharpened(2.0, n=60)
    best = fit_temperature(logits, y)
    loss = negative_log_likelihood(np.exp(apply_temperature(logits, best)), y)
    for temperature in np.geomspace(0.01, 100.0, 301):
        other = negative_log_likelihood(np.exp(apply_temperature(logits, temperature)), y)
        assert loss <= other + 1e-12


def test_shift_invariance_and_scale_equivariance() -> None:
    logits, y = sharpened(1.7, n=300)
    best = fit_temperature(logits, y)
    shift = np.random.default_rng(1).standard_normal((300, 1)) * 100
    assert fit_temperature(logits + shift, y) == pytest.approx(best, rel=1e-8)
    assert fit_temperature(apply_temperature(logits, 1.0), y) == pytest.approx(best, rel=1e-8)
    assert fit_temperature(4.0 * logits, y) == pytest.approx(4.0 * best, rel=1e-8)


def test_weights_are_repeats() -> None:
    logits, y = sharpened(1.7, n=50)
    weight = np.random.default_rng(1).integers(0, 4, size=50)
    repeated = fit_temperature(np.repeat(logits, weight, axis=0), np.repeat(y, weight))
    assert fit_temperature(logits, y, weight) == pytest.approx(repeated, rel=1e-8)


def test_separable_logits_reach_the_lower_bound() -> None:
    logits = np.array([[2.0, 0.0], [0.0, 1.0]])
    assert fit_temperature(logits, [0, 1]) == 0.01
    assert fit_temperature(logits, [0, 1], bounds=(0.2, 5.0)) == 0.2
    assert fit_temperature(logits * 1e9, [0, 1]) == 0.01


def test_misleading_logits_reach_the_upper_bound(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert fit_temperature([[2.0, 0.0], [0.0, 1.0]], [1, 0]) == 100.0
    assert "upper bound" in caplog.text


def test_logits_that_say_nothing_keep_one() -> None:
    assert fit_temperature(np.zeros((4, 3)), [0, 1, 2, 0]) == 1.0
    assert fit_temperature(np.zeros((4, 1)), [0, 0, 0, 0]) == 1.0


def test_zero_probabilities() -> None:
    log_probabilities = np.array([[0.0, -np.inf], [np.log(0.5), np.log(0.5)], [-np.inf, 0.0], [0.0, -np.inf]])
    assert np.isfinite(fit_temperature(log_probabilities, [0, 1, 1, 1]))
    assert np.isfinite(apply_temperature(log_probabilities, 2.0)).all()


@given(st.integers(1, 8), st.integers(1, 5), st.floats(1e-3, 1e3), st.integers(0, 2**32 - 1))
def test_apply_gives_normalised_log_probabilities(n: int, c: int, temperature: float, seed: int) -> None:
    logits = 100 * np.random.default_rng(seed).standard_normal((n, c))
    result = apply_temperature(logits, temperature)
    assert np.exp(result).sum(axis=1) == pytest.approx(np.ones(n), abs=1e-9)
    assert (result.argmax(axis=1) == logits.argmax(axis=1)).all()


def test_refuses_bad_temperature_input() -> None:
    logits = [[0.0, 1.0], [1.0, 0.0]]
    with pytest.raises(ValueError, match="matrix"):
        fit_temperature([0.0, 1.0], [0, 1])
    with pytest.raises(ValueError, match="row 1"):
        fit_temperature([[0.0, 1.0], [np.nan, 0.0]], [0, 1])
    with pytest.raises(ValueError, match="finite maximum"):
        apply_temperature([[-np.inf, -np.inf]], 1.0)
    with pytest.raises(ValueError, match="real numbers"):
        apply_temperature([["a", "b"]], 1.0)
    with pytest.raises(ValueError, match="expected 2 numbers"):
        fit_temperature(logits, [0, 1], [1.0])
    with pytest.raises(ValueError, match="non-negative"):
        fit_temperature(logits, [0, 1], [1.0, -1.0])
    with pytest.raises(ValueError, match="not all zero"):
        fit_temperature(logits, [0, 1], [0.0, 0.0])
    with pytest.raises(ValueError, match="bounds"):
        fit_temperature(logits, [0, 1], bounds=(2.0, 1.0))
    for temperature in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="positive"):
            apply_temperature(logits, temperature)


def test_rows_of_weight_zero_do_not_count() -> None:
    logits = [[1e7, 0], [0, 1e7], [1e7, 0]]
    assert fit_temperature(logits, [0, 1, 1], weight=[1, 1, 0]) == fit_temperature(logits[:2], [0, 1])


def test_the_likeliest_temperature_is_between_what_was_thought_and_what_is_seen() -> None:
    def loss(temperature: float) -> float:
        return 0.5 * ((np.log(temperature) - 2.0) / 0.5) ** 2

    precision, beforehand = 1 / 0.5**2, 1 / 0.6**2
    expected = (precision * 2.0 + beforehand * np.log(3.0)) / (precision + beforehand)
    assert np.log(likeliest_temperature(loss, 3.0, 0.6)) == pytest.approx(expected, abs=1e-4)
    assert likeliest_temperature(loss, 3.0, 0.6, bounds=(0.1, 4.0)) == pytest.approx(4.0, rel=1e-3)

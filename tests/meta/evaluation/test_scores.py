"""Sums over queries against the metrics of the pooled predictions."""

from __future__ import annotations

import numpy as np
import pytest

from sureshot.meta.evaluation.calibration import (
    at_temperature,
    pooled_curve,
    summarise_calibration,
    temperature_of,
)
from sureshot.meta.evaluation.scores import join, score_tasks
from sureshot.metrics import apply_temperature, fit_temperature, reliability_curve, summarise


def random_predictions(
    n_tasks: int = 7, n_queries: int = 30, n_classes: int = 5, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    p = generator.dirichlet(np.full(n_classes, 0.4), size=(n_tasks, n_queries))
    return p, generator.integers(n_classes, size=(n_tasks, n_queries))


def test_pooled_scores_are_those_of_the_metrics() -> None:
    p, y = random_predictions()
    expected = summarise(p.reshape(-1, 5), y.ravel())
    scores = join([score_tasks(p[:3], y[:3]), score_tasks(p[3:], y[3:])])
    found = summarise_calibration(scores)
    assert found.nll.mean == pytest.approx(expected.nll, rel=1e-12)
    assert found.brier.mean == pytest.approx(expected.brier, rel=1e-12)
    assert found.ece.mean == pytest.approx(expected.ece, rel=1e-12)
    assert found.mce.mean == pytest.approx(expected.mce, rel=1e-12)
    assert scores.accuracy.mean() == pytest.approx(expected.accuracy, rel=1e-12)
    curve = reliability_curve(p.reshape(-1, 5), y.ravel())
    np.testing.assert_array_equal(pooled_curve(scores).count, curve.count)
    np.testing.assert_allclose(pooled_curve(scores).confidence, curve.confidence, rtol=1e-12)
    np.testing.assert_allclose(pooled_curve(scores).accuracy, curve.accuracy, rtol=1e-12)


def test_padding_changes_nothing() -> None:
    p, y = random_predictions()
    padded = np.concatenate([p, np.full((7, 4, 5), np.nan)], axis=1)
    padded_y = np.concatenate([y, np.zeros((7, 4), dtype=np.int64)], axis=1)
    mask = np.arange(34) < np.full((7, 1), 30)
    plain, masked = score_tasks(p, y), score_tasks(np.nan_to_num(padded), padded_y, mask)
    for name in ("count", "right", "log_loss", "squared_error", "bin_count", "bin_confidence", "bin_right"):
        np.testing.assert_allclose(getattr(masked, name), getattr(plain, name), rtol=1e-12, atol=1e-12)


def test_bins_are_closed_above() -> None:
    """Confidences .95 (right) and 1 (wrong) share the last bin: accuracy .5 against .975."""
    p = np.array([[[0.95, 0.05], [1.0, 0.0]]])
    found = summarise_calibration(score_tasks(p, np.array([[0, 1]])))
    assert found.ece.mean == pytest.approx(0.475)
    assert found.mce.mean == pytest.approx(0.475)
    assert found.curve.count[-1] == 2


def test_one_task_has_no_standard_error() -> None:
    found = summarise_calibration(score_tasks(*random_predictions(n_tasks=1)))
    assert np.isnan(found.ece.standard_error)
    assert found.as_dict()["nll"]["interval"] is None


def test_predictions_that_are_no_probabilities_are_refused() -> None:
    p, y = random_predictions()
    p[2, 4, 0] = np.nan
    with pytest.raises(ValueError, match="query 4 of task 2"):
        score_tasks(p, y)


def test_standard_errors_have_tasks_as_units() -> None:
    """Every task repeated whole: no new information, and the errors must say so (up to T / (T - 1))."""
    p, y = random_predictions(n_tasks=200, n_queries=10)
    once = summarise_calibration(score_tasks(p, y))
    thrice = summarise_calibration(score_tasks(np.tile(p, (1, 3, 1)), np.tile(y, (1, 3))))
    for name in ("nll", "brier", "ece", "mce"):
        assert getattr(thrice, name).standard_error == pytest.approx(getattr(once, name).standard_error, rel=1e-9)


def test_resampled_error_agrees_with_repeated_experiments() -> None:
    """The error of ECE against its spread over independent sets of tasks; 60 repetitions know that to 9 %."""

    def one(seed: int) -> tuple[float, float]:
        generator = np.random.default_rng(seed)
        confident = generator.uniform(0.55, 0.95, size=(150, 12))
        difficulty = generator.uniform(-0.25, 0.05, size=(150, 1))  # tasks differ: queries of a task go together
        right = generator.random((150, 12)) < confident + difficulty
        p = np.stack([confident, 1 - confident], axis=-1)
        found = summarise_calibration(score_tasks(p, np.where(right, 0, 1)))
        return found.ece.mean, found.ece.standard_error

    values, errors = np.array([one(seed) for seed in range(60)]).T
    assert errors.mean() == pytest.approx(values.std(ddof=1), rel=0.3)


def test_tempering_is_that_of_the_metrics_and_keeps_absent_classes_out() -> None:
    p, y = random_predictions()
    rows = p.reshape(-1, 5)
    assert temperature_of(rows, y.ravel()) == pytest.approx(fit_temperature(np.log(rows), y.ravel()))
    np.testing.assert_allclose(at_temperature(p, 2.0).reshape(-1, 5), np.exp(apply_temperature(np.log(rows), 2.0)))
    lacking = p * np.array([1, 1, 1, 0, 0])
    lacking /= lacking.sum(-1, keepdims=True)
    present = np.tile([True, True, True, False, False], (7, 1))
    found = at_temperature(lacking, 100.0, present)
    assert (found[..., 3:] == 0).all()
    np.testing.assert_allclose(
        found[..., :3], at_temperature(np.ascontiguousarray(lacking[..., :3]), 100.0), rtol=1e-12
    )

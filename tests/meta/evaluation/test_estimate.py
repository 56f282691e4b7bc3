"""Means, their errors and the papers' deviation, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sureshot.meta.evaluation.accuracy import summarise_accuracy
from sureshot.meta.evaluation.estimate import mean_over_queries, mean_over_tasks


def test_mean_over_tasks() -> None:
    found = mean_over_tasks(np.array([0.2, 0.4, 0.6, 0.8]))
    error = math.sqrt((0.09 + 0.01 + 0.01 + 0.09) / 3 / 4)
    assert found.mean == pytest.approx(0.5)
    assert found.standard_error == pytest.approx(error)
    assert found.interval == pytest.approx((0.5 - 1.96 * error, 0.5 + 1.96 * error), rel=1e-4)


def test_mean_over_queries_weighs_tasks_by_their_queries() -> None:
    """Sums 1, 2 of 1 and 4 queries: mean 3/5, residuals 1 - 0.6 and 2 - 2.4, mean count 2.5."""
    found = mean_over_queries(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    assert found.mean == pytest.approx(0.6)
    assert found.standard_error == pytest.approx(math.sqrt(0.32) / (2.5 * math.sqrt(2)))
    values = np.array([0.2, 0.4, 0.9])
    same = mean_over_queries(15 * values, np.full(3, 15.0))
    assert same.standard_error == pytest.approx(mean_over_tasks(values).standard_error)


def test_batches_of_episodes() -> None:
    found = summarise_accuracy(np.array([0.0, 1.0, 0.5, 0.5, 1.0, 1.0]), n_batches=3)
    assert found.batch_means == (0.5, 0.5, 1.0)
    assert found.batch_deviation == pytest.approx(math.sqrt(1 / 12))
    assert found.mean == pytest.approx(2 / 3)
    single = summarise_accuracy(np.array([0.0, 1.0]), n_batches=1)
    assert math.isnan(single.batch_deviation)
    assert single.as_dict()["batch_deviation"] is None

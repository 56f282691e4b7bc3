"""Deep kernels: what the tasks are, how answers are scored, and the page, on few rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import norm

from experiments import deep_kernels
from experiments.deep_kernels import FARTHEST, METHODS, STEPS, Scaled, followed_cars, turned_digits


def test_digits_are_turned_by_what_is_asked() -> None:
    task = turned_digits(20, 10, 0)
    assert task.x.shape == (20, 16, 16)
    assert len(task.new_y) == 10
    assert task.x.min() >= 0
    assert task.x.max() <= 1
    assert abs(task.y).max() <= FARTHEST
    np.testing.assert_array_equal(task.x, turned_digits(20, 10, 0).x)


def test_cars_follow_without_a_crash_and_speed_tells_most_of_what_they_drive() -> None:
    task = followed_cars(300, 100, 0)
    assert task.x.shape == (300, STEPS, 3)
    assert task.x[..., 0].min() > 0  # gaps
    usual = 1.5 * task.x[:, -1, 1]
    assert np.corrcoef(usual, task.y)[0, 1] > 0.95
    assert 0.05 < np.std(task.y - usual) < 2


def test_normals_are_scored_in_units_of_the_numbers() -> None:
    task = turned_digits(20, 10, 0)
    found = Scaled.of(task).answers(np.zeros(10), 0.5, task.new_y)
    known = norm(task.y.mean(), 0.5 * task.y.std())
    np.testing.assert_allclose(found.mean, task.y.mean())
    np.testing.assert_allclose(found.log_density, known.logpdf(task.new_y))
    np.testing.assert_array_equal(found.inside, abs(known.cdf(task.new_y) - 0.5) <= 0.45)


def test_the_page() -> None:
    options: dict[str, Any] = {"digit_labels": (12,), "car_labels": (15,), "test_rows": 20, "seeds": (0,), "steps": 6}
    found = deep_kernels.run(data_root=None, progress=lambda what, fraction: None, **options)
    assert [table.name for table in found.tables] == ["digits", "cars"]
    for table in found.tables:
        assert list(table.frame["method"]) == list(METHODS)
        assert np.isfinite(table.frame[["rmse", "log density", "coverage 90", "seconds"]].to_numpy()).all()
    assert len(found.findings) == 2

"""The study of what to label next: its tasks, its ways of choosing, and that it runs."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris

from experiments import what_to_label
from experiments.what_to_label import CHOICES, OURS, RANDOM, Settings, Task
from sureshot import GPClassifier


def test_two_rows_of_each_class_are_labelled_first() -> None:
    x, y = load_iris(return_X_y=True)
    task = Task.of(x, y, Settings(n_test=40, n_pool=90), 0)
    assert task.labels[task.first].tolist() == [0, 0, 1, 1, 2, 2]
    assert len(task.pool) == 90
    assert len(task.x_test) == 40


@pytest.mark.parametrize("name", CHOICES)
def test_a_batch_is_of_different_rows(name: str) -> None:
    x, y = load_iris(return_X_y=True)
    model = GPClassifier("matern32", "least_squares").fit(x[::15], y[::15])
    rest = np.setdiff1d(np.arange(150), np.arange(0, 150, 15))
    found = CHOICES[name](model, x[rest], 6, np.random.default_rng(0))
    assert len(set(np.asarray(found).tolist())) == len(found) == 6


@pytest.mark.real_data
def test_it_runs_on_a_table() -> None:
    outcome = what_to_label.run(
        data_root=None,
        progress=lambda what, done: None,
        **{"datasets": ["iris"], "digits": False, "clinc": False, "seeds": [0, 1], "batch": 5, "n_batches": 2},
    )
    frame = outcome.tables[-1].frame
    assert set(frame["chosen by"]) == set(CHOICES)
    assert frame["labels"].unique().tolist() == [6, 11, 16]
    assert frame[frame["batch"] == 0].groupby("seed")["accuracy"].nunique().max() == 1  # all begin alike
    gains = outcome.tables[0].frame.set_index("chosen by")["against random"]
    assert gains[RANDOM] == 0
    assert OURS in gains

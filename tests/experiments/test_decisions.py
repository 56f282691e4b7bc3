"""The study of decisions: what its tasks hold, and that it runs."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris

from experiments import decisions
from experiments.decisions import OURS, RBF, Settings, table_task


def test_a_class_is_left_out_where_two_stay() -> None:
    x, y = load_iris(return_X_y=True)
    for seed in range(3):
        task = table_task("iris", x, y, seed, Settings(n_train=40))
        assert set(task.y.tolist()) == set(range(3)) - {seed}
        assert task.unknown is not None
        assert len(task.unknown) == 50
        assert len(task.x) == 40
        assert len(task.x_test) == 60
    assert table_task("two", x[y < 2], y[y < 2], 0, Settings()).unknown is None
    counts = np.bincount(table_task("iris", x, y, 0, Settings(), per_class=7).y)
    assert counts.tolist() == [0, 7, 7]


@pytest.mark.real_data
def test_it_runs_on_a_table() -> None:
    outcome = decisions.run(
        data_root=None,
        progress=lambda what, done: None,
        tables=["iris"],
        digits=False,
        clinc=False,
        seeds=1,
        mapie_seeds=0,
        n_train=40,
    )
    alarms, sets = (table.frame for table in outcome.tables)
    assert {OURS, RBF} <= set(alarms["model"])
    assert alarms["unknown found at 5%"].min() > 0.5
    assert sets["coverage, none empty"].between(0.8, 1).all()
    assert len(outcome.verdicts) == 2

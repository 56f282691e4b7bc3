"""The study of outlier scores: what its tasks hold, and that it runs."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris

from experiments import unknowns
from experiments.unknowns import FAR, Settings, far_rows, tasks


def test_a_class_is_left_out_at_a_time() -> None:
    x, y = load_iris(return_X_y=True)
    found = list(tasks("iris", x, y, Settings(n_train=60, n_test=20)))
    assert len(found) == 3
    for task in found:
        (left_out,) = set(range(3)) - set(task.y.tolist())
        assert len(task.y) == len(task.x) == 60
        assert all((row == x[y == left_out]).all(1).any() for row in task.unknown)
        assert all((row == x[y != left_out]).all(1).any() for row in task.known)
        assert len(task.known) == len(task.unknown) == 20


def test_far_rows_are_as_far_as_they_say() -> None:
    x, y = load_iris(return_X_y=True)
    task = next(tasks("iris", x, y, Settings()))
    for name, rows in far_rows(task, Settings(n_far=30)).items():
        size, one_column = FAR[name]
        deviations = np.abs(rows - task.x.mean(0)) / task.x.std(0)
        farthest = deviations.max(1) if one_column else np.sqrt((deviations**2).mean(1))
        np.testing.assert_allclose(farthest, size)


@pytest.mark.real_data
def test_it_runs_on_a_table() -> None:
    outcome = unknowns.run(
        data_root=None, progress=lambda what, done: None, datasets=["iris"], digits=False, clinc=0, left_out=1
    )
    summary = outcome.tables[0].frame.set_index("score")
    assert summary.loc["GPClassifier", "mean AUROC"] > 0.7
    never = [verdict for verdict in outcome.verdicts if "never" in verdict.claim]
    assert len(never) == len(unknowns.ESTIMATORS)
    assert all(verdict.holds for verdict in never)

"""Streams: batches are asked before they are learnt, a killed cell goes on, tables by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments import smc_streams
from experiments.batch_learners import AdaptiveForest, BatchLearner, river_is_installed
from experiments.smc_streams import (
    OURS,
    curve_frame,
    load_stream,
    prequential_step,
    run,
    summary_frame,
    verdicts_of,
)


class Recorder(BatchLearner):
    """Says what it was asked and told."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.classes_ = np.array([0, 1])

    def partial_fit(self, x: np.ndarray, y: np.ndarray) -> None:
        self.calls.append("learn")

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        self.calls.append("ask")
        return np.tile([0.2, 0.8], (len(x), 1))


def tiny_stream(name: str, root: Path | None, rows: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(rows, 2))
    return x, (x[:, 0] > 0).astype(np.int64)


def quietly(what: str, fraction: float) -> None:
    pass


def test_a_batch_is_asked_first_but_for_the_first() -> None:
    learner = Recorder()
    x, y = np.zeros((4, 1)), np.array([1, 1, 1, 0])
    assert prequential_step(learner, x, y, first=True)["accuracy"] is None
    found = prequential_step(learner, x, y, first=False)
    assert learner.calls == ["learn", "ask", "learn"]
    assert found["accuracy"] == 0.75
    assert found["nll"] == pytest.approx(-(3 * np.log(0.8) + np.log(0.2)) / 4)
    assert found["seconds"] == found["predict_seconds"] + found["learn_seconds"]
    learner.says_probabilities = False
    assert prequential_step(learner, x, y, first=False)["nll"] is None


def test_a_campaign_makes_its_tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(smc_streams, "load_stream", tiny_stream)
    options: dict[str, Any] = {"rows": 30, "batch": 10, "window": 20, "particles": 2, "streams": ("sea",)}
    folders = {"results": str(tmp_path / "cells"), "checkpoints": str(tmp_path / "locks")}
    methods = (OURS, "naive Bayes", "passive-aggressive", "random forest")
    outcome = run(data_root=None, progress=quietly, methods=methods, **options, **folders)
    summary = outcome.tables[0].frame.set_index("method")
    assert summary.loc["naive Bayes", "accuracy"] > 0.6
    assert np.isnan(summary.loc["passive-aggressive", "nll"])
    assert len(outcome.verdicts) == 2


def test_summary_by_hand() -> None:
    def batch(rows: int, accuracy: float, nll: float) -> dict[str, Any]:
        bins = [[0, rows], [0, 0.9 * rows], [0, accuracy * rows]]
        return {"rows": rows, "accuracy": accuracy, "nll": nll, "brier": 0.1, "ece": 0.0, "bins": bins, "seconds": 2.0}

    record = {
        "labels": {"data": "sea", "method": OURS},
        "batches": [{"rows": 10, "seconds": 1.0}, batch(10, 0.5, 0.6), batch(30, 0.9, 0.2)],
    }
    curves = curve_frame([record])
    assert curves["seen"].tolist() == [20, 50]
    row = summary_frame(curves, [record]).iloc[0]
    assert row["accuracy"] == pytest.approx(0.8)
    assert row["nll"] == pytest.approx(0.3)
    assert row["ece"] == pytest.approx(0.1)
    assert row["seconds"] == 5.0
    assert verdicts_of(summary_frame(curves, [record])) == ()


@pytest.mark.real_data
def test_columns_that_give_the_label_away_are_left_out() -> None:
    x, y = load_stream("elec2", None, 50)
    assert x.shape == (50, 6)
    assert load_stream("sea", None, 50)[0].shape == (50, 3)
    assert set(y) <= {0, 1}


@pytest.mark.skipif(not river_is_installed(), reason="river is not installed")
def test_the_adaptive_forest_learns() -> None:
    x, y = tiny_stream("", None, 300)
    learner = AdaptiveForest(np.array([0, 1]), 0)
    learner.partial_fit(x, y)
    assert (learner.predict_proba(x).argmax(axis=1) == y).mean() > 0.8

"""Whole streams: what is learnt first, and the page, on few rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from experiments import streams
from experiments.streams import FREQUENCIES, METHODS, OURS, campaign_cells, run, verdicts_of
from sureshot.estimators.gp.tuning import local_learning


def tiny_stream(name: str, root: Path | None, rows: int, every_column: bool) -> tuple[np.ndarray, np.ndarray]:
    assert every_column
    x = np.random.default_rng(0).normal(size=(60, 2))
    return x, (x[:, 0] > 0).astype(np.int64)


def quietly(what: str, fraction: float) -> None:
    pass


def test_cells_are_all_methods_on_all_streams() -> None:
    cells = campaign_cells(streams.StreamsConfig())
    assert len({cell.key for cell in cells}) == len(cells) == 3 * len(METHODS)


def test_a_campaign_makes_its_tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(streams, "load_stream", tiny_stream)
    monkeypatch.setattr(local_learning, "STEPS", 10)
    options: dict[str, Any] = {"first": 30, "batch": 10, "streams": ("sea",), "methods": (FREQUENCIES, OURS)}
    folders = {"results": str(tmp_path / "cells"), "checkpoints": str(tmp_path / "locks")}
    outcome = run(data_root=None, progress=quietly, **options, **folders)
    summary = outcome.tables[0].frame.set_index("method")
    assert summary.loc[OURS, "nll"] < 0.6 < summary.loc[FREQUENCIES, "nll"]
    assert (summary[["predict, ms a row", "learn, ms a row"]] > 0).all(axis=None)
    assert [verdict.holds for verdict in outcome.verdicts] == [True]
    assert outcome.tables[1].frame.groupby("method")["seen"].apply(list).iloc[0] == [40, 50, 60]


def test_aims_are_by_stream() -> None:
    rows = [("elec2", OURS, 0.39), ("elec2", FREQUENCIES, 0.38), ("sea", OURS, 0.3), ("sea", FREQUENCIES, 0.4)]
    found = verdicts_of(pd.DataFrame(rows, columns=["stream", "method", "nll"]))
    assert [verdict.holds for verdict in found] == [True, False, True]

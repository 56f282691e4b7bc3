"""Rows that tell when they came, on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sureshot.estimators.gp.classifier import GPClassifier
from sureshot.estimators.gp.tuning import local_learning

Run = Callable[..., Any]


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Files of a hundred and of fifty days; in the second the label says the contrary."""
    monkeypatch.setattr(local_learning, "STEPS", 20)
    load = np.random.default_rng(0).normal(size=150).round(3)
    days = pd.date_range("2024-01-01", periods=150, freq="D").strftime("%Y-%m-%d")
    state = np.where((load > 0) ^ (np.arange(150) >= 100), "up", "down")
    frame = pd.DataFrame({"day": days, "load": load, "state": state})
    frame[:100].to_csv(tmp_path / "old.csv", index=False)
    frame[100:].to_csv(tmp_path / "new.csv", index=False)
    return [tmp_path / "old.csv", tmp_path / "new.csv", tmp_path / "model.safetensors"]


def test_old_days_go_and_what_has_changed_is_said(stream: list[Path], run: Run) -> None:
    old, new, path = stream
    result = run("fit", old, "-t", "state", "--time", "day", "--window", 80, "-o", path, "--json")
    assert result.exit_code == 0, result.stderr
    assert GPClassifier.load(path).class_count_.sum() == 80
    result = run("update", path, new, "-t", "state", "-o", path.with_name("later.safetensors"), "--json")
    assert json.loads(result.stdout)["rows"] == 80
    assert "labels cost" in result.stderr
    assert result.stderr.count("\n") == 2  # the other says that rows have no ids
    result = run("update", path, new, "-t", "state", "--retune-if-worse", "-o", path.with_name("anew.safetensors"))
    assert result.exit_code == 0, result.stderr
    assert "settings are chosen anew from 80 rows" in result.stderr
    assert GPClassifier.load(path.with_name("anew.safetensors"))._fitted.chosen_by == (80, 2)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--time", "dya"), "time must be 'arrival', or a column of X"),
        (("--window", 5), "--window 5.0 goes with a time"),
        (("--time", "day", "--window", -1), "window must be a positive number"),
        (("--time", "day", "--strategy", "rebuild"), "--time and --strategy exclude each other"),
    ],
)
def test_what_tells_no_time_is_one_line(stream: list[Path], run: Run, words: tuple[Any, ...], text: str) -> None:
    result = run("fit", stream[0], "-t", "state", "-o", stream[2], *words)
    assert result.exit_code == 1
    assert text in result.stderr
    assert result.stderr.count("\n") == 1
    assert not stream[2].exists()

"""``sureshot demo``: its methods as JSON, its report where it was asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.mark.slow
def test_demo(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("demo", "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    methods = {row["method"]: row for row in found["methods"]}
    assert len(methods) == 4
    assert methods["sureshot"]["accuracy"] > 0.8
    assert (tmp_path / "sureshot-demo" / "report.html").exists()
    sessions = {row["method"]: row for row in found["sessions"]}
    assert {"sureshot, for sessions", "empirical Bayes", "nearest class mean"} <= set(sessions)
    assert sessions["sureshot, for sessions"]["accuracy"] > 0.8
    page = (tmp_path / "sureshot-demo" / "report.html").read_text(encoding="utf-8")
    assert "Digits that arrive in sessions" in page
    assert "average forgetting" not in page  # in the figure, not in a table

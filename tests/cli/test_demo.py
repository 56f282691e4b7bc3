"""``sureshot demo``: its methods as JSON, its report where it was asked for."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sureshot.cli.console import guarded

Run = Callable[..., Any]


@pytest.mark.slow
def test_demo(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for part, seeds in (("digits", (0, 1)), ("sessions", (0,))):  # of five and three
        monkeypatch.setattr(f"sureshot.demo.{part}.SEEDS", seeds)
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
    assert "note:" not in result.stderr
    assert "warning:" not in result.stderr


def test_what_the_demo_hides_is_shown_again_behind_it() -> None:
    loggers = [logging.getLogger(name) for name in ("sureshot", "sureshot.estimators")]
    before = [(logger.level, list(logger.handlers)) for logger in loggers]
    with guarded(but=("sureshot.estimators",)):
        assert [logger.getEffectiveLevel() for logger in loggers] == [logging.INFO, logging.ERROR]
        assert not loggers[1].handlers
    assert [(logger.level, list(logger.handlers)) for logger in loggers] == before

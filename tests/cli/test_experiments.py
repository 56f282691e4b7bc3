"""Demo and reproduce: tables for people, JSON for machines, files where they were asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sureshot.cli.reproduce import parse_settings
from sureshot.experiments import registry

Run = Callable[..., Any]


def test_the_list_has_every_experiment(run: Run) -> None:
    listed = json.loads(run("reproduce", "--list", "--json").stdout)
    assert listed == registry.names()
    text = run("reproduce", "--list").stdout
    assert all(name in text for name in listed)


def test_reproduce_writes_a_page_and_prints_its_tables(tmp_path: Path, run: Run) -> None:
    result = run(
        "reproduce", "confidence-histograms", "-o", tmp_path / "results", "--set", "n_draws=[500, 500]", "--json"
    )
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["config"]["n_draws"] == [500, 500]
    assert (tmp_path / "results" / "confidence-histograms.md").exists()
    assert all(Path(path).exists() for path in found["files"])


def test_an_unknown_setting_names_those_there_are(run: Run, tmp_path: Path) -> None:
    result = run("reproduce", "confidence-histograms", "-o", tmp_path / "r", "--set", "n_draw=10")
    assert result.exit_code == 1
    assert "n_draws" in result.stderr
    assert not (tmp_path / "r").exists()


def test_settings_are_json_or_text() -> None:
    assert parse_settings(["a=1", "b-c=[1, 2]", "d=text", "e=0.5", "f=x=y"]) == {
        "a": 1,
        "b_c": (1, 2),
        "d": "text",
        "e": 0.5,
        "f": "x=y",
    }
    for wrong in (["a"], ["=1"], ["1a=2"], ["a=1", "a=2"], ["output=x"]):
        with pytest.raises(ValueError, match="--set"):
            parse_settings(wrong)


@pytest.mark.slow
def test_demo(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("demo", "--json")
    assert result.exit_code == 0, result.stderr
    methods = {row["method"]: row for row in json.loads(result.stdout)["methods"]}
    assert len(methods) == 4
    assert methods["sureshot"]["accuracy"] > 0.8
    assert (tmp_path / "sureshot-demo" / "report.html").exists()

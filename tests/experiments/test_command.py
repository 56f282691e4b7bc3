"""``python -m experiments``: tables for people, JSON for machines, files where they were asked for, mistakes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments import registry
from experiments.command import main, parse_settings

Run = Callable[..., Any]

ROOT = Path(__file__).parents[2]


def test_the_list_has_every_experiment(run: Run) -> None:
    listed = json.loads(run("--list", "--json").stdout)
    assert listed == registry.names()
    text = run("--list").stdout
    assert all(name in text for name in listed)


def test_it_writes_a_page_and_prints_its_tables(tmp_path: Path, run: Run) -> None:
    settings = ("--set", "means=[0.0]", "--set", "n_draws=[500]")
    result = run("confidence-histograms", "-o", tmp_path / "results", *settings, "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["config"]["n_draws"] == [500]
    assert (tmp_path / "results" / "confidence-histograms.md").exists()
    assert all(Path(path).exists() for path in found["files"])


def test_an_unknown_setting_names_those_there_are(run: Run, tmp_path: Path) -> None:
    result = run("confidence-histograms", "-o", tmp_path / "r", "--set", "n_draw=10")
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


def test_mistakes_are_one_line(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SURESHOT_DATA", raising=False)
    output = ("-o", tmp_path / "out")
    for arguments, words in (
        (("irsi", *output), "did you mean 'iris'"),
        ((), "--list"),
        (("iris", "--set", "oops", *output), "KEY=VALUE"),
        (("unknowns", *output), "SURESHOT_DATA"),
        (("unknowns", "--data", tmp_path / "gone", *output), "does not exist"),
    ):
        result = run(*arguments)
        assert result.exit_code == 1
        assert result.stdout == ""
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
        assert words in result.stderr
    assert run("iris", "--foo").exit_code == 2
    assert not (tmp_path / "out").exists()


def environment() -> dict[str, str]:
    """Of a process that finds the experiments from any folder."""
    return os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    }


def test_the_module_runs_and_its_help_does_not_import_what_is_slow(tmp_path: Path) -> None:
    code = (
        "import sys, experiments.command\n"
        "print([name for name in ('torch', 'sklearn', 'experiments.iris') if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path, env=environment()
    )
    assert found.stdout.strip() == "[]"
    command = [sys.executable, "-m", "experiments", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment())
    assert "python -m experiments" in shown.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX systems")
def test_an_interrupt_ends_cleanly_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    registry.get_experiment("iris")  # imported before
    monkeypatch.setattr(sys, "argv", ["experiments", "iris", "-o", str(tmp_path / "out"), "--set", "n_splits=100000"])
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background ignores interrupts
    ring = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(SystemExit) as ended:
            main()
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGALRM, ring)
    assert ended.value.code == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert not list(tmp_path.iterdir())

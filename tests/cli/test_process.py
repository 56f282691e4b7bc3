"""The real entry point in a process of its own: speed of the help, pipes, interrupts, exact models."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

SURESHOT = [sys.executable, "-m", "sureshot"]


def test_the_help_does_not_import_what_is_slow() -> None:
    code = (
        "import sys, sureshot.cli\n"
        "print([name for name in ('torch', 'gpytorch', 'sklearn', 'matplotlib') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_another_process_predicts_the_same(files: Path, run: Callable[..., Any]) -> None:
    arguments = ("predict", "iris.safetensors", "iris.csv", "--proba", "--json")
    other = subprocess.run([*SURESHOT, *arguments], cwd=files, capture_output=True, text=True, check=True)
    here = run("predict", files / "iris.safetensors", files / "iris.csv", "--proba", "--json")
    assert other.stdout == here.stdout


def test_an_error_has_no_traceback(files: Path) -> None:
    command = [*SURESHOT, "predict", "isir.safetensors", "iris.csv"]
    result = subprocess.run(command, cwd=files, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.startswith("error: isir.safetensors does not exist")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_a_reader_that_goes_away_is_no_error(files: Path, iris: pd.DataFrame, tmp_path: Path) -> None:
    pd.concat([iris] * 200).to_csv(tmp_path / "long.csv", index=False)  # more than a pipe holds
    command = [*SURESHOT, "predict", str(files / "iris.safetensors"), str(tmp_path / "long.csv"), "--proba", "-q"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("row,prediction")
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX systems")
def test_an_interrupt_ends_cleanly_and_leaves_nothing(iris: pd.DataFrame, tmp_path: Path) -> None:
    iris.assign(meta_note="x").to_csv(tmp_path / "d.csv", index=False)
    start = (  # a shell that starts pytest in the background lets its children ignore interrupts
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\nfrom sureshot.cli import main; main()"
    )
    command = [sys.executable, "-c", start, "fit", "d.csv", "-t", "species", "-o", "m"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "meta_note" in process.stderr.readline()  # the table is read; imports and the fit are to come
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == 130
    assert rest.endswith("interrupted\n")
    assert "Traceback" not in rest
    assert [path.name for path in tmp_path.iterdir()] == ["d.csv"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predict", "iris.safetensors", "iris.csv", "--set", "abc"], "Invalid value for '--set'"),
        (["predict", "iris.safetensors"], "Missing argument 'DATA'. `sureshot predict --help`"),
        (["predct"], "did you mean 'predict'?"),
    ],
)
def test_wrong_usage_is_one_line(files: Path, arguments: list[str], message: str) -> None:
    result = subprocess.run([*SURESHOT, *arguments], cwd=files, capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stderr.startswith("error: ")
    assert message.lower() in result.stderr.lower()
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_wrong_usage_is_json_as_well(files: Path) -> None:
    arguments = ["predict", "iris.safetensors", "iris.csv", "--top", "0", "--json"]
    result = subprocess.run([*SURESHOT, *arguments], cwd=files, capture_output=True, text=True)
    assert result.returncode == 2
    assert "--top" in json.loads(result.stdout)["error"]
    assert result.stderr.startswith("error: ")

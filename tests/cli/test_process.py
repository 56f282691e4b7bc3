"""The real entry point in a process of its own: speed of the help, pipes, interrupts, exact models."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

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


def test_a_model_predicts_the_same_in_another_process(files: Path) -> None:
    command = [*SURESHOT, "predict", "iris.safetensors", "iris.csv", "--proba", "--json"]
    runs = [subprocess.run(command, cwd=files, capture_output=True, check=True) for _ in range(2)]
    assert runs[0].stdout == runs[1].stdout


def test_an_error_has_no_traceback(files: Path) -> None:
    command = [*SURESHOT, "predict", "iris.csv", "iris.csv"]
    result = subprocess.run(command, cwd=files, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.startswith("error: ")
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
def test_an_interrupt_ends_cleanly(tmp_path: Path) -> None:
    """The pipe that the command reads is never written to, so it waits until it is interrupted."""
    os.mkfifo(tmp_path / "m.safetensors")
    code = (
        "import os, signal, sys, sureshot.cli.model as m\n"
        "from sureshot.cli import main\n"
        "m.load_model = lambda path: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.argv = ['sureshot', 'predict', 'm', 'd.csv']\n"
        "main()\n"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert signal.SIGINT == 2
    assert result.returncode == 130
    assert result.stderr == "interrupted\n"

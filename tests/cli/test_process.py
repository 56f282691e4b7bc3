"""The real entry point in a process of its own: speed of the help, pipes, interrupts, exact models."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

SLOW = ("torch", "gpytorch", "sklearn", "sklearn.cluster", "pandas", "scipy", "matplotlib", "sureshot.meta")
SURESHOT = [sys.executable, "-m", "sureshot"]


def test_the_help_does_not_import_what_is_slow() -> None:
    code = (
        "import sys, sureshot.cli\n"
        "print([name for name in ('torch', 'gpytorch', 'sklearn', 'matplotlib') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def imported(folder: Path, *arguments: str) -> set[str]:
    """What is slow to import, of that what a command has imported when it ends, however it does."""
    code = (
        "import sys\nfrom sureshot.cli import main\n"
        f"sys.argv[1:] = {list(arguments)!r}\n"
        "try:\n    main()\nfinally:\n"
        f"    sys.stderr.write('imported ' + ' '.join(name for name in {SLOW} if name in sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    return set(found.stderr.rpartition("imported")[2].split())


@pytest.mark.parametrize(
    "arguments",
    [
        ("fit", "iris.docx", "-t", "species", "-o", "m.safetensors"),
        ("fit", "isir.csv", "-t", "species", "-o", "m.safetensors"),
        ("fit", "iris.csv", "-t", "species", "-o", "m.csv"),
        ("predict", "isir.safetensors", "iris.csv"),
        ("predict", "iris.csv", "iris.safetensors"),
        ("predict", "iris.safetensors", "isir.csv"),
        ("predict", "iris.safetensors", "iris.csv", "--join", "--json"),
        ("evaluate", "iris.safetensors", "iris.docx", "-t", "species"),
        ("suggest", "no-model.safetensors", "iris.csv"),
        ("update", "iris.safetensors", "isir.csv", "-t", "species", "-o", "m.safetensors"),
        ("search", "iris.docx", "-t", "species"),
        ("sessions", "none.toml"),
        ("meta-train", "none.toml"),
    ],
    ids=" ".join,
)
def test_what_can_be_refused_is_refused_before_anything_slow_is_imported(
    arguments: tuple[str, ...], files: Path, tmp_path: Path
) -> None:
    for name in ("iris.csv", "iris.safetensors"):
        shutil.copy(files / name, tmp_path)
    (tmp_path / "iris.docx").write_bytes(b"PK")
    (tmp_path / "no-model.safetensors").write_bytes(b"not a model")
    assert imported(tmp_path, *arguments) == set()


def test_a_prediction_imports_only_what_its_model_needs(files: Path) -> None:
    found = imported(files, "predict", "iris.safetensors", "iris.csv", "--quiet")
    assert "torch" in found
    assert not found & {"matplotlib", "sureshot.meta", "sklearn.cluster"}


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

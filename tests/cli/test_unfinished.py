"""Predictions of tables in parts, and of those that go on where a process was killed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sureshot.cli.unfinished import Unfinished
from sureshot.data import parquet_files
from tests.cli.conftest import QUICK
from tests.cli.test_bad_input import assert_refused

Run = Callable[..., Any]
pytest.importorskip("pyarrow")


def in_files(frame: pd.DataFrame, folder: Path, n_files: int = 3) -> Path:
    """A folder of Parquet files with these rows."""
    folder.mkdir()
    for number, rows in enumerate(np.array_split(np.arange(len(frame)), n_files)):
        frame.iloc[rows].reset_index(drop=True).to_parquet(folder / f"{number}.parquet")
    return folder


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory, iris: pd.DataFrame, run: Run) -> tuple[Path, pd.DataFrame]:
    """A model of numbers with gaps, dates and text, and 40 rows of such a table, whose gaps come late."""
    folder = tmp_path_factory.mktemp("mixed")
    n = np.arange(len(iris))
    frame = iris.assign(
        key=[f"k{i}" for i in n],
        count=np.where((n > 30) & (n < 45), np.nan, n % 5),
        day=pd.Series(pd.to_datetime("2025-03-01") + pd.to_timedelta(n % 9, unit="D")).mask(n % 20 == 3),
        text=[None if i % 17 == 16 else "abc"[i % 3] for i in n],
    )
    frame.to_parquet(folder / "all.parquet")
    result = run("fit", folder / "all.parquet", "-t", "species", "--id", "key", "-o", folder / "m.safetensors", *QUICK)
    assert result.exit_code == 0, result.stderr
    return folder / "m.safetensors", frame[:40]


@pytest.mark.parametrize("options", [("--why", "3"), ("--id", "key"), ("--join",), ("--json", "--target", "species")])
def test_parts_are_answered_as_the_whole(
    mixed: tuple[Path, pd.DataFrame],
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
) -> None:
    model, frame = mixed
    frame.to_parquet(tmp_path / "t.parquet")
    answers = ("--proba", "--outlier", "--reject", "0.1", *options)
    command = sys.modules["sureshot.cli.predict"]
    assert parquet_files.PART % command.CHUNK == 0  # or other rows would be answered together
    monkeypatch.setattr(command, "CHUNK", 8)
    whole = run("predict", model, tmp_path / "t.parquet", *answers)
    assert whole.exit_code == 0, whole.stderr
    monkeypatch.setattr(parquet_files, "PART", 16)
    for path in (tmp_path / "t.parquet", in_files(frame, tmp_path / "folder")):
        result = run("predict", model, path, *answers)
        assert result.exit_code == 0, result.stderr
        assert result.stdout == whole.stdout


def test_text_that_is_numbers_is_read_as_the_whole_column_says(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,250 alone would be what it was for the model, whose comma is decimal; 2.5 says that it is not."""
    amounts = [f"{k},5" for k in range(20)] + [f"12{k:02},5" for k in range(20)]
    pd.DataFrame({"amount": amounts, "y": ["low"] * 20 + ["high"] * 20}).to_csv(
        tmp_path / "t.csv", index=False, sep=";"
    )
    model = tmp_path / "m.safetensors"
    assert run("fit", tmp_path / "t.csv", "-t", "y", "-o", model, *QUICK).exit_code == 0
    pd.DataFrame({"amount": ["1,250"] * 20 + ["2.5"]}).to_parquet(tmp_path / "t.parquet")
    monkeypatch.setattr(parquet_files, "PART", 14)
    result = run("predict", model, tmp_path / "t.parquet", "-q")
    assert [line.split(",")[1] for line in result.stdout.split()[1:]] == ["high"] * 20 + ["low"]


def test_all_commands_take_a_folder(iris: pd.DataFrame, tmp_path: Path, files: Path, run: Run) -> None:
    folder = in_files(iris, tmp_path / "folder")
    result = run("fit", folder, "-t", "species", "-o", tmp_path / "m.safetensors", *QUICK)
    assert result.exit_code == 0, result.stderr
    for command in (("evaluate", "-t", "species"), ("predict",), ("suggest", "-n", "3")):
        found = run(command[0], tmp_path / "m.safetensors", folder, *command[1:], "--json")
        known = run(command[0], files / "iris.safetensors", files / "iris.csv", *command[1:], "--json")
        assert found.exit_code == 0, found.stderr
        if command[0] == "evaluate":
            assert json.loads(found.stdout)["accuracy"] == json.loads(known.stdout)["accuracy"]
        else:
            assert found.stdout == known.stdout


def test_what_is_wrong_in_a_later_part_is_told_before_anything_is_written(
    mixed: tuple[Path, pd.DataFrame], tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, frame = mixed
    monkeypatch.setattr(parquet_files, "PART", 7)
    output = tmp_path / "p.csv"
    folder = in_files(frame.assign(count=[*["1"] * 39, "many"]), tmp_path / "text")
    refused = run("predict", model, folder, "-o", output, "-q")
    assert_refused(refused, "'many' in row 4, counted from 0,")
    assert "row 0 of these is row 35 of all" in refused.stderr
    folder = in_files(frame.assign(key=[*frame["key"][:39], "k2"]), tmp_path / "ids")
    assert_refused(run("predict", model, folder, "--id", "key", "-o", output, "-q"), "the first is 'k2' in row 39")
    folder = in_files(frame, tmp_path / "columns")
    frame.drop(columns="text").to_parquet(folder / "3.parquet")
    assert_refused(run("predict", model, folder, "-o", output, "-q"), "3.parquet has other columns than 0.parquet")
    (tmp_path / "empty").mkdir()
    assert_refused(run("predict", model, tmp_path / "empty", "-o", output, "-q"), "or of a table *.parquet")
    assert not list(tmp_path.glob("p.csv*"))


FEW = 128


def killed(arguments: list[object], state: Path) -> int:
    """Rows that a process has kept when it is killed, which answers a few at a time."""
    code = f"import sys; from sureshot.cli import main; sys.modules['sureshot.cli.predict'].CHUNK = {FEW}; main()"
    with subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)]) as process:
        while not state.exists():
            assert process.poll() is None
            time.sleep(0.001)
        process.kill()
    return int(json.loads(state.read_text())["rows"])


@pytest.mark.parametrize(("ending", "options"), [("parquet", ("--proba",)), ("csv", ("--outlier", "--json"))])
def test_a_killed_run_goes_on(
    files: Path,
    iris: pd.DataFrame,
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    ending: str,
    options: tuple[str, ...],
) -> None:
    monkeypatch.setattr(sys.modules["sureshot.cli.predict"], "CHUNK", FEW)
    model = shutil.copy(files / "iris.safetensors", tmp_path)
    many = pd.concat([iris.drop(columns="species")] * 100, ignore_index=True)
    data = tmp_path / f"data.{ending}"
    many.to_csv(data, index=False) if ending == "csv" else in_files(many, data)
    output, whole = (tmp_path / f"{name}.{'json' if '--json' in options else 'csv'}" for name in ("p", "whole"))
    assert run("predict", model, data, *options, "-o", whole).exit_code == 0
    part, state = Path(f"{output}.part"), Path(f"{output}.part.json")
    rows = killed(["predict", model, data, *options, "-o", output], state)
    assert 0 < rows < len(many)
    assert not output.exists()
    with part.open("ab") as stream:
        stream.write(b"half a row")
    for name in (part, state):  # another file, of whose answers one is changed
        shutil.copy(name, name.with_name(name.name.replace("p.", "marked.", 1)))
    marked = tmp_path / f"marked{output.suffix}"
    kept = Path(f"{marked}.part").read_bytes().replace(b"setosa", b"SETOSA", 3)
    Path(f"{marked}.part").write_bytes(kept)

    result = run("predict", model, data, *options, "-o", output, "--resume")
    assert result.exit_code == 0, result.stderr
    assert f"goes on behind {rows} rows" in result.stderr
    assert output.read_bytes() == whole.read_bytes()
    assert not part.exists()
    assert not state.exists()

    others: dict[str, tuple[object, ...]] = {
        "is of other options": (model, data, *options, "--top", "2"),
        "is of other model": (files / "two.safetensors", data, *options),
        "is of other data": (model, files / "iris.csv", *options),
    }
    for message, arguments in others.items():
        result = run("predict", *arguments, "-o", marked, "--resume", "-q")
        assert result.exit_code == 1
        assert f"{marked.name}.part {message}: leave --resume out" in result.stderr
    assert run("predict", model, data, *options, "-o", marked, "--resume").exit_code == 0
    assert marked.read_bytes() == whole.read_bytes().replace(b"setosa", b"SETOSA", 3)  # not answered again


def test_going_on_needs_files(files: Path, run: Run, tmp_path: Path) -> None:
    for arguments in (("iris.csv",), ("-", "-o", tmp_path / "p.csv"), ("iris.csv", "-o", "-")):
        data = files / arguments[0] if arguments[0] != "-" else "-"
        result = run("predict", files / "iris.safetensors", data, *arguments[1:], "--resume")
        assert_refused(result, "--resume goes on with a file")
    result = run("predict", files / "iris.safetensors", files / "iris.csv", "-o", tmp_path / "p.csv", "--resume")
    assert result.exit_code == 0  # nothing is there to go on with
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 76


def as_text(rows: list[int], start: int) -> str:
    return "".join(f"{number}:{row}\n" for number, row in enumerate(rows, start))


def refused(rows: list[int], start: int) -> str:
    raise ValueError("no text")


def test_what_was_begun_anew_is_not_gone_on_with_as_the_older(tmp_path: Path) -> None:
    """Nor is a file that was cut off."""
    path = tmp_path / "out.csv"

    def ends_after(n: int) -> Any:
        yield from ([k] for k in range(n))
        raise ValueError("no answer")

    for n in (5, 2):
        with pytest.raises(ValueError, match="no answer"):
            Unfinished.found(path, {"model": "a"}, False).write("head\n", ends_after(n), as_text, "")
        assert Unfinished.found(path, {"model": "a"}, True).rows == n
    with pytest.raises(ValueError, match="no answer"):  # the first block is refused before anything is written
        Unfinished.found(path, {"model": "a"}, False).write("head\n", ends_after(0), as_text, "")
    begun = Unfinished.found(path, {"model": "a"}, True)
    begun.write("head\n", iter([[2], [3]]), as_text, "tail")
    assert path.read_text() == "head\n0:0\n1:1\n2:2\n3:3\ntail"
    assert [file.name for file in tmp_path.iterdir()] == ["out.csv"]
    with pytest.raises(ValueError, match="no answer"):
        Unfinished.found(path, {"model": "a"}, False).write("head\n", ends_after(5), as_text, "")
    (tmp_path / "out.csv.part").write_bytes(b"he")
    with pytest.raises(ValueError, match="has been cut off"):
        Unfinished.found(path, {"model": "a"}, True)
    with pytest.raises(ValueError, match="no text"):
        Unfinished.found(path, {"model": "a"}, False).write("head\n", iter([[0]]), refused, "")
    assert Unfinished.found(path, {"model": "a"}, True).rows == 0  # what the older process kept is gone
    assert path.read_text().endswith("tail")

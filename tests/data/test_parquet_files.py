"""Parquet files and folders of them: one table, read as one file of all its rows is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sureshot
from sureshot.data import DataError, column_names, load_table
from sureshot.data import parquet_files as module
from sureshot.data.parquet_files import parquet_parts, read_parquet

pytest.importorskip("pyarrow")


@pytest.fixture
def frame() -> pd.DataFrame:
    """A column of each kind that pandas writes; gaps come late, so that a part does not know of them."""
    n = np.arange(50)
    return pd.DataFrame(
        {
            "x": n / 7,
            "whole": np.where(n < 40, n, np.nan),
            "int": pd.array([None if i == 45 else i for i in n], dtype="Int64"),
            "text": [None if i > 40 else f"t{i % 3}" for i in n],
            "true": [None if i == 48 else bool(i % 2) for i in n],
            "day": pd.to_datetime("2025-01-01") + pd.to_timedelta(n, unit="D"),
            "zoned": pd.to_datetime("2025-01-01", utc=True) + pd.to_timedelta(n, unit="h"),
            "kind": pd.Categorical([f"k{i // 10}" for i in n]),
            "bytes": [b"%d" % i for i in n],
            "y": [f"c{i % 2}" for i in n],
        }
    )


def written(frame: pd.DataFrame, folder: Path, *starts: int) -> Path:
    """A folder of files whose rows begin there."""
    folder.mkdir()
    for number, (start, stop) in enumerate(zip(starts, [*starts[1:], len(frame)], strict=True)):
        frame[start:stop].reset_index(drop=True).to_parquet(folder / f"part-{number}.parquet")
    return folder


@pytest.mark.parametrize("size", [3, 7, 1000])
def test_a_folder_and_any_parts_are_the_table(
    frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(module, "PART", size)
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=11)
    folder = written(frame, tmp_path / "folder", 0, 0, 20, 21)
    for path in (tmp_path / "t.parquet", folder):
        whole = read_parquet(path)
        assert isinstance(whole.index, pd.RangeIndex)
        pd.testing.assert_frame_equal(whole, pd.read_parquet(tmp_path / "t.parquet"), check_categorical=False)
        parts = list(parquet_parts(path))
        assert [len(part) for part in parts[:-1]] == [size] * (len(parts) - 1)
        assert np.concatenate([part.index for part in parts]).tolist() == list(range(50))
        for name in frame:
            cells = [cell for part in parts for cell in part[name].astype(object)]
            assert pd.Series(cells).isna().tolist() == frame[name].isna().tolist()
            assert [a == b for a, b in zip(cells, frame[name], strict=True) if not pd.isna(b)].count(False) == 0
    X, y, *_ = sureshot.read_table(folder, "y", ignore=["bytes"])
    known = sureshot.read_table(tmp_path / "t.parquet", "y", ignore=["bytes"])
    pd.testing.assert_frame_equal(X, known.X)
    np.testing.assert_array_equal(y, known.y)
    assert column_names(folder) == list(frame.columns)


def test_rows_keep_the_names_that_are_stored(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": np.arange(20.0)}, index=pd.Index([f"r{i}" for i in range(20)], name="who"))
    (tmp_path / "folder").mkdir()
    for start in (0, 10):
        frame[start : start + 10].to_parquet(tmp_path / "folder" / f"{start:02}.parquet")
    assert load_table(tmp_path / "folder").row_ids.tolist() == frame.index.tolist()
    numbered = frame.reset_index(drop=True)
    numbered[5:].to_parquet(tmp_path / "t.parquet")  # as pandas numbers them
    assert load_table(tmp_path / "t.parquet").row_ids.tolist() == list(range(5, 20))
    numbered[::-3].to_parquet(tmp_path / "t.parquet")
    assert load_table(tmp_path / "t.parquet").row_ids.tolist() == list(range(19, -1, -3))


def damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "other columns": (
        lambda path: pd.DataFrame({"x": [1.0], "z": ["a"]}).to_parquet(path),
        r"part-1.parquet has other columns than part-0.parquet .*: y is missing, there \w+, z is \w+, there missing$",
    ),
    "another type": (
        lambda path: pd.DataFrame({"x": [1], "y": ["a"]}).to_parquet(path),
        r"part-1.parquet has other columns .*: x is int64, there double$",
    ),
    "damaged": (damaged, r"part-1.parquet cannot be read as Parquet"),
    "empty": (lambda path: path.write_bytes(b""), r"part-1.parquet cannot be read as Parquet"),
    "no columns": (lambda path: pd.DataFrame(index=range(3)).to_parquet(path), r"part-1.parquet has other columns"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_file_that_does_not_fit_is_named(frame: pd.DataFrame, tmp_path: Path, case: str) -> None:
    spoil, message = WRONG[case]
    folder = written(frame[["x", "y"]], tmp_path / "folder", 0, 20)
    spoil(folder / "part-1.parquet")
    with pytest.raises(DataError, match=message) as error:
        load_table(folder, "y")
    assert "\n" not in str(error.value)


def test_a_damaged_page_is_found_where_it_is_read(frame: pd.DataFrame, tmp_path: Path) -> None:
    folder = written(frame[["x", "y"]], tmp_path / "folder", 0, 20)
    content = bytearray((folder / "part-1.parquet").read_bytes())
    content[4:200] = bytes(196)
    (folder / "part-1.parquet").write_bytes(content)
    with pytest.raises(DataError, match=r"part-1.parquet cannot be read as Parquet"):
        load_table(folder, "y")


def test_what_is_in_the_folder(frame: pd.DataFrame, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Files by name, the same columns in any order; what is hidden is no file of it, and what else is there is told."""
    folder = written(frame[["x", "y"]], tmp_path / "folder", 0, 20)
    pd.DataFrame({"y": ["c1"], "x": [9.0]}).to_parquet(folder / "a.PARQUET")
    for name in ("_SUCCESS", "_metadata.parquet", ".hidden.parquet"):
        (folder / name).write_text("no table")
    with caplog.at_level(logging.INFO):
        table = load_table(folder, "y")
    assert isinstance(table.X, pd.DataFrame)
    assert table.X["x"].tolist() == [9.0, *frame["x"]]
    assert "only its" not in caplog.text
    (folder / "more.csv").write_text("x,y\n1,a\n")
    (folder / "sub.parquet").mkdir()
    with caplog.at_level(logging.INFO):
        assert len(load_table(folder, "y").row_ids) == 51
    assert "only its .parquet files are read, not more.csv, sub.parquet" in caplog.text


def test_folders_without_a_table(frame: pd.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is a folder without \.parquet files"):
        load_table(tmp_path)
    (tmp_path / "t.csv").write_text("a\n1\n")
    with pytest.raises(DataError, match=r"is a folder without \.parquet files"):
        column_names(tmp_path)
    with pytest.raises(DataError, match="has a header but no rows"):
        load_table(written(frame[:0], tmp_path / "folder", 0, 0))


def test_names_of_rows_come_once_in_all_files(frame: pd.DataFrame, tmp_path: Path) -> None:
    folder = written(frame[["x", "y"]].assign(id=[*range(49), 3]), tmp_path / "folder", 0, 20)
    with pytest.raises(DataError, match=r"come again in 1 of its rows, the first is '3' in row 49, counted from 0"):
        load_table(folder, "y", row_id="id")
    named = frame[["x"]].assign(id=[*range(49), 3]).set_index(frame["y"].to_numpy())
    named.to_parquet(tmp_path / "t.parquet")  # with an index that is no number
    with pytest.raises(DataError, match="in row 49, counted from 0"):
        load_table(tmp_path / "t.parquet", row_id="id")

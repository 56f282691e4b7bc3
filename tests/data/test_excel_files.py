"""Sheets of Excel: typed cells, names of columns, and what is said of the rest."""

from __future__ import annotations

import datetime
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sureshot.data import DataError, column_names, load_table, read_table
from sureshot.data.tables import cells_as_written

openpyxl = pytest.importorskip("openpyxl")


def book(path: Path, rows: list[list[Any]], change: Callable[[Any, Any], None] | None = None) -> Path:
    made = openpyxl.Workbook()
    sheet = made.active
    for row in rows:
        sheet.append(row)
    if change is not None:
        change(made, sheet)
    made.save(path)
    return path


ROWS = [
    ["size", "code", "shown", "day", "open", "note", "kind"],
    [1, "007", 12, datetime.datetime(2025, 1, 31), True, "unknown", "a"],
    [2.5, "7", 7, datetime.datetime(2025, 2, 1), False, "NA", "b"],
]


def with_zeros(made: Any, sheet: Any) -> None:
    for row in (2, 3):
        sheet.cell(row, 3).number_format = "00000"


def test_cells_are_what_they_are_typed_as(tmp_path: Path) -> None:
    path = book(tmp_path / "w.xlsx", ROWS, with_zeros)
    table = read_table(path, "kind", missing=["unknown"])
    assert column_names(path) == ROWS[0]
    assert table.X["size"].tolist() == [1, 2.5]
    assert table.X["code"].tolist() == ["007", "7"]
    assert table.X["shown"].tolist() == ["00012", "00007"]
    assert table.X["day"].tolist() == [pd.Timestamp("2025-01-31"), pd.Timestamp("2025-02-01")]
    assert table.X["open"].tolist() == [1, 0]
    assert table.X["note"].isna().all()
    assert table.y is not None
    assert table.y.tolist() == ["a", "b"]
    assert cells_as_written(path)[0]["note"].tolist() == ["unknown", "NA"]


def test_a_table_that_pandas_writes_is_the_same_from_a_file_of_text(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1.5, None, 3], "b": ["x", "y", None], "n": [1, 2, 3]}, index=["r1", "r2", "r3"])
    frame.to_excel(tmp_path / "t.xlsx")
    frame.to_csv(tmp_path / "t.csv")
    sheet, text = (read_table(tmp_path / name) for name in ("t.xlsx", "t.csv"))
    pd.testing.assert_frame_equal(sheet.X, text.X, check_dtype=False)
    assert sheet.row_ids.tolist() == text.row_ids.tolist() == ["r1", "r2", "r3"]


def test_names_above_several_columns_are_part_of_each(tmp_path: Path) -> None:
    def merged(made: Any, sheet: Any) -> None:
        sheet.merge_cells("A1:B1")
        sheet.merge_cells("C1:C2")

    rows = [["sepal", None, "kind"], ["length", "width", None], [1, 2, "a"], [3, 4, "b"]]
    table = load_table(book(tmp_path / "m.xlsx", rows, merged), "kind")
    assert table.feature_names == ("sepal length", "sepal width")
    assert table.X.to_numpy().tolist() == [[1, 2], [3, 4]]


def test_what_a_sheet_holds_beside_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def more(made: Any, sheet: Any) -> None:
        made.create_sheet("other").append(["x"])
        made["other"].append([5])
        sheet.row_dimensions[2].hidden = True
        sheet["B2"] = "=A2*2"

    path = book(tmp_path / "m.xlsx", [["a", "b"], [1, None], [2, 3]], more)
    with caplog.at_level(logging.INFO):
        assert load_table(path, mixed=True).X["a"].tolist() == [1, 2]
    assert "read the sheet Sheet, not other (--sheet names another)" in caplog.text
    assert "hidden rows are read as all others: 2" in caplog.text
    assert "never computed are read as empty cells: B2" in caplog.text
    assert read_table(path, sheet="other").X["x"].tolist() == [5]
    with pytest.raises(DataError, match=r"no sheet 'othr' \(did you mean 'other'\?\); sheets: Sheet, other"):
        read_table(path, sheet="othr")


def test_sheets_without_names_and_what_is_no_sheet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = book(tmp_path / "plain.xlsx", [[1.5, "a"], [2.5, "b"], [0.5, "a"]])
    with pytest.raises(DataError, match="no column 'y'"):
        read_table(path, "y")
    assert read_table(path, "column 2", header=False).X["column 1"].tolist() == [1.5, 2.5, 0.5]
    with pytest.raises(DataError, match="has no label in 1 of 2 rows"):
        read_table(book(tmp_path / "e.xlsx", [["a", "y"], [1, "#N/A"], [2, "b"]]), "y")
    with pytest.raises(DataError, match="the sheet Sheet is empty"):
        read_table(book(tmp_path / "empty.xlsx", []))
    (tmp_path / "none.xlsx").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=r"cannot be read as Excel \(File is not a zip file\): save it again as .xlsx"):
        read_table(tmp_path / "none.xlsx")
    (tmp_path / "old.xls").write_text("x")
    with pytest.raises(DataError, match=r"of another spreadsheet save the sheet as .xlsx or CSV"):
        read_table(tmp_path / "old.xls")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(DataError, match=r"python -m pip install 'sureshot\[excel\]'"):
        read_table(path)

"""Spreadsheets of Excel: one sheet as a table, its cells as they are typed.

A sheet is read as people see it: the first line that holds anything has the names of columns; numbers shown with zeros
in front, as 00042, are text, since the zeros are part of a code; a cell that stands for several is in each of them, so
that a name above several columns is part of the name of each. What a sheet holds beside is told: other sheets, hidden
rows and columns, formulas that were never computed.
"""

from __future__ import annotations

import datetime
import importlib.util
import io
import logging
import re
import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from sureshot.data.checks import ERRORS_OF_CELLS, MISSING, in_one_form, listed, near, reason
from sureshot.data.delimited import TextFormat
from sureshot.data.headers import column_names_of
from sureshot.data.root import DataError

if TYPE_CHECKING:
    from openpyxl import Workbook
    from openpyxl.worksheet.worksheet import Worksheet

_log = logging.getLogger(__name__)

_ZEROS = re.compile(r"(0{2,})(?:;.*)?")  # a format of numbers that are shown with zeros in front
_FORMULA = re.compile(rb"<f[ >/]")


@dataclass(frozen=True)
class _Sheet:
    """Lines of cells, none of them empty, all of one width."""

    lines: tuple[tuple[Any, ...], ...]
    n_names: int  # lines that have names, if any has
    notes: tuple[str, ...]


def read_excel(
    path: Path,
    wanted: TextFormat,
    labels: Sequence[str] = (),  # columns in which only an empty cell is missing
    as_written: bool = False,  # text that stands for a gap stays
) -> pd.DataFrame:
    """Cells of a sheet: numbers, truth values, dates and text."""
    sheet = _sheet(path, wanted)
    for note in sheet.notes:
        _log.info("%s: %s", path, note)
    n_names = 0 if wanted.header is False else sheet.n_names
    rows = sheet.lines[n_names:]
    names = column_names_of(
        path,
        _names(sheet.lines[: max(n_names, 1)]),
        lambda: (["" if cell is None else str(cell) for cell in row] for row in rows),
        wanted.header,
        frozenset((*MISSING, *wanted.missing)),
    )
    gaps = {name: {""} if as_written else {"", *MISSING, *wanted.missing} for name in names}
    if not as_written:
        gaps |= {name: {"", *ERRORS_OF_CELLS} for name in labels}
    columns = {
        name: [None if isinstance(row[place], str) and row[place] in gaps[name] else row[place] for row in rows]
        for place, name in enumerate(names)
    }
    return pd.DataFrame({name: _typed(cells) for name, cells in columns.items()})


def _sheet(path: Path, wanted: TextFormat) -> _Sheet:
    if importlib.util.find_spec("openpyxl") is None:
        raise DataError(f"{path}: reading Excel needs the package openpyxl: python -m pip install 'sureshot[excel]'")
    state = path.stat()
    return _read_sheet(path, wanted.sheet, wanted.usual_sheet, (state.st_mtime_ns, state.st_size))


@lru_cache(maxsize=1)  # a command asks for the names of columns first, and then for the rows
def _read_sheet(path: Path, wanted: str | None, usual: str | None, version: tuple[int, int]) -> _Sheet:
    content = path.read_bytes()
    book = _opened(path, content, computed=True)
    names = [sheet.title for sheet in book.worksheets]
    if not names:
        raise DataError(f"{path} has no sheet of cells")
    if wanted is not None and wanted not in names:
        raise DataError(f"{path}: no sheet {wanted!r}{near(wanted, names)}; sheets: {listed(names)}")
    wanted = usual if wanted is None and usual in names else wanted
    sheet = book[wanted or names[0]]
    notes = []
    if wanted is None and len(names) > 1:
        notes.append(f"read the sheet {names[0]}, not {listed(names[1:])} (--sheet names another)")
    for what, dimensions in (("rows", sheet.row_dimensions), ("columns", sheet.column_dimensions)):
        if hidden := [str(key) for key, dimension in dimensions.items() if dimension.hidden]:
            notes.append(f"hidden {what} are read as all others: {listed(hidden)}")
    if never := _never_computed(path, content, sheet):
        notes.append(
            f"formulas that were never computed are read as empty cells: {listed(never)}; open and save it in a "
            "spreadsheet program to have them computed"
        )
    lines = [line for line in _lines(sheet) if any(cell is not None for cell in line)]
    if not lines:
        raise DataError(f"{path}: the sheet {sheet.title} is empty")
    width = max(place for line in lines for place, cell in enumerate(line, 1) if cell is not None)
    first = min(place for line in lines for place, cell in enumerate(line) if cell is not None)
    cut = tuple(tuple(line[first:width]) for line in lines)
    return _Sheet(cut, _lines_of_names(sheet, cut), tuple(notes))


def _opened(path: Path, content: bytes, computed: bool) -> Workbook:
    from openpyxl import load_workbook
    from openpyxl.utils.exceptions import InvalidFileException

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about styles and validation, of which nothing is read
            return load_workbook(io.BytesIO(content), data_only=computed)
    except (InvalidFileException, zipfile.BadZipFile, LookupError, ValueError, TypeError, OSError, EOFError) as error:
        raise DataError(f"{path} cannot be read as Excel ({reason(error)}): save it again as .xlsx") from None


def _never_computed(path: Path, content: bytes, sheet: Worksheet) -> list[str]:
    """Cells with a formula and no value."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = [name for name in archive.namelist() if name.startswith("xl/worksheets/") and name.endswith(".xml")]
        if not any(_FORMULA.search(archive.read(name)) for name in parts):
            return []
    formulas = _opened(path, content, computed=False)[sheet.title]
    cells = (cell for line in formulas.iter_rows() for cell in line if cell.data_type == "f")
    return [cell.coordinate for cell in cells if sheet[cell.coordinate].value is None]


def _lines(sheet: Worksheet) -> list[list[Any]]:
    """Cells line by line; one that stands for several is in each of them."""
    found = [[_value(cell.value, cell.number_format) for cell in line] for line in sheet.iter_rows(1, None, 1, None)]
    for area in sheet.merged_cells.ranges:
        for row in found[area.min_row - 1 : area.max_row]:
            row[area.min_col - 1 : area.max_col] = [found[area.min_row - 1][area.min_col - 1]] * area.size["columns"]
    return found


def _value(value: Any, shown_as: str) -> Any:
    """A cell's value, text in one form, None for nothing."""
    if isinstance(value, str):
        return in_one_form(value) or None
    if isinstance(value, int) and not isinstance(value, bool):
        shown = _ZEROS.fullmatch(str(shown_as))
        return value if shown is None else str(value).zfill(len(shown[1]))
    return value


def _lines_of_names(sheet: Worksheet, lines: Sequence[Sequence[Any]]) -> int:
    """How many lines the names of columns take: two where a cell of the first stands above several columns."""
    top = min((area.min_row for area in sheet.merged_cells.ranges if area.max_col > area.min_col), default=None)
    first = next(row for row, line in enumerate(sheet.iter_rows(), 1) if any(cell.value is not None for cell in line))
    below_are_names = len(lines) > 2 and all(isinstance(cell, str) for cell in lines[1] if cell is not None)
    return 2 if top == first and below_are_names else 1


def _names(lines: Sequence[Sequence[Any]]) -> list[str]:
    """Names of columns, those of two lines with a blank between them."""
    return [
        " ".join(dict.fromkeys(_name(part) for part in parts if part is not None)) for parts in zip(*lines, strict=True)
    ]


def _name(cell: Any) -> str:
    if isinstance(cell, datetime.datetime) and cell.time() == datetime.time():
        cell = cell.date()
    return str(cell)


def _typed(cells: list[Any]) -> pd.Series:
    """Cells of one type as a column of it."""
    column = pd.Series(cells, dtype=object)
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds and kinds <= {int, float}:
        return pd.to_numeric(column)
    if kinds and kinds <= {datetime.datetime, datetime.date}:
        return pd.to_datetime(column, errors="coerce") if _all_are_moments(column) else column
    return column.astype(bool) if kinds == {bool} and column.notna().all() else column


def _all_are_moments(column: pd.Series) -> bool:
    return bool(pd.to_datetime(column, errors="coerce").notna().eq(column.notna()).all())

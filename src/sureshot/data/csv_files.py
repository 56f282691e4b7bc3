"""CSV files, plain or gzipped: their text, their header, their cells."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import logging
import re
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sureshot.data.checks import ERRORS_OF_CELLS, MISSING
from sureshot.data.delimited import STANDARD_INPUT, TextFormat, any_column, between_blanks, read_text, standard_input
from sureshot.data.headers import NO_HEADER, column_names_of, looks_like_data
from sureshot.data.root import DataError
from sureshot.data.written_numbers import are_codes, bare_number, what_is_lost

_log = logging.getLogger(__name__)

SEPARATED_BY_BLANKS = "blanks part every line into {} cells: --separator space (separator=' ') takes them apart"

_QUOTES = "a quotation mark that begins a cell and is part of its text, as of inches, must be doubled, or taken out"
_UNCLOSED = re.compile(r"EOF inside string starting at row (\d+)")
_ODD = r" *(?:0\d+|\d{16,}|\d+[eE]\+?\d+) *"  # cells that may be codes, or lose digits
_CODE = re.compile(r"0\d+|\d+[eE][+-]?\d+")  # 007 and 1E2 would be written as 7 and 100


@dataclass(frozen=True)
class Codes:
    """What becomes of numbers that look like codes, such as 007."""

    may_be: Callable[[str], bool]  # whether a column can be one of codes, by its name
    apart: bool  # whether it is read as text then, else as numbers with a warning


def open_text(
    path: Path, kind: str, wanted: TextFormat, is_used: Callable[[str], bool] = any_column
) -> tuple[str, TextFormat]:
    """Whole text of a CSV file, and its format."""
    try:
        data = standard_input() if path == STANDARD_INPUT else path.read_bytes()
        data = gzip.decompress(data) if kind == ".csv.gz" else data
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} is not a whole gzip file ({error}): write or fetch it again") from None
    source = "standard input" if path == STANDARD_INPUT else str(path)
    text, found = read_text(data, source, wanted, is_used)
    if not text.strip():
        raise DataError(f"{source} is empty")
    return text, found


def _rows(text: str, found: TextFormat) -> Iterator[list[str]]:
    """Cells of the header and of all rows."""
    assert found.separator is not None
    return csv.reader(io.StringIO(text), delimiter=found.separator, skipinitialspace=True)


def read_header(text: str, found: TextFormat, path: Path) -> list[str]:
    """Column names; the first may be empty, others without one are called by their place."""
    first = _first_row(text, found, path)
    if len(first) == 1 and (width := between_blanks(text)):
        _log.warning("%s: %s", path, SEPARATED_BY_BLANKS.format(width))
    missing = frozenset((*MISSING, *found.missing))
    return column_names_of(path, first, lambda: _other_rows(text, found), found.header, missing)


def header_in_doubt(text: str, found: TextFormat) -> str | None:
    """In words, why a column may be sought in vain; None where nothing is odd about the first line."""
    first = _first_row(text, found, Path())
    if len(first) == 1:
        width = between_blanks(text)
        return SEPARATED_BY_BLANKS.format(width) if width else "is the header the first line?"
    missing = frozenset((*MISSING, *found.missing))
    in_doubt = found.header is None and looks_like_data(first, _other_rows(text, found), missing)
    return NO_HEADER if in_doubt else None


def _first_row(text: str, found: TextFormat, path: Path) -> list[str]:
    try:
        return next(row for row in _rows(text, found) if row)
    except csv.Error as error:
        raise DataError(f"{path}: the header cannot be read ({error})") from None


def _other_rows(text: str, found: TextFormat) -> Iterator[list[str]]:
    """All but the first, none of them empty."""
    with suppress(csv.Error):  # a cell of more than a hundred thousand letters, which pandas reads
        yield from itertools.islice((row for row in _rows(text, found) if row), 1, None)


def read_csv(
    path: Path,
    kind: str,
    labels: Sequence[str],
    as_text: Sequence[str] | None,  # None: everything, empty cells and all
    wanted: TextFormat,
    is_used: Callable[[str], bool],
    codes: Codes | None = None,
) -> tuple[pd.DataFrame, TextFormat]:
    """Cells, and how they are written."""
    text, found = open_text(path, kind, wanted, is_used)
    header = read_header(text, found, path)
    assert found.decimal is not None
    columns = header if as_text is not None else []
    gaps = [*MISSING, *found.missing]
    missing = {name: ["", *ERRORS_OF_CELLS] if name in labels else gaps for name in columns if name}
    texts = header if as_text is None else [name for name in as_text if name in header]
    text = text.strip("\r\n") if len(header) == 1 else text
    layout = _layout(found, header)
    try:
        with warnings.catch_warnings():
            # A row longer than the header only warns, and would silently lose its last cells.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(
                io.StringIO(text),
                dtype=dict.fromkeys(texts, str),
                decimal=found.decimal,
                na_values=missing,
                low_memory=False,
                **layout,
            )
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        if unclosed := _UNCLOSED.search(str(error)):
            raise DataError(
                f"{path}: a quotation mark in row {int(unclosed[1]) - 1}, counted from 0, is never closed: {_QUOTES}"
            ) from None
        detail = _too_long(text, found, len(header)) or str(error).strip().replace("\n", " ")
        raise DataError(
            f"{path}: rows and header do not have the same number of cells ({detail}); the header must be the first "
            f"line, and cells are taken to be separated by {found.separator!r} (--separator names another)"
        ) from None
    except (ValueError, OverflowError) as error:
        raise DataError(f"{path} cannot be read as CSV ({str(error).strip()})") from None
    may_be_short = frame.iloc[:, -1].isna().any()  # the last cell of a row that ends early is missing
    frame = _without_empty_end(frame, path)
    if as_text is None:
        return frame, found
    named = [name for name in (*labels, "") if name in header and pd.api.types.is_numeric_dtype(frame[name].dtype)]
    if as_codes := _codes_among(codes, named, frame, text, layout, gaps, path):
        return read_csv(path, kind, labels, [*as_text, *as_codes], found, is_used)
    if may_be_short:
        _mention_short_rows(path, text, found, len(header))
    _check_quotes(path, text, found, [pd.api.types.is_numeric_dtype(frame[name].dtype) for name in header])
    return frame, found


def _layout(found: TextFormat, header: Sequence[str]) -> dict[str, Any]:
    """Where cells are in a text, in the words of pandas."""
    return {
        "header": None if found.header is False else 0,
        "names": list(header),
        "index_col": False,
        "sep": found.separator,
        "skipinitialspace": True,
        "keep_default_na": False,
        "skip_blank_lines": len(header) > 1,  # in a single column an empty line is a row, whose cell is missing
    }


def _codes_among(
    codes: Codes | None,
    named: Sequence[str],  # columns of labels and of names of rows, of which one code makes text
    frame: pd.DataFrame,
    text: str,
    layout: dict[str, Any],
    gaps: Sequence[str],
    path: Path,
) -> list[str]:
    """Columns of numbers that are rather codes, if these are to be set apart; a warning of others that lose text."""
    doubtful = {name: _may_lose_text(frame[name]) for name in layout["names"] if codes and codes.may_be(name)}
    doubtful = {name: rows for name, rows in doubtful.items() if rows.any()}
    if not doubtful and not named:
        return []
    cells = pd.read_csv(io.StringIO(text), usecols=[*doubtful, *named], dtype=str, **layout)[: len(frame)]
    as_codes = [name for name in named if cells[name].str.strip().str.fullmatch(_CODE, na=False).any()]
    for name in doubtful:
        texts, numbers = cells[name][doubtful[name]], frame[name][doubtful[name]]
        if not texts.str.fullmatch(_ODD).any() and texts.nunique() <= numbers.nunique():
            continue
        distinct = {cell.strip() for cell in cells[name].unique()}.difference(gaps)
        if codes is not None and codes.apart and are_codes(distinct):
            as_codes.append(name)
        elif lost := what_is_lost(sorted(distinct)):
            _log.warning(
                "%s: in column %s %s; --kind %s=category takes cells as they are written", path, name, lost, name
            )
    return as_codes


def _may_lose_text(column: pd.Series) -> np.ndarray:
    """Rows (n,) whose number may not give its text back: a whole one may be a code, one that comes again two texts."""
    kinds = pd.api.types
    if not kinds.is_numeric_dtype(column.dtype) or kinds.is_bool_dtype(column.dtype):
        return np.zeros(len(column), dtype=bool)
    values = column.to_numpy()
    return (values == np.round(values)) | (column.duplicated(keep=False) & column.notna()).to_numpy()


def _without_empty_end(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Without the rows at the end in which no cell holds anything, as spreadsheets write them; one row stays."""
    if frame.shape[1] < 2 or not len(frame):
        return frame
    filled = (frame.notna() & (frame != "")).to_numpy().any(axis=1)
    last = int(np.flatnonzero(filled)[-1]) + 1 if filled.any() else 1
    if last == len(frame):
        return frame
    _log.info("%s: left out %d rows at the end, which hold nothing", path, len(frame) - last)
    return frame.iloc[:last].copy()


def _too_long(text: str, found: TextFormat, width: int) -> str | None:
    """The first row that has more cells than there are columns, in words."""
    rows = _rows(text, found)
    try:
        numbers = enumerate(len(row) for row in rows if row)
        place, count = next((place, count) for place, count in numbers if count > width)
    except (csv.Error, StopIteration):
        return None
    return f"row {place - 1}, counted from 0, has {count}, the header {width}"


def _check_quotes(path: Path, text: str, found: TextFormat, is_number: Sequence[bool]) -> None:
    """Look for cells that have swallowed rows, between two quotation marks that were part of the text, as of inches.

    Such a cell has, between its line breaks, as many separators as rows have there, and numbers where rows have them.
    It is an error if all cells of several lines are like that, and a note if some are or no column has numbers.
    """
    assert found.separator is not None
    assert found.decimal is not None
    width = len(is_number)
    if width == 1 or '"' not in text:
        return
    try:
        rows = [row for row in _rows(text, found) if row][1:]
    except csv.Error:  # a cell of more than a hundred thousand letters, which pandas reads
        return
    inside = [(number, place) for number, row in enumerate(rows) for place, cell in enumerate(row) if "\n" in cell]
    alike = []
    for number, place in inside:
        row = rows[number]
        lines = [line.split(found.separator) for line in re.split(r"\r?\n", row[place])]
        lines = [[*row[:place], *lines[0]], *lines[1:-1], [*lines[-1], *row[place + 1 :]]]
        if all(len(line) == width for line in lines):
            numbers = [cell for line in lines for cell, is_one in zip(line, is_number, strict=True) if is_one]
            if None not in [bare_number(cell, found.decimal) for cell in numbers]:
                alike.append((number, len(lines)))
    if not alike:
        return
    number, n_lines = alike[0]
    told = f"{path}: a cell in row {number}, counted from 0, holds {n_lines} lines that look like rows"
    if any(is_number) and len(alike) == len(inside):
        raise DataError(f"{told}: {_QUOTES}")
    _log.info("%s; if they are: %s", told, _QUOTES)


def _mention_short_rows(path: Path, text: str, found: TextFormat, width: int) -> None:
    """A note on rows that end early, whose last cells are read as empty: they may have been cut off."""
    rows = _rows(text, found)
    try:
        next(row for row in rows if row)
        widths = [len(row) for row in rows if row]
    except csv.Error:  # a cell of more than a hundred thousand letters, which pandas reads
        return
    short = [number for number, cells in enumerate(widths) if cells < width]
    if short and width > 1:
        _log.info(
            "%s: %d of %d rows have fewer cells than the header (the first is row %d, counted from 0): what is missing "
            "is read as empty",
            *(path, len(short), len(widths), short[0]),
        )

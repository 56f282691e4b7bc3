"""Tables with a column of labels, from the files people have.

`load_table` reads CSV (also gzipped), Parquet and NPZ into a `DataTable`: a matrix of finite numbers, labels if
there are any, and an identifier for each row. It guesses little and checks everything, because what it lets
through is learnt from: a column of text, a missing cell, two columns of the same name, a truncated file each
give a `DataError` of one line that names the file, the column or row, and what to do. Asked for mixed columns, it
leaves text and missing cells to the estimators, which take them as they are in a DataFrame.

Conventions:

- Columns whose names begin with ``meta_`` are notes, not features, and are left out.
- A first column without a name is the index that pandas writes by default: it identifies rows and is no
  feature.
- In the label column only an empty cell is missing, so that classes may be called ``NA`` or ``None``.
- Columns of true/false count as numbers.
- The path ``-`` is standard input, as CSV.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from sureshot.data.checks import check_class_labels, check_exists, check_names, listed, near, reason
from sureshot.data.csv_files import open_text, read_csv, read_header
from sureshot.data.delimited import ANY, GROUPED, STANDARD_INPUT, TextFormat, any_column
from sureshot.data.embeddings import read_npz
from sureshot.data.root import DataError

_log = logging.getLogger(__name__)

META_PREFIX = "meta_"
_NAMES_OF_ROWS = frozenset(
    ("id", "ids", "index", "idx", "key", "nr", "no", "number", "row", "rowname", "rownames", "uid", "unnamed", "uuid")
)
_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".txt", ".parquet", ".npz")
_WITH_COMMA = re.compile(rf"[+-]?(\d+|{GROUPED})(,\d+)?")  # a number where the comma is the decimal sign
_DECIMAL_POINT = re.compile(r"(?<!\d)0?\.\d|\.(?!\d{3}(?!\d))\d")  # which groups no digits
_BETWEEN_GROUPS = re.compile(r"[.\s'’]")
_SIGNS_SWAPPED = str.maketrans(".,", ",.")


class DataTable(NamedTuple):
    """Rows ready for an estimator."""

    X: (
        pd.DataFrame | np.ndarray
    )  # (N, D) float, other columns if mixed, bytes of images; a DataFrame if they have names
    y: np.ndarray | None  # (N,), None when no labels were asked for or found
    feature_names: tuple[str, ...] | None  # length D, None for a bare array
    row_ids: np.ndarray  # (N,) the column that was named, the table's own index, or 0 to N-1; the files of images
    groups: np.ndarray | None = None  # (N,) text of the column that was asked for, None where there is nothing


def load_table(
    path: str | os.PathLike[str],
    target: str | None = None,  # the column of labels, by default none; of an NPZ file the array, by default y or label
    *,
    features: Sequence[str] | None = None,  # the columns wanted, in order; by default all but target and ignored
    ignore: Iterable[str] = (),  # columns to leave out; names that are not in the file are no error
    row_id: str | None = None,  # a column that names rows, each once, and is no feature
    group: str | None = None,  # a column that says which rows belong together, and is no feature
    text_labels: bool = False,  # read labels as text even if they look like numbers; those like 007 are text anyway
    allow_missing: bool = False,  # keep missing cells as NaN; an error by default, since arrays must have none
    mixed: bool = False,  # of CSV and Parquet keep columns of text and dates as well, and missing cells
    as_text: Iterable[str] = (),  # columns whose cells stay text even if they look like numbers, where mixed
    # Of mixed columns that a model knows, those whose numbers are text with a decimal comma.
    with_comma: Iterable[str] | None = None,
    text: TextFormat = ANY,  # of CSV
) -> DataTable:
    """Read a CSV (``.csv``, ``.csv.gz``), Parquet or NPZ file."""
    path = Path(path)
    kind = _check_file(path)
    if kind == ".npz":
        for name, what in ((row_id, "names rows"), (group, "says which rows belong together")):
            if name is not None:
                raise DataError(f"{path}: arrays have no column {name!r} that {what}")
        return _from_npz(path, target, features, text_labels, allow_missing)
    stated = tuple(name for name in (target, row_id, group) if name is not None)
    are_known, with_comma = with_comma is not None, set(with_comma or ()) - set(stated)
    texts = [*(name for name in stated if text_labels or name in (row_id, group)), *as_text, *with_comma]
    unused = {"", *ignore, *stated}

    def is_used(name: str) -> bool:
        return name in features if features is not None else not (name in unused or name.startswith(META_PREFIX))

    frame, row_ids, found = _read_frame(path, kind, stated, texts, text, is_used)
    for name in with_comma & set(map(str, frame.columns)) if kind != ".parquet" else ():
        if _points_are_decimal(frame[name], text, found):
            frame[name] = frame[name].str.translate(_SIGNS_SWAPPED)
    if found.decimal == ",":
        for name in set(map(str, frame.columns)) - {*texts, *stated}:
            numbers = _grouped(frame[name])
            if numbers is not None:  # as text of new mixed columns, so that the comma is the column's for later cells
                as_numbers = are_known or not mixed
                frame[name] = numbers if as_numbers else numbers.map(_with_comma, na_action="ignore")
    names = [str(name) for name in frame.columns]
    for name in stated:
        if name not in names:
            raise DataError(f"{path}: no column {name!r}{near(name, names)}; columns: {listed(names)}")
    if row_id is not None:
        row_ids = _row_ids(path, frame[row_id])
        ignore = {*ignore, row_id}
    groups = None
    if group is not None:
        groups = _stripped(frame[group])
        ignore = {*ignore, group}
    y = None
    if target is not None:
        y = check_class_labels(path, frame[target], f"column {target!r}", text_labels)
    X = _features(path, frame, names, target, features, set(ignore), allow_missing, mixed)
    return DataTable(X, y, tuple(X.columns), row_ids, groups)


def column_names(path: str | os.PathLike[str], text: TextFormat = ANY) -> list[str] | None:
    """Names of a table's columns without reading its rows; None for an NPZ file."""
    path = Path(path)
    kind = _check_file(path)
    if kind == ".npz":
        return None
    if kind == ".parquet":
        return [str(name) for name in _read_parquet(path, None).columns]
    return [name for name in read_header(*open_text(path, kind, text), path) if name]


def cells_as_written(path: str | os.PathLike[str], text: TextFormat = ANY) -> tuple[pd.DataFrame, TextFormat]:
    """All columns of a CSV or Parquet file, notes and names of rows as well; of CSV as text, and how it is written."""
    path = Path(path)
    kind = _check_file(path)
    if kind == ".npz":
        raise DataError(f"{path} holds arrays: its rows have no columns to write beside others")
    if kind == ".parquet":
        return _read_parquet(path, None), TextFormat("UTF-8", ",", ".")
    return read_csv(path, kind, (), None, text, any_column)


def table_suffix(path: Path) -> str | None:
    """The ending of a file's name that says it is a table; None where it does not."""
    return next((suffix for suffix in _SUFFIXES if path.name.lower().endswith(suffix)), None)


def names_rows(column: pd.Series) -> bool:
    """Whether a column looks like numbers given to rows: called like it, whole, and no two alike."""
    words = set(re.split(r"[^a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", str(column.name)).lower()))
    if not words & _NAMES_OF_ROWS or len(column) < 2 or not pd.api.types.is_numeric_dtype(column.dtype):
        return False
    values = column.to_numpy(dtype=np.float64)
    return bool(np.isfinite(values).all() and (values == np.round(values)).all() and len(set(values)) == len(values))


def columns_of_classes(
    path: str | os.PathLike[str],  # CSV or Parquet
    names: Sequence[str],  # of its columns
    classes: Iterable[object],
    text: TextFormat = ANY,
) -> list[str]:
    """Those of the named columns that hold nothing but classes, compared as text, and perhaps missing cells."""
    path = Path(path)
    frame = _read_frame(path, _check_file(path), names, names, text)[0]
    known = {str(label) for label in classes}
    cells = {name: frame[name].dropna() for name in names if name in frame}
    return [name for name, given in cells.items() if len(given) and set(_as_text(given)) <= known]


def _as_text(cells: pd.Series) -> list[str]:
    """Cells as labels are compared: a whole number has no fraction."""
    if pd.api.types.is_float_dtype(cells.dtype):
        return [str(int(cell)) if float(cell).is_integer() else str(cell) for cell in cells]
    return [str(cell) for cell in cells]


def _check_file(path: Path) -> str:
    """Suffix of a readable, non-empty file of a known kind."""
    if path == STANDARD_INPUT:
        return ".csv"
    if path.is_dir():
        raise DataError(f"{path} is a folder: name a {listed(_SUFFIXES)} file")
    check_exists(path)
    kind = table_suffix(path)
    if kind is None:
        raise DataError(
            f"{path}: unknown kind of file, expected one of {listed(_SUFFIXES)} (or, for a learner of images, an image "
            "such as .png or .jpg); of a spreadsheet save the sheet as CSV"
        )
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty")
    return kind


def _read_frame(
    path: Path,
    kind: str,
    labels: Sequence[str],  # columns of labels and of names of rows
    as_text: Sequence[str],  # columns that are read as text
    text: TextFormat,
    is_used: Callable[[str], bool] = any_column,  # whether a column's cells say what the decimal sign is
) -> tuple[pd.DataFrame, np.ndarray, TextFormat]:
    """All columns but the index and notes, the index, and how the text is written."""
    if kind == ".parquet":
        frame, found = _read_parquet(path, labels), ANY
    else:
        frame, found = read_csv(path, kind, labels, as_text, text, is_used)
    if frame.shape[0] == 0:
        raise DataError(f"{path} has a header but no rows")
    row_ids = np.asarray(frame.index)
    if frame.columns[0] == "":
        row_ids = np.asarray(frame[""])
        if frame[""].duplicated().any():
            _log.info("%s: the first column has no name, so it names rows, though some names come again", path)
        frame = frame.drop(columns="")
    notes = [name for name in frame.columns if name.startswith(META_PREFIX) and name not in labels]
    if notes:
        _log.info("%s: left out the columns %s (names beginning %s)", path, listed(notes), META_PREFIX)
        frame = frame.drop(columns=notes)
    return frame, row_ids, found


def _points_are_decimal(column: pd.Series, stated: TextFormat, found: TextFormat) -> bool:
    """Whether a file writes with points what the column's numbers had commas for.

    What is stated holds; else commas in cells, or points that cannot group digits, tell; else the separator.
    """
    if stated.decimal is not None:
        return stated.decimal == "."
    cells = [cell.strip() for cell in column.dropna()]
    if not cells or any("," in cell for cell in cells):
        return False
    return found.separator == "," or any(map(_DECIMAL_POINT.search, cells))


def _grouped(column: pd.Series) -> pd.Series | None:
    """Of text that is numbers like 1.250 and 1 250,50 where the comma is the decimal sign, these; None of other text.

    Pandas reads the comma, but nothing between thousands.
    """
    if not (pd.api.types.is_object_dtype(column.dtype) or pd.api.types.is_string_dtype(column.dtype)):
        return None
    cells = column.dropna()
    if not len(cells) or not all(isinstance(cell, str) and _WITH_COMMA.fullmatch(cell.strip()) for cell in cells):
        return None
    plain = column.map(lambda cell: _BETWEEN_GROUPS.sub("", cell.strip()).replace(",", "."), na_action="ignore")
    numbers = [cell if isinstance(cell, str) else np.nan for cell in plain]
    return pd.Series(numbers, column.index, dtype=np.float64, name=column.name)


def _with_comma(number: float) -> str:
    """With the comma as decimal sign, and no doubt about it."""
    return repr(float(number)).replace(".", ",")


def _row_ids(path: Path, column: pd.Series) -> np.ndarray:
    """Names of rows, each once."""
    if column.isna().any():
        place = int(np.flatnonzero(column.isna())[0])
        raise DataError(f"{path}: column {column.name!r} is to name rows and is empty in row {place}, counted from 0")
    twice = column[column.duplicated()]
    if len(twice):
        raise DataError(
            f"{path}: column {column.name!r} is to name rows, but names come again in {len(twice)} of its rows, the "
            f"first is {str(twice.iloc[0])[:40]!r} in row {int(twice.index[0])}, counted from 0: drop these rows"
        )
    return np.asarray(column)


def _stripped(column: pd.Series) -> np.ndarray:
    """Cells as text (n,), None where there is nothing."""
    texts = np.array([str(cell).strip() for cell in column], dtype=object)
    texts[column.isna().to_numpy(dtype=bool) | (texts == "")] = None
    return texts


def _read_parquet(path: Path, index: Sequence[str] | None) -> pd.DataFrame:
    """The columns, those of so many `index` levels among them as are named; all that have a name for None."""
    if importlib.util.find_spec("pyarrow") is None:
        raise DataError(f"{path}: reading Parquet needs the package pyarrow: python -m pip install 'sureshot[parquet]'")
    try:
        frame = pd.read_parquet(path, engine="pyarrow")
    except (ValueError, OSError, KeyError) as error:
        raise DataError(f"{path} cannot be read as Parquet ({reason(error)}): write or fetch it again") from None
    if frame.shape[1] == 0:
        raise DataError(f"{path} has no columns")
    frame.columns = pd.Index([str(name) for name in frame.columns])
    levels = [name for name in frame.index.names if name is not None and str(name) not in frame.columns]
    if wanted := [name for name in levels if index is None or name in index]:
        frame = frame.reset_index(wanted)
        frame.columns = pd.Index([str(name) for name in frame.columns])
    check_names(path, list(frame.columns))
    return frame


def _features(
    path: Path,
    frame: pd.DataFrame,
    names: list[str],
    target: str | None,
    wanted: Sequence[str] | None,
    ignore: set[str],
    allow_missing: bool,
    mixed: bool,
) -> pd.DataFrame:
    """The feature columns, numbers as float64, checked."""
    if target is not None and target not in (wanted or ()):
        ignore = ignore | {target}
    present = [name for name in names if name not in ignore]
    if wanted is None:
        chosen = present
    else:
        chosen = list(wanted)
        if taken := [name for name in chosen if name in ignore and name in names]:
            raise DataError(
                f"{path}: the model learns from column {taken[0]!r}, which is to be left out, or to be the labels or "
                "names of rows: it can be neither (--drop, --target, --id)"
            )
        _check_same_columns(path, present, chosen)
    if not chosen:
        raise DataError(f"{path} has no feature columns beside {listed(sorted(ignore)) or 'the index'}")
    X = frame[chosen]
    other = [name for name in chosen if not (_is_number(X[name]) or (not mixed and _holds_truths(X[name])))]
    if other and not mixed:
        cell = _first_other(X[other[0]])
        advice = "correct the cells, drop the column, or prefix its name with meta_ to leave it out"
        if wanted is not None:
            advice = "correct the cells, since the model wants these columns"
        raise DataError(
            f"{path}: not numeric: {_columns(other)} ({cell} in {other[0]!r}); here numbers only can be used: {advice}"
        )
    numbers = [name for name in chosen if name not in other]
    cells = {name: X[name].to_numpy(dtype=np.float64, na_value=np.nan) for name in numbers}
    X = pd.DataFrame({name: X[name].array if name in other else cells[name] for name in chosen})
    values = X[numbers].to_numpy(dtype=np.float64)
    if not (allow_missing or mixed) and np.isnan(values).any():
        counts = Counter({name: int(np.isnan(values[:, i]).sum()) for i, name in enumerate(numbers)})
        holes = [f"{name} ({count})" for name, count in counts.items() if count]
        raise DataError(
            f"{path}: missing cells in {_columns(holes)}; fill them in, or fit on a table, whose gaps are medians"
        )
    infinite = [name for i, name in enumerate(numbers) if np.isinf(values[:, i]).any()]
    if infinite:
        raise DataError(f"{path}: infinite numbers in {_columns(infinite)}; replace or drop those rows")
    return X


def _check_same_columns(path: Path, present: Sequence[str], wanted: Sequence[str]) -> None:
    """Refuse a file that lacks columns; a note says which it has besides."""
    missing = [name for name in wanted if name not in set(present)]
    unexpected = [name for name in present if name not in set(wanted)]
    if missing:
        besides = f"; unexpected: {listed(unexpected)}" if unexpected else ""
        raise DataError(
            f"{path}: the columns differ from those that the model was fitted on ({len(wanted)}); "
            f"missing: {listed(missing)}{near(missing[0], unexpected)}{besides}"
        )
    if unexpected:
        _log.info("%s: ignored columns that the model does not know: %s", path, listed(unexpected))


def _is_number(column: pd.Series) -> bool:
    kinds = pd.api.types
    if kinds.is_bool_dtype(column.dtype):
        return True
    if kinds.is_complex_dtype(column.dtype):
        return False
    if column.isna().all():  # an empty column is missing cells, not text
        return True
    return bool(kinds.is_numeric_dtype(column.dtype))


def _holds_truths(column: pd.Series) -> bool:
    """Whether all cells that are there are truth values."""
    return pd.api.types.is_object_dtype(column.dtype) and all(isinstance(cell, bool) for cell in column.dropna())


def _first_other(column: pd.Series) -> str:
    """The first cell that is neither missing nor a number, and its row."""
    present = column.notna().to_numpy(dtype=bool)
    number = pd.to_numeric(column, errors="coerce").notna().to_numpy(dtype=bool)
    odd = np.flatnonzero(present & ~number)
    first = int(odd[0] if len(odd) else np.flatnonzero(present)[0])
    return f"for instance {str(column.iloc[first])[:40]!r} in row {first}, counted from 0,"


def _columns(names: Sequence[str]) -> str:
    return ("column " if len(names) == 1 else f"{len(names)} columns: ") + listed(names)


def _from_npz(
    path: Path,
    target: str | None,
    features: Sequence[str] | None,
    text_labels: bool,
    allow_missing: bool,
) -> DataTable:
    X, y, names = read_npz(path, target, allow_missing=allow_missing)
    labels = None
    if y is not None:
        as_text = text_labels and y.dtype.kind == "U"  # numbers stay numbers, unlike in a text file
        labels = check_class_labels(path, pd.Series(y), "the label array", as_text)
    row_ids = np.arange(len(X))
    if names is None:
        if features is not None and len(features) != X.shape[1]:
            raise DataError(f"{path}: X has {X.shape[1]} columns, expected {len(features)}: {listed(features)}")
        if features is None:
            return DataTable(X, labels, None, row_ids)
        _log.info("%s has no feature_names: its columns are taken in the model's order", path)
        names = list(features)
    frame = pd.DataFrame(X, columns=names)
    if features is not None:
        _check_same_columns(path, names, features)
        frame = frame[list(features)]
    return DataTable(frame, labels, tuple(frame.columns), row_ids)

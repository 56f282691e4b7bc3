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

import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from sureshot.data.cells import holds_truths, is_numeric, is_object
from sureshot.data.checks import listed, near
from sureshot.data.csv_files import Codes, header_in_doubt, open_text, read_csv, read_header
from sureshot.data.delimited import ANY, TextFormat, any_column, no_column
from sureshot.data.embeddings import read_npz
from sureshot.data.excel_files import read_excel
from sureshot.data.file_kinds import EXCEL, check_table_file
from sureshot.data.parquet_files import parquet_columns, read_parquet, with_levels
from sureshot.data.remembered import ATTRIBUTE, Remembered, folded, spelt
from sureshot.data.root import DataError
from sureshot.data.targets import Task, check_target
from sureshot.data.written_numbers import WayOfWriting, are_codes, as_known, as_plain_numbers, with_comma

_log = logging.getLogger(__name__)

META_PREFIX = "meta_"
_NAMES_OF_ROWS = frozenset(
    ("id", "ids", "index", "idx", "key", "nr", "no", "number", "row", "rowname", "rownames", "uid", "unnamed", "uuid")
)


class DataTable(NamedTuple):
    """Rows ready for an estimator."""

    X: (
        pd.DataFrame | np.ndarray
    )  # (N, D) float, other columns if mixed, bytes of images; a DataFrame if they have names
    y: np.ndarray | None  # (N,), None when no labels were asked for or found
    feature_names: tuple[str, ...] | None  # length D, None for a bare array
    row_ids: np.ndarray  # (N,) the column that was named, the table's own index, or 0 to N-1; the files of images
    groups: np.ndarray | None = None  # (N,) text of the column that was asked for, None where there is nothing
    numbers: bool = False  # whether y holds numbers (float64) rather than labels


def load_table(
    path: str | os.PathLike[str],
    target: str | None = None,  # the column of labels, by default none; of an NPZ file the array, by default y or label
    *,
    features: Sequence[str] | None = None,  # the columns wanted, in order; by default all but target and ignored
    ignore: Iterable[str] = (),  # columns to leave out; names that are not in the file are no error
    row_id: str | None = None,  # a column that names rows, each once, and is no feature
    group: str | None = None,  # a column that says which rows belong together, and is no feature
    task: Task = "classes",  # what the target holds; "auto" finds out
    text_labels: bool = False,  # read labels as text even if they look like numbers; those like 007 are text anyway
    allow_missing: bool = False,  # keep missing cells as NaN; an error by default, since arrays must have none
    mixed: bool = False,  # of CSV and Parquet keep columns of text and dates as well, and missing cells
    as_text: Iterable[str] = (),  # columns whose cells stay text even if they look like numbers, where mixed
    as_numbers: Iterable[str] = (),  # columns that are numbers even if they look like codes, such as 007
    # Of columns that a model knows, how numbers were written, where points or commas can mean two things.
    written: Mapping[str, WayOfWriting] | None = None,
    fold_case: bool = False,  # whether labels that differ in upper and lower case only are one class
    text: TextFormat = ANY,
    part: pd.DataFrame | None = None,  # of a Parquet file, one of `parquet_parts`, in place of all rows
) -> DataTable:
    """Read a CSV (``.csv``, ``.csv.gz``), Excel, Parquet or NPZ file, or a folder of Parquet files."""
    path = Path(path)
    kind = check_table_file(path)
    if kind == ".npz":
        for name, what in ((row_id, "names rows"), (group, "says which rows belong together")):
            if name is not None:
                raise DataError(f"{path}: arrays have no column {name!r} that {what}")
        return _from_npz(path, target, features, text_labels, allow_missing, task)
    stated = tuple(name for name in (target, row_id, group) if name is not None)
    known = {} if written is None else {name: way for name, way in written.items() if name not in stated}
    texts = [*(name for name in stated if text_labels or name in (row_id, group)), *as_text, *known]
    unused, is_number = {"", *ignore, *stated}, set(as_numbers)

    def is_used(name: str) -> bool:
        return name in features if features is not None else not (name in unused or name.startswith(META_PREFIX))

    def may_be_code(name: str) -> bool:
        return written is None and is_used(name) and name not in is_number

    def tells_sign(name: str) -> bool:
        tells = is_used(name) or (name == target and task == "numbers")
        return tells and known.get(name, WayOfWriting(",", False)).decimal == ","

    frame, row_ids, found = _read_frame(path, kind, stated, texts, text, tells_sign, Codes(may_be_code, mixed), part)
    for name in set(known) & set(map(str, frame.columns)):
        frame[name] = as_known(frame[name], known[name], text.decimal, found.separator)
    if found.decimal == ",":
        for name in set(map(str, frame.columns)) - {*texts, *stated}:
            is_code = may_be_code(name) and is_object(frame[name]) and are_codes(set(frame[name].dropna()))
            numbers = None if is_code else with_comma(frame[name])
            if numbers is not None:  # as text of new mixed columns, so that the comma is the column's for later cells
                as_plain = written is not None or not mixed
                frame[name] = as_plain_numbers(numbers, ",") if as_plain else numbers
    names = [str(name) for name in frame.columns]
    for name in stated:
        if name not in names:
            doubt = doubt_of_header(path, text)
            raise DataError(f"{path}: no column {name!r}{near(name, names)}; columns: {listed(names)}{doubt}")
    if row_id is not None:
        row_ids = named_rows(path, frame[row_id])
        ignore = {*ignore, row_id}
    groups = None
    if group is not None:
        groups = _stripped(frame[group])
        ignore = {*ignore, group}
    y, is_numbers = None, False
    if target is not None:
        y, is_numbers = check_target(path, frame[target], f"column {target!r}", text_labels, task, found)
        y = folded(y) if fold_case else y
    columns = {str(name): column for name, column in frame.items()}
    del frame  # so that each column can go when it has been taken
    X = _features(path, columns, names, target, features, set(ignore), allow_missing, mixed, text)
    comma = [str(name) for name, column in X.items() if found.decimal == "," and _has_fractions(column)]
    way = Remembered(text.header is not False, text.missing, tuple(comma), fold_case, text.separator, text.sheet)
    X.attrs[ATTRIBUTE] = way.to_json()
    return DataTable(X, y, tuple(X.columns), row_ids, groups, is_numbers)


def read_table(
    path: str | os.PathLike[str],
    target: str | None = None,
    *,
    task: Task = "classes",
    features: Sequence[str] | None = None,
    ignore: Iterable[str] = (),
    row_id: str | None = None,
    group: str | None = None,
    header: bool | None = None,
    missing: Iterable[str] = (),
    fold_case: bool = False,
    as_text: Iterable[str] = (),
    as_numbers: Iterable[str] = (),
    separator: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    sheet: str | None = None,
) -> DataTable:
    """Read a table as estimators take it: a DataFrame of features with text, dates and gaps, and its labels.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "cars.csv"
    >>> _ = path.write_text("hp;kind\\n90,5;van\\nunknown;Van\\n", encoding="utf-8")
    >>> X, y, *_ = read_table(path, "kind", missing=["unknown"], fold_case=True)
    >>> X["hp"].tolist(), y.tolist()
    ([90.5, nan], ['Van', 'Van'])

    Parameters
    ----------
    path
        CSV (``.csv``, ``.csv.gz``, ``.tsv``, ``.txt``), Excel (``.xlsx``, ``.xlsm``, with the extra ``excel``), Parquet
        (with the extra ``parquet``; also a folder of such files) or NPZ; ``-`` is CSV on standard input.
    target
        The column of labels, of an NPZ file the array; by default none.
    task
        What the target holds: "classes", "numbers" (for `GPRegressor`), or "auto" to find out.
    features, ignore
        The columns wanted, in their order; or columns to leave out. By default all that have no other use.
    row_id, group
        Columns that name rows, each once, and that say which rows belong together; they are no features.
    header
        Whether the first line has the names of columns; False calls them ``column 1`` and so on. By default it has, and
        the log warns where it looks like data.
    missing
        Further text of cells that are gaps, such as ``["unknown"]``, in all columns but that of labels.
    fold_case
        Whether labels that differ in upper and lower case only are one class, called as most of them are written.
    as_text, as_numbers
        Columns whose cells stay as they are written, or are numbers even if they look like codes such as 007.
    separator, encoding, decimal
        How text is written; what is not given is found out. `sheet` names that of a spreadsheet, by default the first.

    Returns
    -------
    DataTable
        ``X``, ``y`` (None without a target), ``feature_names``, ``row_ids``, ``groups``, ``numbers`` (whether y holds
        them). What holds for later files of the same kind goes along with ``X`` into a model and its file, so that the
        commands read these files likewise.

    Raises
    ------
    DataError
        In one line that names the file, the column or row, and what to do.
    """
    gaps = [missing] if isinstance(missing, str) else [*missing]
    text = TextFormat.checked(encoding, separator, decimal, header, gaps, sheet)
    return load_table(
        path,
        target,
        task=task,
        features=features,
        ignore=ignore,
        row_id=row_id,
        group=group,
        allow_missing=True,
        mixed=True,
        as_text=as_text,
        as_numbers=as_numbers,
        fold_case=fold_case,
        text=text,
    )


def column_names(
    path: str | os.PathLike[str], text: TextFormat = ANY, part: pd.DataFrame | None = None
) -> list[str] | None:
    """Names of a table's columns without reading its rows; None for an NPZ file."""
    path = Path(path)
    kind = check_table_file(path)
    if kind == ".npz":
        return None
    if kind == ".parquet":
        return list(with_levels(path, parquet_columns(path) if part is None else part, None).columns)
    if kind in EXCEL:
        return [str(name) for name in read_excel(path, text).columns if name]
    return [name for name in read_header(*open_text(path, kind, text, no_column), path) if name]


def doubt_of_header(path: Path, text: TextFormat = ANY) -> str:
    """In words, what may be wrong where a file of text lacks a column: nothing, mostly."""
    kind = check_table_file(path)
    if kind in (".parquet", ".npz", *EXCEL):
        return ""
    doubt = header_in_doubt(*open_text(path, kind, text, no_column))
    return f"; {doubt}" if doubt else ""


def cells_as_written(path: str | os.PathLike[str], text: TextFormat = ANY) -> tuple[pd.DataFrame, TextFormat]:
    """All columns of a CSV or Parquet file, notes and names of rows as well; of CSV as text, and how it is written."""
    path = Path(path)
    kind = check_table_file(path)
    if kind == ".npz":
        raise DataError(f"{path} holds arrays: its rows have no columns to write beside others")
    if kind == ".parquet":
        return with_levels(path, read_parquet(path), None), TextFormat("UTF-8", ",", ".")
    if kind in EXCEL:
        return read_excel(path, text, as_written=True), TextFormat("UTF-8", ",", ".")
    return read_csv(path, kind, (), None, text, any_column)


def names_rows(column: pd.Series) -> bool:
    """Whether a column looks like numbers given to rows: called like it, whole, and no two alike."""
    words = set(re.split(r"[^a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", str(column.name)).lower()))
    if not words & _NAMES_OF_ROWS or len(column) < 2 or not is_numeric(column):
        return False
    values = column.to_numpy(dtype=np.float64)
    return bool(np.isfinite(values).all() and (values == np.round(values)).all() and len(set(values)) == len(values))


def columns_of_classes(
    path: str | os.PathLike[str],  # CSV or Parquet
    names: Sequence[str],  # of its columns
    classes: Iterable[object],
    text: TextFormat = ANY,
    fold_case: bool = False,
) -> list[str]:
    """Those of the named columns that hold nothing but classes, compared as text, and perhaps missing cells."""
    path = Path(path)
    frame = _read_frame(path, check_table_file(path), names, names, text, no_column)[0]
    in_one = spelt if fold_case else str
    known = {in_one(str(label)) for label in classes}
    cells = {name: frame[name].dropna() for name in names if name in frame}
    return [name for name, given in cells.items() if len(given) and set(map(in_one, _as_text(given))) <= known]


def _as_text(cells: pd.Series) -> list[str]:
    """Cells as labels are compared: a whole number has no fraction."""
    if pd.api.types.is_float_dtype(cells.dtype):
        return [str(int(cell)) if float(cell).is_integer() else str(cell) for cell in cells]
    return [str(cell) for cell in cells]


def _read_frame(
    path: Path,
    kind: str,
    labels: Sequence[str],  # columns of labels and of names of rows
    as_text: Sequence[str],  # columns that are read as text
    text: TextFormat,
    is_used: Callable[[str], bool] = any_column,  # whether a column's cells say what the decimal sign is
    codes: Codes | None = None,  # what becomes of numbers that look like codes
    part: pd.DataFrame | None = None,  # of a Parquet file, in place of all rows
) -> tuple[pd.DataFrame, np.ndarray, TextFormat]:
    """All columns but the index and notes, the index, and how the text is written."""
    if kind == ".parquet":
        rows = with_levels(path, read_parquet(path) if part is None else part, labels)
        frame, found = _with_gaps(rows, labels, text.missing), ANY
    elif kind in EXCEL:
        frame, found = read_excel(path, text, labels), ANY
    else:
        frame, found = read_csv(path, kind, labels, as_text, text, is_used, codes)
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


def _with_gaps(frame: pd.DataFrame, labels: Sequence[str], missing: Sequence[str]) -> pd.DataFrame:
    """With nothing where text is stated to be missing, but in labels."""
    for name in set(frame.columns) - set(labels) if missing else ():
        column = frame[name]
        if pd.api.types.is_string_dtype(column.dtype) or isinstance(column.dtype, pd.CategoricalDtype):
            frame[name] = column.mask(column.astype(object).map(lambda cell: str(cell).strip() in missing).astype(bool))
    return frame


def _has_fractions(column: pd.Series) -> bool:
    """Whether numbers have a decimal sign."""
    values = column.to_numpy() if pd.api.types.is_float_dtype(column.dtype) else np.zeros(0)
    return bool((np.isfinite(values) & (values != np.round(values))).any())


def named_rows(path: Path, column: pd.Series) -> np.ndarray:
    """Names of rows, each once."""
    if column.isna().any():
        place = int(np.flatnonzero(column.isna())[0])
        raise DataError(f"{path}: column {column.name!r} is to name rows and is empty in row {place}, counted from 0")
    twice = np.flatnonzero(column.duplicated())
    if len(twice):
        raise DataError(
            f"{path}: column {column.name!r} is to name rows, but names come again in {len(twice)} of its rows, the "
            f"first is {str(column.iloc[twice[0]])[:40]!r} in row {twice[0]}, counted from 0: drop these rows"
        )
    return np.asarray(column)


def _stripped(column: pd.Series) -> np.ndarray:
    """Cells as text (n,), None where there is nothing."""
    texts = np.array([str(cell).strip() for cell in column], dtype=object)
    texts[column.isna().to_numpy(dtype=bool) | (texts == "")] = None
    return texts


def _features(
    path: Path,
    columns: dict[str, pd.Series],  # from which those are taken that are numbers
    names: list[str],
    target: str | None,
    wanted: Sequence[str] | None,
    ignore: set[str],
    allow_missing: bool,
    mixed: bool,
    text: TextFormat,
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
        _check_same_columns(path, present, chosen, text)
    if not chosen:
        raise DataError(f"{path} has no feature columns beside {listed(sorted(ignore)) or 'the index'}")
    is_number = {name: is_numeric(columns[name]) or columns[name].isna().all() for name in chosen}  # if empty, no text
    other = [name for name in chosen if not (is_number[name] or (not mixed and holds_truths(columns[name])))]
    if other and not mixed:
        cell = _first_other(columns[other[0]])
        advice = "correct the cells, drop the column, or prefix its name with meta_ to leave it out"
        if wanted is not None:
            advice = "correct the cells, since the model wants these columns"
        raise DataError(
            f"{path}: not numeric: {_columns(other)} ({cell} in {other[0]!r}); here numbers only can be used: {advice}"
        )
    numbers = [name for name in chosen if name not in other]
    values = np.empty((len(numbers), len(columns[chosen[0]])))
    for place, name in enumerate(numbers):
        values[place] = columns.pop(name).to_numpy(dtype=np.float64, na_value=np.nan)
    gaps = [int(np.isnan(cells).sum()) for cells in values]
    if not (allow_missing or mixed) and any(gaps):
        holes = [f"{name} ({count})" for name, count in zip(numbers, gaps, strict=True) if count]
        raise DataError(
            f"{path}: missing cells in {_columns(holes)}; fill them in, or fit on a table, whose gaps are medians"
        )
    infinite = [name for name, cells in zip(numbers, values, strict=True) if np.isinf(cells).any()]
    if infinite:
        raise DataError(f"{path}: infinite numbers in {_columns(infinite)}; replace or drop those rows")
    if not other:
        return pd.DataFrame(values.T, columns=numbers, copy=False)
    known = dict(zip(numbers, values, strict=True))
    return pd.DataFrame({name: known[name] if name in known else columns[name].array for name in chosen}, copy=False)


def _check_same_columns(path: Path, present: Sequence[str], wanted: Sequence[str], text: TextFormat = ANY) -> None:
    """Refuse a file that lacks columns; a note says which it has besides."""
    missing = [name for name in wanted if name not in set(present)]
    unexpected = [name for name in present if name not in set(wanted)]
    if missing:
        besides = f"; unexpected: {listed(unexpected)}" if unexpected else ""
        raise DataError(
            f"{path}: the columns differ from those that the model was trained on ({len(wanted)}); "
            f"missing: {listed(missing)}{near(missing[0], unexpected)}{besides}{doubt_of_header(path, text)}"
        )
    if unexpected:
        _log.info("%s: ignored columns that the model does not know: %s", path, listed(unexpected))


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
    path: Path, target: str | None, features: Sequence[str] | None, text_labels: bool, allow_missing: bool, task: Task
) -> DataTable:
    X, y, names = read_npz(path, target, allow_missing=allow_missing)
    labels, numbers = None, False
    if y is not None:
        as_text = text_labels and y.dtype.kind == "U"  # numbers stay numbers, unlike in a text file
        labels, numbers = check_target(path, pd.Series(y), "the label array", as_text, task, ANY)
    row_ids = np.arange(len(X))
    if names is None:
        if features is not None and len(features) != X.shape[1]:
            raise DataError(f"{path}: X has {X.shape[1]} columns, expected {len(features)}: {listed(features)}")
        if features is None:
            return DataTable(X, labels, None, row_ids, numbers=numbers)
        _log.info("%s has no feature_names: its columns are taken in the model's order", path)
        names = list(features)
    frame = pd.DataFrame(X, columns=names)
    if features is not None:
        _check_same_columns(path, names, features)
        frame = frame[list(features)]
    return DataTable(frame, labels, tuple(frame.columns), row_ids, numbers=numbers)

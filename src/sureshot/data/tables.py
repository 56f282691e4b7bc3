"""Tables of numbers with a column of labels, from the files people have.

`load_table` reads CSV (also gzipped), Parquet and NPZ into a `DataTable`: a matrix of finite numbers, labels if
there are any, and an identifier for each row. It guesses little and checks everything, because what it lets
through is learnt from: a column of text, a missing cell, two columns of the same name, a truncated file each
give a `DataError` of one line that names the file, the column or row, and what to do.

Conventions:

- Columns whose names begin with ``meta_`` are notes, not features, and are left out.
- A first column without a name is the index that pandas writes by default: it identifies rows and is no
  feature.
- In the label column only an empty cell is missing, so that classes may be called ``NA`` or ``None``.
- Columns of true/false count as numbers.
"""

from __future__ import annotations

import csv
import gzip
import importlib.util
import io
import logging
import os
import warnings
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sureshot.data.checks import check_class_labels, check_exists, check_names, listed, near, reason
from sureshot.data.embeddings import read_npz
from sureshot.data.root import DataError

_log = logging.getLogger(__name__)

META_PREFIX = "meta_"
_SUFFIXES = (".csv", ".csv.gz", ".parquet", ".npz")
_MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "<NA>", "#N/A", "?")


class DataTable(NamedTuple):
    """Rows ready for an estimator."""

    X: pd.DataFrame | np.ndarray  # (N, D) float, bytes of images; a DataFrame when the columns have names
    y: np.ndarray | None  # (N,), None when no labels were asked for or found
    feature_names: tuple[str, ...] | None  # length D, None for a bare array
    row_ids: np.ndarray  # (N,) the table's own index, or 0 to N-1; the files of images


def load_table(
    path: str | os.PathLike[str],
    target: str | None = None,  # the column of labels, by default none; of an NPZ file the array, by default y or label
    *,
    features: Sequence[str] | None = None,  # the columns wanted, in order; by default all but target and ignored
    ignore: Iterable[str] = (),  # columns to leave out; names that are not in the file are no error
    text_labels: bool = False,  # read labels as text even if they look like numbers, to be compared with text
    allow_missing: bool = False,  # keep missing cells as NaN; an error by default, since no estimator here accepts them
) -> DataTable:
    """Read a CSV (``.csv``, ``.csv.gz``), Parquet or NPZ file."""
    path = Path(path)
    kind = _check_file(path)
    if kind == ".npz":
        return _from_npz(path, target, features, text_labels, allow_missing)
    frame, row_ids = _read_frame(path, kind, () if target is None else (target,), text_labels)
    names = [str(name) for name in frame.columns]
    if target is not None and target not in names:
        raise DataError(f"{path}: no column {target!r}{near(target, names)}; columns: {listed(names)}")
    y = None
    if target is not None:
        y = check_class_labels(path, frame[target], f"column {target!r}", text_labels)
    X = _features(path, frame, names, target, features, set(ignore), allow_missing)
    return DataTable(X, y, tuple(X.columns), row_ids)


def column_names(path: str | os.PathLike[str]) -> list[str] | None:
    """Names of a table's columns without reading its rows; None for an NPZ file."""
    path = Path(path)
    kind = _check_file(path)
    if kind == ".npz":
        return None
    if kind == ".parquet":
        return [str(name) for name in _read_parquet(path).columns]
    header = _read_header(_open_text(path, kind), path)
    return [name for name in header if name]


def columns_of_classes(
    path: str | os.PathLike[str],  # CSV or Parquet
    names: Sequence[str],  # of its columns
    classes: Iterable[object],
) -> list[str]:
    """Those of the named columns that hold nothing but classes, compared as text, and perhaps missing cells."""
    path = Path(path)
    frame, _ = _read_frame(path, _check_file(path), names, text_labels=True)
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
    if path.is_dir():
        raise DataError(f"{path} is a folder: name a {listed(_SUFFIXES)} file")
    check_exists(path)
    kind = next((suffix for suffix in _SUFFIXES if path.name.lower().endswith(suffix)), None)
    if kind is None:
        raise DataError(
            f"{path}: unknown kind of file, expected one of {listed(_SUFFIXES)} (or, for a learner of images, an image "
            "such as .png or .jpg)"
        )
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty")
    return kind


def _open_text(path: Path, kind: str) -> str:
    """Whole text of a CSV file."""
    try:
        data = gzip.decompress(path.read_bytes()) if kind == ".csv.gz" else path.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} is not a whole gzip file ({error}): write or fetch it again") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text (byte {error.start}): save it as CSV with UTF-8 encoding") from None


def _read_header(text: str, path: Path) -> list[str]:
    """Column names; the first may be empty."""
    if not text.strip():
        raise DataError(f"{path} is empty")
    if "\0" in text[:4096]:
        raise DataError(f"{path} is not text: expected comma-separated values")
    rows = csv.reader(io.StringIO(text), skipinitialspace=True)
    try:
        header = [name.strip() for name in next(row for row in rows if row)]
    except csv.Error as error:
        raise DataError(f"{path}: the header cannot be read ({error})") from None
    for separator, name in ((";", "semicolons"), ("\t", "tabs")):
        if len(header) == 1 and separator in header[0]:
            raise DataError(f"{path} is separated by {name}: save it with commas between the cells")
    if "" in header[1:]:
        position = header.index("", 1) + 1
        raise DataError(f"{path}: column {position} has no name in the header line")
    check_names(path, header)
    return header


def _read_frame(
    path: Path,
    kind: str,
    labels: Sequence[str],  # columns of labels
    text_labels: bool,
) -> tuple[pd.DataFrame, np.ndarray]:
    """All columns but the index and notes, and the index."""
    frame = _read_parquet(path) if kind == ".parquet" else _read_csv(path, kind, labels, text_labels)
    if frame.shape[0] == 0:
        raise DataError(f"{path} has a header but no rows")
    row_ids = np.asarray(frame.index)
    if frame.columns[0] == "":
        row_ids = np.asarray(frame[""])
        frame = frame.drop(columns="")
    notes = [name for name in frame.columns if name.startswith(META_PREFIX) and name not in labels]
    if notes:
        _log.info("%s: left out the columns %s (names beginning %s)", path, listed(notes), META_PREFIX)
        frame = frame.drop(columns=notes)
    return frame, row_ids


def _read_csv(path: Path, kind: str, labels: Sequence[str], text_labels: bool) -> pd.DataFrame:
    text = _open_text(path, kind)
    header = _read_header(text, path)
    missing = {name: [""] if name in labels else list(_MISSING) for name in header}
    options: dict[str, Any] = {"dtype": {name: str for name in labels if name in header}} if text_labels else {}
    try:
        with warnings.catch_warnings():
            # A row longer than the header only warns, and would silently lose its last cells.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return pd.read_csv(
                io.StringIO(text),
                header=0,
                names=header,
                index_col=False,
                skipinitialspace=True,
                keep_default_na=False,
                na_values=missing,
                low_memory=False,
                **options,
            )
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        detail = str(error).strip().replace("\n", " ").removeprefix("Error tokenizing data. C error: ")
        raise DataError(f"{path}: rows and header do not have the same number of cells ({detail})") from None
    except (ValueError, OverflowError) as error:
        raise DataError(f"{path} cannot be read as CSV ({str(error).strip()})") from None


def _read_parquet(path: Path) -> pd.DataFrame:
    if importlib.util.find_spec("pyarrow") is None:
        raise DataError(f"{path}: reading Parquet needs the package pyarrow: python -m pip install 'sureshot[parquet]'")
    try:
        frame = pd.read_parquet(path, engine="pyarrow")
    except (ValueError, OSError, KeyError) as error:
        raise DataError(f"{path} cannot be read as Parquet ({reason(error)}): write or fetch it again") from None
    if frame.shape[1] == 0:
        raise DataError(f"{path} has no columns")
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
) -> pd.DataFrame:
    """The feature columns as float64, checked."""
    if target is not None and target not in (wanted or ()):
        ignore = ignore | {target}
    present = [name for name in names if name not in ignore]
    if wanted is None:
        chosen = present
    else:
        chosen = list(wanted)
        _check_same_columns(path, present, chosen)
    if not chosen:
        raise DataError(f"{path} has no feature columns beside {listed(sorted(ignore)) or 'the index'}")
    X = frame[chosen]
    other = [name for name in chosen if not _is_number(X[name])]
    if other:
        cell = _first_other(X[other[0]])
        raise DataError(
            f"{path}: not numeric: {_columns(other)} ({cell} in {other[0]!r}); encode as numbers "
            "(pandas.get_dummies or a scikit-learn OneHotEncoder in a pipeline), drop, or prefix the name with meta_ "
            "to leave it out"
        )
    X = pd.DataFrame({name: X[name].to_numpy(dtype=np.float64, na_value=np.nan) for name in chosen})
    values = X.to_numpy()
    if not allow_missing and np.isnan(values).any():
        counts = Counter({name: int(np.isnan(values[:, i]).sum()) for i, name in enumerate(chosen)})
        holes = [f"{name} ({count})" for name, count in counts.items() if count]
        raise DataError(
            f"{path}: missing cells in {_columns(holes)}; fill them in first, for instance with "
            "make_pipeline(SimpleImputer(), GPClassifier()) in Python"
        )
    infinite = [name for i, name in enumerate(chosen) if np.isinf(values[:, i]).any()]
    if infinite:
        raise DataError(f"{path}: infinite numbers in {_columns(infinite)}; replace or drop those rows")
    return X


def _check_same_columns(path: Path, present: Sequence[str], wanted: Sequence[str]) -> None:
    missing = [name for name in wanted if name not in set(present)]
    unexpected = [name for name in present if name not in set(wanted)]
    if not missing and not unexpected:
        return
    parts = []
    if missing:
        parts.append(f"missing: {listed(missing)}")
    if unexpected:
        parts.append(f"unexpected: {listed(unexpected)}")
    raise DataError(
        f"{path}: the columns differ from those that the model was fitted on ({len(wanted)}); " + "; ".join(parts)
    )


def _is_number(column: pd.Series) -> bool:
    kinds = pd.api.types
    if kinds.is_bool_dtype(column.dtype):
        return True
    if kinds.is_complex_dtype(column.dtype):
        return False
    if column.isna().all():  # an empty column is missing cells, not text
        return True
    return bool(kinds.is_numeric_dtype(column.dtype))


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

"""Parquet files and folders of them: their columns, and levels of their index among them where asked for.

A folder is one table: its files in the order of their names, all with the same columns. Rows are read in batches, and
given a part at a time, or copied into the finished columns, so that hardly more than these is held.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sureshot.data.checks import check_names, listed, reason
from sureshot.data.file_kinds import parquet_files
from sureshot.data.root import DataError

_log = logging.getLogger(__name__)

PART = 32_768  # rows of a part, several times those that are answered together (`sureshot predict`)
_BUFFER = 65_536  # bytes of a column that are read at a time: all of its row group by default


def read_parquet(path: Path) -> pd.DataFrame:
    """All rows with their index; of a file that has numbered them these numbers, of a folder their place."""
    n, index = _layout(path)[1], pd.Index([])
    whole: dict[str, np.ndarray] = {}  # columns of NumPy's types
    pieces: dict[str, list[pd.Series]] = {}  # of others
    for part in parquet_parts(path):
        start, index = len(index), index.append(part.index) if len(index) else part.index
        for name in part.columns:
            column = part[name]
            if isinstance(column.dtype, np.dtype):
                known = whole[name] if name in whole else np.empty(n, column.dtype)
                whole[name] = known.astype(np.result_type(known.dtype, column.dtype), copy=False)  # as gaps may come
                whole[name][start : len(index)] = column
            else:
                pieces.setdefault(name, []).append(column)
    columns = {name: whole[name] if name in whole else _joined(pieces.pop(name)) for name in part.columns}
    return pd.DataFrame(columns, index, copy=False)


def _joined(pieces: list[pd.Series]) -> Any:
    if isinstance(pieces[0].dtype, pd.CategoricalDtype):
        return pd.api.types.union_categoricals(pieces, ignore_order=True)
    return pd.concat(pieces, ignore_index=True).array


def parquet_parts(path: Path) -> Iterator[pd.DataFrame]:
    """The rows of `read_parquet` so many at a time; one part without rows where there are none."""
    schema, start = _layout(path)[0], 0
    import pyarrow as pa
    import pyarrow.parquet as pq

    held = schema.empty_table()
    for file in parquet_files(path):
        with _reading(file), pq.ParquetFile(file, buffer_size=_BUFFER, pre_buffer=False) as opened:
            for batch in opened.iter_batches(PART):
                held = pa.concat_tables([held, pa.Table.from_batches([batch]).select(schema.names).cast(schema)])
                while len(held) > PART:
                    yield _frame(path, held.slice(0, PART), start)
                    held, start = held.slice(PART), start + PART
    yield _frame(path, held, start)


def parquet_columns(path: Path) -> pd.DataFrame:
    """The columns without rows."""
    return _frame(path, _layout(path)[0].empty_table(), 0)


def with_levels(path: Path, frame: pd.DataFrame, index: Sequence[str] | None) -> pd.DataFrame:
    """The columns, those of so many `index` levels among them as are named; all that have a name for None."""
    levels = [name for name in frame.index.names if name is not None and str(name) not in frame.columns]
    if wanted := [name for name in levels if index is None or name in index]:
        frame = frame.reset_index(wanted)
        frame.columns = pd.Index([str(name) for name in frame.columns])
    check_names(path, list(frame.columns))
    if index is not None and (unused := [str(name) for name in levels if name not in wanted]):
        _log.info(
            "%s: the index (%s) names rows and is not learnt from; reset_index() before writing makes columns of it",
            *(path, listed(unused)),
        )
    return frame


def _layout(path: Path) -> tuple[Any, int]:
    """What the columns of all files are called and hold (a `pyarrow.Schema`), and how many rows there are."""
    if importlib.util.find_spec("pyarrow") is None:
        raise DataError(f"{path}: reading Parquet needs the package pyarrow: python -m pip install 'sureshot[parquet]'")
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema, n, files = None, 0, parquet_files(path)
    beside = [file.name for file in path.iterdir() if file not in files] if path.is_dir() else []
    if beside := sorted(name for name in beside if not name.startswith((".", "_"))):
        _log.info("%s: only its .parquet files are read, not %s", path, listed(beside))
    for file in files:
        with _reading(file):
            found = pq.read_metadata(file)
            came = found.schema.to_arrow_schema()
        check_names(file, came.names)
        schema, n = came if schema is None else schema, n + found.num_rows
        known, these = ({field.name: str(field.type) for field in one} for one in (schema, came))
        kinds = {name: (these.get(name, "missing"), known.get(name, "missing")) for name in {**known, **these}}
        if wrong := [name for name, both in kinds.items() if "missing" in both or len({*both} - {"null"}) > 1]:
            told = listed(["{} is {}, there {}".format(name, *kinds[name]) for name in wrong])
            raise DataError(f"{file} has other columns than {files[0].name} beside it, and they are one table: {told}")
        schema = pa.unify_schemas([schema, came])
    return schema, n


def _frame(path: Path, table: Any, start: int) -> pd.DataFrame:
    """Rows of Arrow as a DataFrame; the first is row `start` of all."""
    described = (table.schema.pandas_metadata or {}).get("index_columns", [])
    numbers: dict[str, Any] = next((one for one in described if isinstance(one, dict)), {})
    first, step = (numbers.get("start", 0), numbers.get("step", 1)) if path.is_file() else (0, 1)
    with _reading(path):
        frame = table.to_pandas(split_blocks=True)
    if frame.shape[1] == 0:
        raise DataError(f"{path} has no columns")
    frame.columns = pd.Index([str(name) for name in frame.columns])
    if isinstance(frame.index, pd.RangeIndex):  # else it is stored
        first += start * step
        frame.index = pd.RangeIndex(first, first + len(frame) * step, step, name=numbers.get("name"))
    return frame


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Errors of Arrow name the file."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, ValueError, OSError, KeyError) as error:
        raise DataError(f"{file} cannot be read as Parquet ({reason(error)}): write or fetch it again") from None

"""Parquet files: their columns, levels of their index among them where asked for, and what they say beside both."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from sureshot.data.checks import check_names, listed, reason
from sureshot.data.remembered import ATTRIBUTE
from sureshot.data.root import DataError

_log = logging.getLogger(__name__)

_OF_PROGRAMS = frozenset((b"pandas", b"ARROW:schema", b"huggingface", b"PANDAS_ATTRS"))
_OF_ARROW = ("PARQUET:", "ARROW:")


def read_parquet(path: Path, index: Sequence[str] | None) -> pd.DataFrame:
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
    if index is not None and (unused := [str(name) for name in levels if name not in wanted]):
        _log.info(
            "%s: the index (%s) names rows and is not learnt from; reset_index() before writing makes columns of it",
            *(path, listed(unused)),
        )
    _mention_notes(path, frame.attrs)
    return frame


def _mention_notes(path: Path, attributes: dict[Any, Any]) -> None:
    """Metadata of a file and its columns, such as units, which are shown and not used."""
    import pyarrow.parquet as pq

    schema = pq.read_schema(path)
    of_columns = {field.name: _as_text(field.metadata) for field in schema if field.metadata}
    found = [f"{name} ({text})" for name, text in of_columns.items() if text]
    further = {key: value for key, value in (schema.metadata or {}).items() if key not in _OF_PROGRAMS}
    found += [_as_text(further)] if further else []
    found += [f"{key}: {value}" for key, value in attributes.items() if key != ATTRIBUTE]
    if found:
        _log.info("%s: metadata of columns, which are not used: %s", path, listed(found))


def _as_text(notes: dict[bytes, bytes]) -> str:
    texts = ((key.decode(errors="replace"), value.decode(errors="replace")) for key, value in notes.items())
    return ", ".join(f"{key}: {value}" for key, value in texts if not key.startswith(_OF_ARROW))

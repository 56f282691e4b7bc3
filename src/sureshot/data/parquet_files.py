"""Parquet files: their columns, and levels of their index among them where asked for."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from sureshot.data.checks import check_names, listed, reason
from sureshot.data.root import DataError

_log = logging.getLogger(__name__)


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
    return frame

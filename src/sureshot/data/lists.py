"""Lists that come with image sets: one entry on a line, or columns of a CSV file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from sureshot.data.root import DataError


def read_list(
    path: Path,
    expected: str,  # what should have been there, for the error: a layout and where to get it
) -> list[str]:
    """Lines of a UTF-8 text file, without blank ones and without spaces around them."""
    if not path.is_file():
        raise DataError(f"no file {path}: {expected}")
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text (byte {error.start}): {expected}") from None
    lines = [line for line in lines if line]
    if not lines:
        raise DataError(f"{path} is empty: {expected}")
    return lines


def read_columns(
    path: Path,
    columns: Sequence[str],
    expected: str,  # as in `read_list`
) -> list[list[str]]:
    """Columns of a CSV file by their names, as text."""
    if not path.is_file():
        raise DataError(f"no file {path}: {expected}")
    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    except ValueError as error:
        raise DataError(f"{path} cannot be read as CSV ({error}): {expected}") from None
    if not set(columns) <= set(frame.columns) or not len(frame):
        raise DataError(f"{path} has columns {', '.join(frame.columns)} and {len(frame)} rows: {expected}")
    return [frame[name].tolist() for name in columns]

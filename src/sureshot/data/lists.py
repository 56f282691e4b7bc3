"""Lists that come with image sets: text files with one entry on a line."""

from __future__ import annotations

from pathlib import Path

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

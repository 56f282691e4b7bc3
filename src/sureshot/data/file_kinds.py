"""Which files can be read, as far as their names say: known before anything is imported that takes long."""

from __future__ import annotations

from pathlib import Path

from sureshot.data.checks import check_exists, listed
from sureshot.data.root import DataError

STANDARD_INPUT = Path("-")
SUFFIXES = (".csv", ".csv.gz", ".tsv", ".txt", ".parquet", ".npz", ".xlsx", ".xlsm")
"""Of tables."""
EXCEL = (".xlsx", ".xlsm")
"""Of spreadsheets."""
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".jfif", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")


def table_suffix(path: Path) -> str | None:
    """The ending of a file's name that says it is a table; None where it does not."""
    return next((suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)), None)


def is_image_source(path: Path) -> bool:
    """Whether `load_image_table` is to read it, not `sureshot.data.load_table`: a folder, or an image by its name."""
    return path.is_dir() or path.suffix.lower() in IMAGE_SUFFIXES


def check_table_file(path: Path) -> str:
    """Suffix of a readable, non-empty file of a known kind (`DataError`)."""
    if path == STANDARD_INPUT:
        return ".csv"
    if path.is_dir():
        raise DataError(f"{path} is a folder: name a {listed(SUFFIXES)} file")
    check_exists(path)
    kind = table_suffix(path)
    if kind is None:
        raise DataError(
            f"{path}: unknown kind of file, expected one of {listed(SUFFIXES)} (or, for a learner of images, an image "
            "such as .png or .jpg); of another spreadsheet save the sheet as .xlsx or CSV"
        )
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty")
    return kind


def check_source(path: Path) -> None:
    """Refuse what is neither a table nor images by its name (`DataError`)."""
    if is_image_source(path):
        check_exists(path)
    else:
        check_table_file(path)

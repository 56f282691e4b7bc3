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


def parquet_files(path: Path) -> list[Path]:
    """The file itself, or the Parquet files of a folder by name, but those that programs hide (`_metadata`, `.x`)."""
    if not path.is_dir():
        return [path]
    return sorted(
        file
        for file in path.iterdir()
        if file.suffix.lower() == ".parquet" and not file.name.startswith((".", "_")) and file.is_file()
    )


def table_suffix(path: Path) -> str | None:
    """The ending of a file's name that says it is a table, that of its files for a folder; None where none does."""
    if path.is_dir():
        return ".parquet" if parquet_files(path) else None
    return next((suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)), None)


def is_image_source(path: Path) -> bool:
    """Whether `load_image_table` is to read it, not `load_table`: a folder without Parquet files, or an image."""
    return table_suffix(path) is None if path.is_dir() else path.suffix.lower() in IMAGE_SUFFIXES


def check_table_file(path: Path) -> str:
    """Suffix of a readable, non-empty file of a known kind (`DataError`)."""
    if path == STANDARD_INPUT:
        return ".csv"
    check_exists(path)
    kind = table_suffix(path)
    if path.is_dir():
        if kind is None:
            raise DataError(f"{path} is a folder without .parquet files: name one with such files, or a file")
        return kind
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

"""What a column of targets holds: classes, or numbers to predict as such.

Text and truth values are classes, numbers with fractions are numbers. Whole numbers are classes if few come again and
again or if they count classes without a gap, and numbers if most rows differ; between is what only a person knows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from sureshot.data.cells import CellError, UnreadCell, as_numbers, gaps_of, holds_truths, is_numeric, is_object
from sureshot.data.checks import check_class_labels, listed
from sureshot.data.delimited import TextFormat
from sureshot.data.root import DataError, UnclearTask, WrongTask
from sureshot.data.written_numbers import WayOfWriting, are_codes, decimal_of

Task = Literal["auto", "classes", "numbers"]
FEW = 30  # distinct whole numbers that are rather classes
FEWEST = 10  # whole numbers, hardly two of them alike, that are rather numbers


def check_target(
    source: Path,
    column: pd.Series,
    where: str,
    as_text: bool,  # whether classes are text even if they look like numbers
    task: Task,
    text: TextFormat,  # how the file is written
) -> tuple[np.ndarray, bool]:
    """Targets (n,), and whether they are numbers; `DataError` for others than the task wants, `UnclearTask`."""
    stated = text.decimal or "."
    decimal = decimal_of(column, WayOfWriting(stated, False), text.separator) if is_object(column) else "."
    if task == "auto":
        task = _task_of(source, column, where, decimal)
    if task == "numbers":
        return _check_numbers(source, column, where, decimal), True
    return check_class_labels(source, column, where, as_text), False


def _task_of(source: Path, column: pd.Series, where: str, decimal: str) -> Task:
    """By the cells that are there."""
    cells = column[~gaps_of(column)]
    as_text = is_object(column)
    if not len(cells) or holds_truths(cells) or not (as_text or is_numeric(column)):
        return "classes"
    if as_text and are_codes({str(cell).strip() for cell in cells}):
        return "classes"
    try:
        values = as_numbers(cells, decimal)
    except UnreadCell as error:  # a slip, if nearly all others are numbers that differ: which `_check_numbers` tells
        others = cells[~cells.astype(str).isin(error.texts)]
        few = 10 * (len(cells) - len(others)) <= len(cells)
        return "numbers" if few and task_of_numbers(as_numbers(others, decimal), True) == "numbers" else "classes"
    except CellError:
        return "classes"
    found = task_of_numbers(values, as_text)
    if found is None:
        raise UnclearTask(
            f"{source}: {where} holds {len(np.unique(values))} different whole numbers in {len(values)} rows, which "
            "may be numbers or classes: state task='numbers' or task='classes'"
        )
    return found


def task_of_numbers(
    values: np.ndarray,  # (n,)
    as_text: bool = False,  # whether they were written as no program writes them, such as 12 %
) -> Task | None:
    """What numbers are learnt as; None where it is not clear."""
    distinct, counts = np.unique(values, return_counts=True)
    n_values, differ = len(distinct), 2 * len(distinct) > len(values)
    whole = bool((values == np.round(values)).all())
    if not whole and (not as_text or n_values > FEW):
        return "numbers"
    span = distinct[-1] - distinct[0] + 1 if whole and abs(distinct[0]) <= 1 else np.inf  # of a count from 0 or 1
    if n_values <= FEW and (not differ or n_values <= 2 or span <= 2 * n_values):
        return "classes"
    if differ and n_values >= FEWEST and (n_values <= FEW or span > n_values):
        return "numbers"
    even = span == n_values and counts.max() <= 3 * counts.min()
    return "classes" if as_text or (even and not differ) else None


def _check_numbers(source: Path, column: pd.Series, where: str, decimal: str) -> np.ndarray:
    if holds_truths(column):
        raise WrongTask(f"{source}: {where} holds true and false, which are classes", "state task='classes'")
    gaps = np.flatnonzero(gaps_of(column))
    if len(gaps):
        raise DataError(
            f"{source}: {where} has no number in {len(gaps)} of {len(column)} rows (the first is row {gaps[0]}, "
            "counted from 0); fill them in or drop them"
        )
    try:
        return as_numbers(column, decimal)
    except UnreadCell as error:
        raise WrongTask(
            f"{source}: {where} holds text, {listed([repr(text[:40]) for text in error.texts])}, where numbers are "
            "learnt",
            "give a number in every row (of dates, days since a first one), or task='classes'",
        ) from None
    except CellError as error:
        raise DataError(f"{source}: {error}") from None

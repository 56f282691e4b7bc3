"""The first line of a table: whether it has the names of columns, and which columns these name.

Files without names are common, and the first of their rows would be lost as the header. It is told by the rows below:
no name of a column of numbers is itself a number, nor does a column's name come again in it. But whole numbers that
rise, such as years or the places of pixels, are names that programs give.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from sureshot.data.checks import check_names, in_one_form, listed
from sureshot.data.delimited import lacks_one, place_name
from sureshot.data.root import DataError
from sureshot.data.written_numbers import bare_number

_log = logging.getLogger(__name__)

NO_HEADER = "line 1 looks like data: --no-header (header=False) says that no line has names"


def column_names_of(
    path: Path,
    first: Sequence[str],  # cells of the first line
    rows: Callable[[], Iterable[Sequence[str]]],  # those of all others, none of them empty
    header: bool | None,  # whether the first line has names, if that is known
    missing: frozenset[str],
) -> list[str]:
    """Names of the columns; the first may be empty, others without one are called by their place."""
    if header is False:
        return [place_name(place) for place in range(len(first))]
    names = [in_one_form(name) for name in first]
    if len(names) > 1 and _names_rows(len(names), rows()):
        _log.info("%s: the first line has one cell less than the others, so the first column names rows", path)
        names = ["", *names]
    seems_data = header is None and looks_like_data(first, rows(), missing)
    unnamed = [place for place, name in enumerate(names) if place and not name]
    for place in unnamed:
        names[place] = place_name(place)
    if unnamed:
        called = listed([names[place] for place in unnamed])
        _log.info("%s: columns without a name in the header line are called by their place: %s", path, called)
    try:
        check_names(path, names)
    except DataError as error:
        raise DataError(f"{error}; {NO_HEADER}" if seems_data else str(error)) from None
    if seems_data:
        _log.warning("%s: %s", path, NO_HEADER)
    return names


def _names_rows(n_names: int, rows: Iterable[Sequence[str]]) -> bool:
    """Whether all rows have one cell more than there are names, and not because each ends in a separator."""
    filled = False
    for row in rows:
        if not lacks_one(n_names, len(row)):
            return False
        filled = filled or bool(row[-1].strip())
    return filled


def looks_like_data(first: Sequence[str], rows: Iterable[Sequence[str]], missing: frozenset[str]) -> bool:
    """Whether the first line is rather a row than names of columns, by all rows."""
    numbers = [bare_number(cell, ",") for cell in first]
    is_gap = [cell.strip() in missing for cell in first]
    has_numbers, has_text, again = set(), set(), set()
    for row in rows:
        for place, (cell, named) in enumerate(zip(row[-len(first) :], first, strict=False)):
            text = cell.strip()
            if text in missing:
                continue
            if bare_number(text, ",") is None:
                has_text.add(place)
                if text == named.strip():
                    again.add(place)
            else:
                has_numbers.add(place)
                if numbers[place] is None and not is_gap[place]:
                    return False
    found = [number for place in sorted(has_numbers - has_text) if (number := numbers[place]) is not None]
    rising = all(number.is_integer() for number in found) and all(a < b for a, b in itertools.pairwise(found))
    as_data = (0 if rising else len(found)) + len(again)
    return as_data > 0 and 2 * (len(found) + len(again)) >= len(first)

"""Cells of a DataFrame's column as numbers, as days or as text, and which of these they are.

A column is taken for numbers or dates if all its cells are, gaps aside; the decimal sign and the format of dates are
then the column's, and hold for later cells. Odd cells of a column that is almost all numbers or dates are an error that
names them. Whole numbers of which some begin with 0, as 007, are codes.
"""

from __future__ import annotations

import datetime
import numbers
import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd

from sureshot.data.checks import MISSING, in_one_form
from sureshot.data.written_numbers import DECIMALS, are_codes, number_in

NUMBER, CATEGORY, DATE, TEXT, IGNORE = "number", "category", "date", "text", "ignore"
DAY_FIRST, MONTH_FIRST = "day_first", "month_first"
KINDS = (NUMBER, CATEGORY, DATE, TEXT, IGNORE, DAY_FIRST, MONTH_FIRST)
"""What can be stated of a column; the last two are dates."""
TIMES = ("%H:%M", "%H:%M:%S")
_DAYS = (
    *("%m/%d/%Y", "%d/%m/%Y", "%m-%d-%Y", "%d-%m-%Y", "%d.%m.%Y", "%Y/%m/%d"),
    *("%Y%m%d", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%d-%b-%Y", "%d-%b-%y"),
    *("%m/%d/%y", "%d/%m/%y", "%d.%m.%y"),
)
_TIMES_OF_DAY = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
FORMATS = ("ISO8601", *TIMES, *(day + time for day in _DAYS for time in _TIMES_OF_DAY))
"""Of dates and times in text; of those that fit all cells, the first is taken (the month first, if only 03/04/2025)."""
_FIRST = {DAY_FIRST: re.compile(r"%d[/.-]%m"), MONTH_FIRST: re.compile(r"%m[/-]%d")}

_MISSING = frozenset(MISSING)
SAMPLE = 1000  # distinct cells that are looked at first
NAMED = 3  # texts that cannot be read, in a message
FEW = 30  # levels; a column of so few is one of categories, whatever most of them look like
FEWEST_MEASURED, MEASURED = 8, 0.8  # distinct cells and the share of numbers from which few are measurements

_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d|(?:1[5-9]|2\d)\d\d-\d\d$")  # 1001-12 is no month, but a product's code
_ZONE = re.compile(r":\d.*(?:Z|[+-]\d\d(?::?\d\d)?)\s*\Z")  # behind a time of day
_WHOLE = re.compile(r"-?(?:0|[1-9]\d*)\.0+")
_PLAIN: tuple[type, ...] = (
    *(str, bool, np.bool_, numbers.Real, Decimal),
    *(datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64, pd.Period),
)
_TRUTHS = {"false": 0.0, "true": 1.0}
_SHORT: dict[str, type[np.floating]] = {
    **dict.fromkeys(("float32", "float[pyarrow]"), np.float32),
    **dict.fromkeys(("float16", "halffloat[pyarrow]"), np.float16),
}
"""Of types of columns that hold numbers of less than double precision."""
_MICROSECONDS = 86_400_000_000  # of a day


class CellError(ValueError):
    """A column that cannot be read."""


class UnreadCell(CellError):
    """Cells that cannot be read as the column's kind."""

    def __init__(self, message: str, name: Any, texts: Mapping[str, int]) -> None:
        super().__init__(message)
        self.name = name
        self.texts = texts  # how often each comes

    def __reduce__(self) -> tuple[type[UnreadCell], tuple[str, Any, dict[str, int]]]:
        return UnreadCell, (str(self), self.name, dict(self.texts))


def gaps_of(column: pd.Series) -> np.ndarray:
    """Which cells are missing (n,): None, NaN, NaT, and text such as nothing, NA or ?."""
    found = column.isna().to_numpy(dtype=bool)
    if not is_object(column) and not isinstance(column.dtype, pd.CategoricalDtype):
        return found
    cells = column.to_numpy(dtype=object)
    return found | np.array([isinstance(cell, str) and cell.strip() in _MISSING for cell in cells], dtype=bool)


def is_object(column: pd.Series) -> bool:
    """Whether cells are text or Python objects."""
    return bool(pd.api.types.is_object_dtype(column.dtype) or pd.api.types.is_string_dtype(column.dtype))


def as_texts(column: pd.Series) -> np.ndarray:
    """Cells as text (n,), None where missing: one text for each thing that is written in two ways.

    A whole number has no fraction, so a gap in a file changes no level, and letters with accents are one character.
    """
    gaps, kinds = gaps_of(column), pd.api.types
    if isinstance(column.dtype, pd.CategoricalDtype) and kinds.is_float_dtype(column.dtype.categories.dtype):
        column = column.astype(column.dtype.categories.dtype)
    if kinds.is_float_dtype(column.dtype):
        cells = column.to_numpy(dtype=np.float64, na_value=np.nan)
        short = _SHORT.get(str(column.dtype).lower())
        if short is not None:  # of which 0.1 is 0.10000000149 in double precision
            cells = np.array([float(str(cell)) for cell in cells.astype(short)], dtype=np.float64)
        found = [_number_as_text(cell) for cell in cells.tolist()]
    else:
        found = [_as_text(cell) for cell in column.to_numpy(dtype=object)]
    texts = np.empty(len(column), dtype=object)
    texts[:] = found
    texts[gaps] = None
    return texts


def is_numeric(column: pd.Series) -> bool:
    """Whether cells are numbers or truth values, and no text or objects."""
    return bool(pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_complex_dtype(column.dtype))


def holds_truths(column: pd.Series) -> bool:
    """Whether all cells that are there are truth values."""
    if not is_object(column):
        return bool(pd.api.types.is_bool_dtype(column.dtype))
    return all(isinstance(cell, bool | np.bool_) for cell in column.to_numpy(dtype=object)[~gaps_of(column)])


def as_numbers(column: pd.Series, decimal: str = ".", truths: bool = False) -> np.ndarray:
    """Cells as numbers (n,), NaN where missing; times between are days. `CellError` for the first that is none.

    With `truths` text such as True and false is 1 and 0, as truth values are.
    """
    kinds, gaps = pd.api.types, gaps_of(column)
    if kinds.is_timedelta64_dtype(column.dtype):
        found = np.asarray(column.to_numpy() / np.timedelta64(1, "D"), dtype=np.float64)
    elif is_numeric(column):
        found = column.to_numpy(dtype=np.float64, na_value=np.nan)
    elif is_object(column) or isinstance(column.dtype, pd.CategoricalDtype):
        found = _through_distinct(column, gaps, lambda cell: _number_of(cell, decimal, truths))
        _check_read(column, gaps | ~np.isnan(found), "no number")
    else:
        raise CellError(f"{named(column)} holds {column.dtype}, which are no numbers")
    infinite = np.isinf(found)
    if infinite.any():
        raise CellError(f"{named(column)} contains infinity in {where(column, infinite)}: replace or drop such rows")
    return found


def as_days(column: pd.Series, form: str = FORMATS[0]) -> np.ndarray:
    """Cells as days since 1970 in UTC (n,), NaN where missing; text in a format of `FORMATS`.

    `CellError` for the first that is no date. Times of day are those of 1970-01-01.
    """
    gaps, kinds = gaps_of(column), pd.api.types
    if isinstance(column.dtype, pd.PeriodDtype):
        column = column.dt.to_timestamp()
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(column.dtype.categories.dtype)
    if kinds.is_datetime64_any_dtype(column.dtype):
        return _days(pd.DatetimeIndex(column))
    if gaps.all():
        return np.full(len(column), np.nan)
    if not is_object(column):
        raise CellError(
            f"{named(column)} holds {column.dtype}, which are no dates: give text such as 2025-12-31 or 20251231 "
            "(column.astype(str)), or make dates of counts by pandas.to_datetime(column, unit=...)"
        )
    found = np.full(len(column), np.nan)
    found[~gaps] = _days_of_objects(column.to_numpy(dtype=object)[~gaps], form)
    unread = ~gaps & np.isnan(found)
    what = f"no date such as {_written_as(form)}"
    other = in_other_order(form) if unread.any() else None
    if other is not None and not np.isnan(_days_of_objects(column.to_numpy(dtype=object)[unread], other)).any():
        what += f", but one in the other order (on fitting: columns={{{column.name!r}: {order_of(other)!r}}})"
    _check_read(column, ~unread, what)
    return found


def in_other_order(form: str) -> str | None:
    """The format of dates with day and month in the other order; None of those that leave no doubt."""
    first, sign, second = form[:2], form[2:3], form[3:5]
    return f"{second}{sign}{first}{form[5:]}" if sign in ("/", "-") and order_of(form) is not None else None


def order_of(form: str) -> str | None:
    """Whether dates of a format have the day or the month first, in numbers; None where they begin with neither."""
    return next((kind for kind, pattern in _FIRST.items() if pattern.match(form)), None)


def zones_of(column: pd.Series) -> set[bool]:
    """Whether moments have a time zone: which of both there is."""
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        return {isinstance(column.dtype, pd.DatetimeTZDtype) or "tz=" in str(column.dtype)}
    if not is_object(column):
        return set()
    cells = pd.unique(column.to_numpy(dtype=object)[~gaps_of(column)])
    return {
        bool(_ZONE.search(cell)) if isinstance(cell, str) else getattr(cell, "tzinfo", None) is not None
        for cell in cells
    }


def _written_as(form: str) -> str:
    """A moment in a format, for people."""
    moment = datetime.datetime(2025, 12, 31, 18, 30)
    return "2025-12-31" if form == "ISO8601" else moment.strftime(form)


def kind_of(column: pd.Series, stated: str | None = None) -> tuple[str, str]:
    """The kind of a column, and its decimal sign or its format of dates ("" of others), by the cells that are there."""
    kinds, order = pd.api.types, stated if stated in _FIRST else None
    stated = stated if order is None else DATE
    if stated in (CATEGORY, TEXT, IGNORE) or (stated is None and isinstance(column.dtype, pd.CategoricalDtype)):
        return str(stated or CATEGORY), ""
    if kinds.is_datetime64_any_dtype(column.dtype) or isinstance(column.dtype, pd.PeriodDtype):
        return stated or DATE, FORMATS[0]
    if not is_object(column) and not isinstance(column.dtype, pd.CategoricalDtype):
        if not (is_numeric(column) or kinds.is_timedelta64_dtype(column.dtype)):
            raise CellError(
                f"{named(column)} holds {column.dtype}, expected numbers, text or dates: drop it or convert it"
            )
        return stated or NUMBER, DECIMALS[0]
    _check_plain(column)
    distinct = pd.unique(column.to_numpy(dtype=object)[~gaps_of(column)])
    if not len(distinct):
        return IGNORE, ""
    if stated is None and are_codes([str(cell).strip() for cell in distinct]):
        return CATEGORY, ""
    for kind in (NUMBER, DATE) if stated is None else (stated,):
        way, share = _best_way(distinct, kind, order)
        if share == 1 or stated is not None:
            return kind, way
        few = len(distinct) <= FEW and not _are_measured(distinct, share, int((~gaps_of(column)).sum()))
        if share > 0.5 and (kind == DATE or not few):
            as_numbers(column, way) if kind == NUMBER else as_days(column, way)  # says which cell is none
    return CATEGORY, ""


def _are_measured(distinct: np.ndarray, share: float, n_cells: int) -> bool:
    """Whether cells, a share of whose texts are numbers, are rather measurements with an odd one than categories.

    Hardly two measurements are the same, and categories come again.
    """
    return len(distinct) >= FEWEST_MEASURED and share >= MEASURED and n_cells < 1.5 * len(distinct)


def named(column: pd.Series) -> str:
    """A column, for messages."""
    return f"column {str(column.name)!r}"


def where(column: pd.Series, places: np.ndarray) -> str:
    """The first of the rows (n,) bool, by its name in the frame, which may be its number."""
    label = column.index[int(np.flatnonzero(places)[0])]
    counts = isinstance(column.index, pd.RangeIndex) and (column.index.start, column.index.step) == (0, 1)
    return f"row {label}, counted from 0" if counts else f"row {label} of the index"


def _check_read(column: pd.Series, read: np.ndarray, what: str) -> None:
    """`UnreadCell` that names the texts that are not read, the most frequent first."""
    if read.all():
        return
    cells = np.array([str(cell) for cell in column.to_numpy(dtype=object)], dtype=object)
    counts = dict(Counter(cells[~read].tolist()).most_common())
    shown = []
    for text, count in list(counts.items())[:NAMED]:
        more = f" and {count - 1} more rows," if count > 2 else " and one more row," if count == 2 else ""
        shown.append(f"{text[:40]!r} in {where(column, ~read & (cells == text))},{more}")
    if len(counts) > NAMED:
        shown.append(f"and {len(counts) - NAMED} other texts")
    advice = "correct it or leave it empty" if len(counts) == 1 else "correct them or leave them empty"
    raise UnreadCell(f"{named(column)}: {' '.join(shown)} is {what}: {advice}", column.name, counts)


def _check_plain(column: pd.Series) -> None:
    """Refuse cells that are neither text, numbers nor dates."""
    cells = column.to_numpy(dtype=object)
    odd = {
        kind for kind in set(map(type, cells)) if not issubclass(kind, (*_PLAIN, type(None), type(pd.NA), type(pd.NaT)))
    }
    for place, cell in enumerate(cells if odd else ()):
        if type(cell) in odd:
            advice = "decode it, as in column.str.decode('utf-8')" if isinstance(cell, bytes) else "drop the column"
            raise CellError(
                f"{named(column)} holds {type(cell).__name__} in row {column.index[place]}, expected text, numbers or "
                f"dates: {advice}, or make a column of each value"
            )


def _as_text(cell: Any) -> str:
    if isinstance(cell, np.floating):
        cell = float(str(cell))
    return _number_as_text(cell) if isinstance(cell, float) else in_one_way(str(cell))


def in_one_way(text: str) -> str:
    """Text as `as_texts` has it."""
    text = in_one_form(text)
    return text.partition(".")[0] if _WHOLE.fullmatch(text) else text


def _number_as_text(cell: float) -> str:
    return str(int(cell)) if cell.is_integer() else str(cell)


def _number_of(cell: Any, decimal: str, truths: bool = False) -> float:
    """A cell as a number; NaN for what is none."""
    if isinstance(cell, str):
        if truths and (text := cell.strip().lower()) in _TRUTHS:
            return _TRUTHS[text]
        return number_in(cell, decimal)
    if isinstance(cell, datetime.timedelta | np.timedelta64):
        return float(pd.Timedelta(cell) / pd.Timedelta(days=1))
    try:
        return float(cell) if isinstance(cell, numbers.Real | Decimal | np.bool_) else np.nan
    except OverflowError:  # a whole number of more than 308 digits
        return np.inf


def _through_distinct(column: pd.Series, gaps: np.ndarray, read: Callable[[Any], float]) -> np.ndarray:
    """What is read of each cell (n,), each text once; NaN where missing."""
    known: dict[Any, float] = {}
    found = np.full(len(column), np.nan)
    for place, cell in zip(np.flatnonzero(~gaps), column.to_numpy(dtype=object)[~gaps], strict=True):
        if isinstance(cell, str):
            if cell not in known:
                known[cell] = read(cell)
            found[place] = known[cell]
        else:
            found[place] = read(cell)
    return found


def _days(moments: pd.DatetimeIndex, of_day: bool = False) -> np.ndarray:
    """Days since 1970 (n,), or the part of the day only."""
    if moments.tz is not None:
        moments = moments.tz_convert(None)
    micro = moments.as_unit("us")
    count = micro.asi8 % _MICROSECONDS if of_day else micro.asi8
    return np.where(np.asarray(micro.isna()), np.nan, count / _MICROSECONDS)


def _days_of_objects(cells: np.ndarray, form: str) -> np.ndarray:
    """Days of cells (n,), NaN for what is no date; each text is read once."""
    distinct = pd.unique(np.array([cell for cell in cells if isinstance(cell, str)], dtype=object))
    known = dict(zip(distinct, _days_of_texts(distinct, form), strict=True))
    days = [known.get(cell, np.nan) if isinstance(cell, str) else _days_of_object(cell) for cell in cells]
    return np.array(days, dtype=np.float64)


def _days_of_texts(texts: np.ndarray, form: str) -> np.ndarray:
    """Days of text in a format, NaN where it is not."""
    stripped = [text.strip() for text in texts]
    if form == "ISO8601":  # pandas would take a year, or a number of eight digits, for a date
        stripped = [text if _ISO_DATE.match(text) else "" for text in stripped]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        moments = pd.to_datetime(pd.Series(stripped, dtype=object), format=form, errors="coerce", utc=True)
    return _days(pd.DatetimeIndex(moments), form in TIMES)


def _days_of_object(cell: Any) -> float:
    if isinstance(cell, pd.Period):
        cell = cell.to_timestamp()
    if isinstance(cell, datetime.time):
        moment = datetime.timedelta(hours=cell.hour, minutes=cell.minute, seconds=cell.second)
        return moment / datetime.timedelta(days=1)
    if isinstance(cell, datetime.date | np.datetime64):
        return float(_days(pd.DatetimeIndex([pd.Timestamp(cell)]))[0])
    return np.nan


def _best_way(distinct: np.ndarray, kind: str, order: str | None = None) -> tuple[str, float]:
    """The way in which most of the cells can be read as a kind, the first of equal ones, and the share that can be.

    Of dates those with day and month in an order, if one is stated.
    """
    share, ways = (_share_of_numbers, DECIMALS) if kind == NUMBER else (_share_of_dates, FORMATS)
    if order is not None:
        ways = tuple(form for form in FORMATS if _FIRST[order].match(form))
    some = distinct[:SAMPLE]
    if kind == DATE and not _may_be_dates(some):  # to read text as dates is slow
        return ways[0], 0.0
    shares = {way: share(some, way) for way in ways}
    if len(distinct) > SAMPLE:
        shares = {way: share(distinct, way) for way in ways if shares[way] > 0 or kind == NUMBER} or shares
    best = max(shares, key=lambda way: shares[way])
    return best, shares[best]


def _may_be_dates(cells: np.ndarray) -> bool:
    odd = [cell for cell in cells if isinstance(cell, str) and (len(cell) > 40 or sum(map(str.isdigit, cell)) < 3)]
    return 2 * len(odd) < len(cells)


def _share_of_numbers(cells: np.ndarray, decimal: str) -> float:
    return float(np.mean([not np.isnan(_number_of(cell, decimal)) for cell in cells]))


def _share_of_dates(cells: np.ndarray, form: str) -> float:
    return float((~np.isnan(_days_of_objects(cells, form))).mean())

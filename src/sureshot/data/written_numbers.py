"""Numbers as text: which text is one, what separates what in it, and which text a number would not give back.

``1.250`` may be a thousand and more, or one and a quarter: cells that can be read in one way only say which it is;
where all can be read in both, what is known of the column decides. ``007`` and ``7`` are two codes and one number, so
are the versions ``3.1`` and ``3.10``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

DECIMALS = (".", ",")
_SIGN = r"(?:[$€£¥₹₩₽%]|USD|EUR|GBP|CHF|JPY|CAD|AUD)"
_BEFORE = re.compile(rf"(?:{_SIGN}\s*)?([+−-]?)\s*(?:{_SIGN}\s*)?", re.IGNORECASE)
_BEHIND = re.compile(rf"{_SIGN}\Z", re.IGNORECASE)
_DIGITS = {
    decimal: re.compile(
        rf"(?=[{decimal}]?\d)(?:\d+|[1-9]\d{{0,2}}(?:[{other}'’\s]\d{{3}})+)?(?:[{decimal}]\d*)?(?:[eE][+-]?\d+)?"
    )
    for decimal, other in (".,", ",.")
}
_PLAINLY = re.compile(r"-?\d+(?:\.\d+)?")
_OF_NUMBERS = re.compile(r"[^\d.,'’\s]")  # what stands beside digits, such as signs and currencies
_BETWEEN = {".": re.compile(r"[,'’\s]"), ",": re.compile(r"[.'’\s]")}
_GROUPS = {decimal: re.compile(rf"(?<!\d)[1-9]\d{{0,2}}([{other}]\d{{3}})+(?!\d)") for decimal, other in (".,", ",.")}

_GROUPED = r"[1-9]\d{0,2}([.\s'’]\d{3})+"  # points, blanks or apostrophes between thousands; none begins with 0
_COMMA_IF_ANY = re.compile(rf"[+-]?(\d+|{_GROUPED})(,\d+)?")  # a number where the comma is the decimal sign
_WITH_COMMA = re.compile(rf"[+-]?(\d+|{_GROUPED})?,\d+([eE][+-]?\d+)?")
_WITH_POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
_BY_POINTS = re.compile(rf"[+-]?{_GROUPED}(,\d+)?")
_BY_COMMAS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
_SURELY_BY_COMMAS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3}){2,}")  # two groups at least: one may be a fraction
_SIGNS_SWAPPED = str.maketrans(".,", ",.")
_WHOLE = re.compile(r"\d+")
_PADDED = re.compile(r"0\d+")
_FRACTION = re.compile(r"[+-]?\d*[.,]\d+")
_EXPONENT = re.compile(r"\d+[eE][+]?\d+")
_LONGEST = 300  # digits of a whole number that has a double
_EXACT = 2**53  # whole numbers up to here are numbers of double precision


@dataclass(frozen=True)
class WayOfWriting:
    """How the numbers of a known column were written."""

    decimal: str  # "." or ","
    grouped: bool  # whether the other sign was between thousands


def number_in(text: str, decimal: str) -> float:
    """The number of a cell, which may have groups of digits, and a currency or per cent beside them; NaN if none."""
    if decimal == "." and _PLAINLY.fullmatch(text):
        return float(text)
    text = text.strip()
    before = _BEFORE.match(text)
    assert before is not None  # nothing at all matches
    digits = text[before.end() :]
    behind = _BEHIND.search(digits)
    digits = digits if behind is None else digits[: behind.start()].rstrip()
    if not _DIGITS[decimal].fullmatch(digits):
        return math.nan
    value = float(_BETWEEN[decimal].sub("", digits).replace(",", "."))
    return value if before[1] in ("", "+") else -value


def bare_number(text: str, decimal: str = ".") -> float | None:
    """The number that a program would write as this text; None if it is none."""
    try:
        return float(text.replace(decimal, "."))
    except ValueError:
        return None


def decimal_among(cells: Iterable[str]) -> str:
    """Of a file's cells: a comma if numbers with commas come without numbers with points, those by thousands aside."""
    has_comma = False
    for cell in cells:
        if _WITH_COMMA.fullmatch(cell):
            has_comma = True
        elif _SURELY_BY_COMMAS.fullmatch(cell) or (_WITH_POINT.fullmatch(cell) and not _BY_POINTS.fullmatch(cell)):
            return "."
    return "," if has_comma else "."


def may_be_grouped(cells: Iterable[str], decimal: str) -> bool:
    """Whether what is a decimal sign in a file's cells, where any has one, may group digits: three follow on each."""
    has_sign, grouped = (_WITH_POINT, _BY_POINTS) if decimal == "." else (_WITH_COMMA, _BY_COMMAS)
    found = False
    for cell in filter(has_sign.fullmatch, cells):
        if not grouped.fullmatch(cell):
            return False
        found = True
    return found


def with_swapped_signs(column: pd.Series) -> pd.Series:
    """Text with points for commas and commas for points."""
    return column.astype(object).map(lambda cell: cell.translate(_SIGNS_SWAPPED) if isinstance(cell, str) else cell)


def decimal_of(column: pd.Series, known: WayOfWriting, separator: str | None) -> str:
    """The decimal sign of text, from what is known of its column where all cells can be read in two ways.

    Then a sign that was between thousands is so still, and points are decimal in a file whose cells commas separate.
    """
    cells = [_OF_NUMBERS.sub("", cell) for cell in column.dropna().unique() if isinstance(cell, str)]
    cells = [cell for cell in cells if any(map(str.isdigit, cell))]
    possible = [sign for sign in DECIMALS if not any(math.isnan(number_in(cell, sign)) for cell in cells)]
    if len(possible) == 1:
        return possible[0]
    if not possible or known.grouped or known.decimal == ".":
        return known.decimal
    return "." if separator == "," else ","


def are_grouped(cells: Iterable[object], decimal: str) -> bool:
    """Whether the sign that is not the decimal one stands between thousands in some text."""
    return any(isinstance(cell, str) and _GROUPS[decimal].search(cell) for cell in cells)


def with_comma(column: pd.Series) -> pd.Series | None:
    """Of text that is numbers like 1.250 and 1 250,50 where the comma is the decimal sign, the same without any doubt.

    Pandas reads the comma, but nothing between thousands. None of other text.
    """
    cells = column.dropna()
    if not len(cells) or not all(isinstance(cell, str) and _COMMA_IF_ANY.fullmatch(cell.strip()) for cell in cells):
        return None
    return column.map(lambda cell: cell.strip() + ("" if "," in cell else ",0"), na_action="ignore")


def as_plain_numbers(column: pd.Series, decimal: str) -> pd.Series | None:
    """Text as numbers, NaN where missing; None where a cell is other than digits and the signs between them."""
    checked = with_comma(column if decimal == "," else with_swapped_signs(column))
    return None if checked is None else checked.map(lambda cell: number_in(cell, ","), "ignore").astype("float64")


def are_codes(texts: Collection[str]) -> bool:
    """Whether distinct texts, all whole numbers, are rather codes: 0 stands before some, as in 007.

    One such text among others is rather a number, unless all have the same width, or another is the same number.
    """
    if not all(map(_WHOLE.fullmatch, texts)):
        return False
    padded = sum(map(bool, map(_PADDED.fullmatch, texts)))
    alike = len({len(text) for text in texts}) == 1 or len({text.lstrip("0") for text in texts}) < len(texts)
    return padded > 1 or (padded == 1 and alike)


def what_is_lost(texts: Iterable[str]) -> str | None:
    """In words, what of distinct texts is lost when they are read as numbers; None if nothing is."""
    fractions: dict[str, str] = {}
    has_exponent, whole = None, True
    for text in texts:
        if _PADDED.fullmatch(text):
            return f"{text!r} is read as {text.lstrip('0') or '0'}"
        if _FRACTION.fullmatch(text):
            other = fractions.setdefault(text.rstrip("0"), text)
            if other != text:
                return f"{min(other, text, key=len)!r} and {max(other, text, key=len)!r} are read as one number"
            whole = False
        elif _WHOLE.fullmatch(text):
            if len(text) < _LONGEST and int(text) > _EXACT and int(float(text)) != int(text):
                return f"{text!r} has more digits than numbers keep, and is read as {int(float(text))}"
        elif _EXPONENT.fullmatch(text):
            has_exponent = text
        else:
            whole = False
    if has_exponent is not None and whole:
        return f"{has_exponent!r} is read as {float(has_exponent):g}"
    return None


def as_known(column: pd.Series, known: WayOfWriting, stated: str | None, separator: str | None) -> pd.Series:
    """Text of a known column with its own decimal sign, or numbers where all of it is plain; no text as it is."""
    import pandas as pd

    if not (pd.api.types.is_object_dtype(column.dtype) or pd.api.types.is_string_dtype(column.dtype)):
        return column
    found = stated or decimal_of(column, known, separator)
    column = column if found == known.decimal else with_swapped_signs(column)
    numbers = as_plain_numbers(column, known.decimal)
    return column if numbers is None else numbers

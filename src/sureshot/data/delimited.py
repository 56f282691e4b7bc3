"""Text of cells between separators, whatever a spreadsheet made of it: encoding, separator, decimal sign.

What is not given is found out from the file: the encoding from its byte-order mark or else from its bytes (UTF-8 if
they can be it, UTF-16 if every other byte is zero, else Western European, which any bytes can be), the separator as the
one that cuts the first lines into most cells of equal number, and the decimal sign as a comma where another character
separates cells and numbers with commas come without numbers with points. What is unusual is named in a note.

>>> text, found = read_text(b"height;kind\\n1,5;a\\n2,25;b\\n", "heights.csv")
>>> found
TextFormat(encoding='UTF-8', separator=';', decimal=',')
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import logging
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO
from weakref import WeakKeyDictionary

from sureshot.data.checks import near
from sureshot.data.root import DataError

_log = logging.getLogger(__name__)

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
"""By character; the first of those that do equally well is taken."""
SEPARATOR_NAMES = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|", "space": " "}
"""What can be asked for by name."""
DECIMALS = (".", ",")

_SAMPLE = 1000  # lines that are looked at
_MARKS = {codecs.BOM_UTF8: "UTF-8", codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}
GROUPED = r"[1-9]\d{0,2}([.\s'’]\d{3})+"
"""A whole number with points, blanks or apostrophes between its thousands, as a pattern; none begins with 0."""
_WITH_COMMA = re.compile(rf"[+-]?(\d+|{GROUPED})?,\d+([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3}){2,}")  # two groups at least: one may be a fraction
_WITH_POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
_STATED = re.compile(r'"?sep=([^\r\n"])"?\r?\n', re.IGNORECASE)
_GROUPS = re.compile(rf"[+-]?{GROUPED}(,\d+)?")


@dataclass(frozen=True)
class TextFormat:
    """How numbers and names are written in a file; None is found out."""

    encoding: str | None = None
    separator: str | None = None  # one character
    decimal: str | None = None  # "." or ","

    @classmethod
    def checked(cls, encoding: str | None, separator: str | None, decimal: str | None) -> TextFormat:
        """From what a user states; a separator may be given by its name."""
        if separator is not None:
            separator = SEPARATOR_NAMES.get(separator.lower(), "\t" if separator == "\\t" else separator)
            odd = not separator.isascii() or separator.isalnum() or separator in "\"'.\r\n"
            if len(separator) != 1 or odd:
                known = ", ".join(SEPARATOR_NAMES)
                raise ValueError(
                    f"the separator must be one ASCII character that is no letter, digit, point or quotation "
                    f"mark, or one of {known}; got {separator!r}"
                )
        if decimal is not None and decimal not in DECIMALS:
            raise ValueError(f"the decimal sign must be '.' or ','; got {decimal!r}")
        if decimal is not None and decimal == separator:
            raise ValueError(f"separator and decimal sign are both {decimal!r}: they must differ")
        if encoding is not None:
            try:
                "a".encode(encoding)  # there are codecs that are none of text
            except LookupError:
                names = ("utf-8", "utf-16", "latin-1", "cp1252", "ascii")
                raise ValueError(f"there is no encoding {encoding!r}{near(encoding, names)}") from None
        return cls(encoding, separator, decimal)


ANY = TextFormat()

STANDARD_INPUT = Path("-")
_read_already: WeakKeyDictionary[BinaryIO, bytes] = WeakKeyDictionary()


def standard_input() -> bytes:
    """All that comes on standard input, which is read once."""
    stream = sys.stdin.buffer
    if stream not in _read_already:
        _read_already[stream] = stream.read()
    return _read_already[stream]


def any_column(name: str) -> bool:
    """True of every column."""
    return True


def read_text(
    data: bytes,
    name: str,
    wanted: TextFormat = ANY,
    is_used: Callable[[str], bool] = any_column,  # whether cells of a column say what the decimal sign is
) -> tuple[str, TextFormat]:
    """The text of a file's bytes, and its format with nothing left open; `DataError` where bytes are no text."""
    text, encoding = _decoded(data, name, wanted.encoding)
    if "\n" not in text:
        text = text.replace("\r", "\n")  # as old Macintosh programs end lines
    if stated := _STATED.match(text):  # Excel's own line
        text = text[stated.end() :]
        wanted = wanted if wanted.separator else replace(wanted, separator=stated[1])
    if "\0" in text[:4096]:
        raise DataError(f"{name} is not text: expected cells with separators between them")
    lines = [line for line in itertools.islice(io.StringIO(text), _SAMPLE) if line.strip()]
    separator = wanted.separator or _separator_of(lines)
    cells = [] if wanted.decimal else _cells(lines, separator, is_used)
    decimal = wanted.decimal or _decimal_of(cells, separator)
    if wanted.encoding is None and encoding == "cp1252":
        _log.info("%s is not UTF-8: read as Western European text (--encoding names another)", name)
    if wanted.separator is None and separator != "," and lines and separator in lines[0]:
        _log.info("%s: cells are separated by %s", name, SEPARATORS[separator])
    if wanted.decimal is None and decimal == "." and separator != "," and _look_grouped(cells):
        _log.info(
            "%s: 1.234 is read as 1.234, not as 1234, but where a model knows a column by decimal commas (--decimal , "
            "says that points group digits)",
            name,
        )
    if wanted.decimal is None and decimal == ",":
        _log.info("%s: the comma is taken for the decimal sign (--decimal names another)", name)
    return text, replace(wanted, encoding=encoding, separator=separator, decimal=decimal)


def _decoded(data: bytes, name: str, wanted: str | None) -> tuple[str, str]:
    mark = next((mark for mark in _MARKS if data.startswith(mark)), None)
    if wanted is not None:
        tried = [wanted]
    elif mark is not None:
        tried = [_MARKS[mark]]
    elif data[1:400:2].count(0) > 100 or (len(data) > 3 and data[1:400:2].strip(b"\0") == b""):
        tried = ["UTF-16-LE"]
    elif data[0:400:2].count(0) > 100 or (len(data) > 3 and data[0:400:2].strip(b"\0") == b""):
        tried = ["UTF-16-BE"]
    else:
        tried = ["UTF-8", "cp1252", "latin-1"]
    for encoding in tried:
        try:
            return data.decode(encoding).removeprefix("\ufeff"), encoding
        except UnicodeError as error:
            place = getattr(error, "start", 0)
    advice = "name its encoding with --encoding" if wanted is None else "--encoding names another, or is left out"
    raise DataError(f"{name} is not {tried[-1]} text (byte {place}): {advice}")


def _separator_of(lines: Sequence[str]) -> str:
    """That which cuts the lines into most cells, if all have as many; else what the first line has most of."""
    best, most = ",", 1
    for separator in SEPARATORS:
        widths = {len(row) for row in _rows(lines, separator)}
        if len(widths) == 1 and (width := widths.pop()) > most:
            best, most = separator, width
    if most == 1 and lines:  # rows of unequal length: what is wrong will be said by whoever reads them
        best = max(SEPARATORS, key=lines[0].count)
        if best not in lines[0] and "," in "".join(lines):
            best = ";"  # there is a single column, in whose cells a comma separates nothing
    return best


def _decimal_of(cells: Sequence[str], separator: str) -> str:
    if separator == ",":
        return "."
    with_comma = [cell for cell in cells if _WITH_COMMA.fullmatch(cell)]
    if not with_comma or any(_THOUSANDS.fullmatch(cell) for cell in cells):
        return "."
    points = [cell for cell in cells if _WITH_POINT.fullmatch(cell) and not _GROUPS.fullmatch(cell)]
    return "." if points else ","


def _look_grouped(cells: Sequence[str]) -> bool:
    """Whether points may group digits: there are some, and three digits follow on each."""
    points = [cell for cell in cells if _WITH_POINT.fullmatch(cell)]
    return bool(points) and all(_GROUPS.fullmatch(cell) for cell in points)


def _cells(lines: Sequence[str], separator: str, is_used: Callable[[str], bool]) -> list[str]:
    header, *rows = _rows(lines, separator) or [[]]
    used = [is_used(name.strip()) for name in header]
    return [cell.strip() for row in rows for cell in itertools.compress(row, used)]


def _rows(lines: Sequence[str], separator: str) -> list[list[str]]:
    try:
        return list(csv.reader(lines, delimiter=separator, skipinitialspace=True))
    except csv.Error:
        return []

"""Text of cells between separators, whatever a spreadsheet made of it: encoding, separator, decimal sign.

What is not given is found out from the file: the encoding from its byte-order mark or else from its bytes (UTF-8 if
they can be it, UTF-16 if every other byte is zero, else Western European, which any bytes can be), the separator as the
one that cuts the first lines into most cells of equal number, and the decimal sign as a comma where another character
separates cells and numbers with commas come without numbers with points. What is unusual is named in a note.

>>> text, found = read_text(b"height;kind\\n1,5;a\\n2,25;b\\n", "heights.csv")
>>> found.encoding, found.separator, found.decimal
('UTF-8', ';', ',')
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import logging
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import BinaryIO
from weakref import WeakKeyDictionary

from sureshot.data.checks import near
from sureshot.data.file_kinds import STANDARD_INPUT as STANDARD_INPUT
from sureshot.data.root import DataError
from sureshot.data.written_numbers import DECIMALS, decimal_among, may_be_grouped

_log = logging.getLogger(__name__)

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
"""By character; the first of those that do equally well is taken."""
SEPARATOR_NAMES = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|", "space": " "}
"""What can be asked for by name."""

_MARKS = {codecs.BOM_UTF8: "UTF-8", codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}
_STATED = re.compile(r'"?sep=([^\r\n"])"?\r?\n', re.IGNORECASE)
_BLANKS = re.compile(r'"[^"]*"|[ \t]*(^|$|\r?\n)[ \t]*|[ \t]+')


@dataclass(frozen=True)
class TextFormat:
    """How numbers, names and gaps are written in a file; None is found out."""

    encoding: str | None = None
    separator: str | None = None  # one character
    decimal: str | None = None  # "." or ","
    header: bool | None = None  # whether the first line has the names of columns; they have by default
    missing: tuple[str, ...] = ()  # what further cells are gaps, but for labels
    sheet: str | None = None  # of a spreadsheet, by default the first
    usual_separator: str | None = None  # of files like this one: taken before what is found out, where it fits
    usual_sheet: str | None = None  # likewise, where there is one of this name

    @classmethod
    def checked(
        cls,
        encoding: str | None,
        separator: str | None,
        decimal: str | None,
        header: bool | None = None,
        missing: Sequence[str] | None = None,
        sheet: str | None = None,
    ) -> TextFormat:
        """From what a user states; a separator may be given by its name."""
        if isinstance(missing, str):
            missing = (missing,)
        if others := [token for token in missing or () if not isinstance(token, str)]:
            raise ValueError(f"missing must be text of cells that are gaps, such as 'unknown'; got {others[0]!r}")
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
        return cls(encoding, separator, decimal, header, tuple(token.strip() for token in missing or ()), sheet)

    @property
    def of_text(self) -> bool:
        """Whether anything is stated that only files of text have."""
        return (self.encoding, self.separator, self.decimal) != (None, None, None)


ANY = TextFormat()

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


def no_column(name: str) -> bool:
    """False of every column."""
    return False


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
    if wanted.separator is None and wanted.usual_separator is not None and _fits(text, wanted.usual_separator):
        wanted = replace(wanted, separator=wanted.usual_separator)
    text, lines = _lines(text, wanted.separator)
    separator = wanted.separator or _separator_of(lines)

    def cells() -> Iterator[str]:
        return _cells(lines, separator, is_used, wanted.header)

    decimal = wanted.decimal or ("." if separator == "," else decimal_among(cells()))
    if wanted.encoding is None and encoding == "cp1252":
        _log.info("%s is not UTF-8: read as Western European text (--encoding names another)", name)
    if wanted.separator is None and separator != "," and lines and separator in lines[0]:
        _log.info("%s: cells are separated by %s", name, SEPARATORS[separator])
    if wanted.decimal is None and decimal == "." and separator != "," and may_be_grouped(cells(), "."):
        _log.info(
            "%s: 1.234 is read as 1.234, not as 1234, but where a model knows a column by decimal commas (--decimal , "
            "says that points group digits)",
            name,
        )
    if wanted.decimal is None and decimal == ",":
        doubt = ": 1,234 is read as 1.234, not as 1234" if may_be_grouped(cells(), ",") else ""
        _log.info("%s: the comma is taken for the decimal sign (--decimal names another)%s", name, doubt)
    return text, replace(wanted, encoding=encoding, separator=separator, decimal=decimal)


def _lines(text: str, separator: str | None) -> tuple[str, list[str]]:
    """Text in which runs of blanks are one where these separate cells, and its lines that hold anything."""
    text = _BLANKS.sub(_as_one, text) if separator == " " else text
    return text, [line for line in io.StringIO(text) if line.strip()]


def _fits(text: str, separator: str) -> bool:
    """Whether a separator is in the first line and cuts all into as many cells, if any does."""
    lines, as_found = _lines(text, separator)[1], _lines(text, None)[1]
    if not lines or separator not in lines[0]:
        return False
    return _width(lines, separator) > 1 or _width(as_found, _separator_of(as_found)) < 2


def _as_one(run: re.Match[str]) -> str:
    """A run of blanks as one, and none where a line begins or ends; quoted text as it is."""
    if run[0].startswith('"'):
        return run[0]
    return " " if run[1] is None else run[1]


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
    """That which cuts all lines into most cells, if they have as many; else what the first line has most of.

    The first line may have one cell less: rows have names, and their column none.
    """
    there = [separator for separator in SEPARATORS if any(separator in line for line in lines[:2])]
    if len(there) == 1 and there[0] in lines[0]:
        return there[0]
    widths = {separator: width for separator in there if (width := _width(lines, separator)) > 1}
    if widths:
        return max(widths, key=lambda separator: widths[separator])
    if not lines:
        return ","
    best = max(SEPARATORS, key=lines[0].count)  # of lines of unequal length whoever reads them says what is wrong
    if best not in lines[0] and any("," in line for line in lines):
        best = ";"  # there is a single column, in whose cells a comma separates nothing
    return best


def _width(lines: Sequence[str], separator: str) -> int:
    """Of how many cells all rows are; 0 where they differ."""
    widths = [len(row) for row in _rows(lines, separator)]
    if not widths or len(set(widths[1:])) > 1:
        return 0
    return widths[-1] if widths[0] == widths[-1] or lacks_one(widths[0], widths[-1]) else 0


def lacks_one(first: int, width: int) -> bool:
    """Whether a first line of so many cells lacks the name of the rows' names, as R writes it."""
    return 1 < first == width - 1


def between_blanks(text: str) -> int:
    """Into how many cells blanks cut every line; 0 where the lines differ, or have one cell."""
    widths = {len(line.split()) for line in text.splitlines() if line.strip()}
    width = max(widths, default=0)
    return width if width > 1 and widths <= {width, width - 1} else 0


def _cells(lines: Sequence[str], separator: str, is_used: Callable[[str], bool], header: bool | None) -> Iterator[str]:
    """Cells of the columns that are used, row by row."""
    rows = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    with suppress(csv.Error):
        first, second = next(rows, []), next(rows, [])
        names = ["", *first] if lacks_one(len(first), len(second)) else first
        if header is False:
            names = [place_name(place) for place in range(len(first))]
        used = [is_used(name.strip()) for name in names]
        for row in itertools.chain([first] if header is False else [], [second], rows):
            for cell in itertools.compress(row, used):
                yield cell.strip()


def place_name(place: int) -> str:
    """What a column without a name is called, by its place counted from 0."""
    return f"column {place + 1}"


def _rows(lines: Sequence[str], separator: str) -> list[list[str]]:
    try:
        return list(csv.reader(lines, delimiter=separator, skipinitialspace=True))
    except csv.Error:
        return []

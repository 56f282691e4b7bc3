"""Tables for a terminal of any width: text is wrapped between words, and no number is cut or folded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.table import Table

from sureshot.rounding import rounded

SHORT_LINE = 24
"""Characters to which text is wrapped before columns are parted."""

MARGIN = 3  # a column's border and padding


def text_tables(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    width: int,  # of the terminal, in characters
    title: str | None = None,
) -> Iterator[Table]:
    """The table; if its columns need more room than there is, one below the other, each with the first column.

    Where that does not fit beside a column either, its cells stand above those of the column.
    Columns of numbers are aligned right.
    """
    cells = [[cell(value) for value in row] for row in rows]
    is_figures = [i > 0 and all(_is_figure(row[i]) for row in cells) for i in range(len(columns))]
    least, wanted = (
        [
            MARGIN + max(_least([name], 0), _least([row[i] for row in cells], line, whole=is_figures[i]))
            for i, name in enumerate(columns)
        ]
        for line in (0, SHORT_LINE)
    )
    for part in _parts(wanted, width):
        table = Table(title=title, title_justify="left")
        title = None
        fits = sum(least[i] for i in part) < width
        if not fits and max(least[i] for i in part) < width:
            table.show_lines = True
            table.add_column("\n".join(columns[i] for i in part), overflow="fold")
            for row in cells:
                table.add_row("\n".join(row[i] for i in part))
            yield table
            continue
        for i in part:
            numbers = all(row[i] is None or isinstance(row[i], int | float) for row in rows)
            table.add_column(
                columns[i],
                justify="right" if numbers else "left",
                overflow="fold",
                min_width=least[i] - MARGIN if fits else None,
            )
        for row in cells:
            table.add_row(*(row[i] for i in part))
        yield table


def cell(value: object) -> str:
    """A number with four digits after the point or more, everything else as it is; nothing for None."""
    if value is None:
        return ""
    if isinstance(value, float):
        return rounded(value, 4)
    return str(value)


def _is_figure(text: str) -> bool:
    return not text or text.lstrip("+-.")[:1].isdigit()


def _least(texts: Sequence[str], line: int, whole: bool = False) -> int:
    """Characters for the longest text, or for its longest word or a line, whichever is longer.

    Paths may be folded: they are no words, and as long as a terminal is wide.
    """
    longest = max(map(cell_len, texts), default=0)
    if whole:
        return longest
    words = (min(cell_len(word), SHORT_LINE if "/" in word else longest) for text in texts for word in text.split())
    return max(min(longest, line), max(words, default=0))


def _parts(needed: Sequence[int], width: int) -> Iterator[list[int]]:
    """Which columns stand side by side, the first always among them."""
    part = [0]
    for i in range(1, len(needed)):
        if len(part) > 1 and sum(needed[k] for k in (*part, i)) >= width:
            yield part
            part = [0]
        part.append(i)
    yield part

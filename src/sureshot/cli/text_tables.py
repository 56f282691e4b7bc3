"""Tables for a terminal of any width: text is wrapped, and no number is cut or folded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.table import Table

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

    Columns of numbers are aligned right.
    """
    cells = [[cell(value) for value in row] for row in rows]
    is_figures = [i > 0 and all(_is_figure(row[i]) for row in cells) for i in range(len(columns))]
    needed = [
        MARGIN + max(_least([name]), _least([row[i] for row in cells], whole=is_figures[i]))
        for i, name in enumerate(columns)
    ]
    for part in _parts(needed, width):
        table = Table(title=title, title_justify="left")
        for i in part:
            numbers = all(row[i] is None or isinstance(row[i], int | float) for row in rows)
            table.add_column(
                columns[i],
                justify="right" if numbers else "left",
                overflow="fold",
                min_width=min(needed[i], width - 1) - MARGIN if is_figures[i] else None,
            )
        for row in cells:
            table.add_row(*(row[i] for i in part))
        yield table
        title = None


def cell(value: object) -> str:
    """A number with four digits after the point, everything else as it is; nothing for None."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4f}"
    return str(value)


def _is_figure(text: str) -> bool:
    return not text or text.lstrip("+-.")[:1].isdigit()


def _least(texts: Sequence[str], whole: bool = False) -> int:
    """Characters for the longest text, or for its longest word or a short line, whichever is longer."""
    longest = max(map(cell_len, texts), default=0)
    if whole:
        return longest
    words = (cell_len(word) for text in texts for word in text.split())
    return max(min(longest, SHORT_LINE if len(texts) > 1 else 0), min(max(words, default=0), SHORT_LINE))


def _parts(needed: Sequence[int], width: int) -> Iterator[list[int]]:
    """Which columns stand side by side, the first always among them."""
    part = [0]
    for i in range(1, len(needed)):
        if len(part) > 1 and sum(needed[k] for k in (*part, i)) >= width:
            yield part
            part = [0]
        part.append(i)
    yield part

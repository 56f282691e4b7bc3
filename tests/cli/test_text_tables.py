"""Tables in terminals of every width."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from sureshot.cli.console import output_console
from sureshot.cli.text_tables import text_tables

COLUMNS = ("method", "accuracy", "NLL", "unknown AUROC")
ROWS = [
    ("sureshot", "0.885 ± 0.015", "0.360 ± 0.031", 0.8512),
    ("logistic regression, temperature by CV", "0.892 ± 0.010", "0.356 ± 0.037", None),
]


def printed(
    width: int,
    title: str | None = None,
    columns: Sequence[str] = COLUMNS,
    rows: Sequence[Sequence[object]] = ROWS,
) -> list[str]:
    console = Console(file=StringIO(), width=width, color_system=None)
    for table in text_tables(columns, rows, width, title):
        console.print(table)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
def test_no_number_is_cut_or_folded(width: int) -> None:
    lines = printed(width)
    assert all(len(line) <= width for line in lines)
    for number in ("0.885 ± 0.015", "0.356 ± 0.037", "0.8512"):
        assert sum(number in line for line in lines) == 1


@pytest.mark.parametrize("width", [40, 60, 80, 100])
@pytest.mark.parametrize("longest", [10, 25, 36])
def test_no_name_is_folded_inside_a_word(width: int, longest: int) -> None:
    """In any column, and in the header: classes and methods have names without blanks, and of any length."""
    name = "reset_settings_of_all_devices_at_once"[:longest]
    header, other = f"accuracy_of_{name}"[:longest], name[::-1]
    rows = [(name, "0.885 ± 0.015", other, "a sentence of some short words"), ("two", "0.1", "x", "short")]
    lines = printed(width, columns=("method", header, "confused with", "remark"), rows=rows)
    assert all(len(line) <= width for line in lines)
    for text in (name, header, other):
        assert any(text in line for line in lines), text


def test_columns_without_room_follow_below_with_the_first_column() -> None:
    wide, narrow = printed(160, "scores"), printed(60, "scores")
    assert sum("method" in line for line in wide) == 1
    assert sum("method" in line for line in narrow) == 2
    assert sum("scores" in line for line in narrow) == 1


def test_long_text_is_wrapped_between_words() -> None:
    lines = printed(60)
    assert any("temperature by CV" in line and "logistic" not in line for line in lines)


def test_a_table_without_rows_has_its_header() -> None:
    (table,) = text_tables(("a", "b"), [], 80)
    assert [column.header for column in table.columns] == ["a", "b"]


@given(
    st.lists(
        st.lists(st.floats(allow_nan=False) | st.text(max_size=40) | st.none(), min_size=3, max_size=3), max_size=4
    ),
    st.integers(20, 200),
)
def test_every_column_is_shown_once_beside_the_first(rows: list[list[object]], width: int) -> None:
    tables = text_tables(("a", "b", "c"), rows, width)
    shown = [[name for column in table.columns for name in str(column.header).split("\n")] for table in tables]
    assert all(part[0] == "a" for part in shown)
    assert [name for part in shown for name in part[1:]] == ["b", "c"]


@pytest.mark.parametrize(("stated", "width"), [("70", 70), (None, 160)])
def test_what_is_redirected_is_as_wide_as_is_stated(
    monkeypatch: pytest.MonkeyPatch, stated: str | None, width: int
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if stated is not None:
        monkeypatch.setenv("COLUMNS", stated)
    monkeypatch.setattr("sys.stdout", StringIO())
    assert output_console().width == width

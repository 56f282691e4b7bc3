"""Numbers as text: one way of writing reads them back, whatever the next file looks like."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sureshot.data.written_numbers import WayOfWriting, are_codes, as_known, decimal_of, what_is_lost

WAYS = {"Boston": (",", "."), "Berlin": (".", ","), "Bern": ("’", "."), "Paris": (" ", ",")}
thousandths = st.integers(min_value=-(10**12), max_value=10**12)


def written(value: int, digits: int, group: str, decimal: str) -> str:
    """Thousandths as text with so many digits behind the decimal sign, of which none is lost."""
    whole, rest = divmod(abs(value), 1000)
    groups = f"{whole:,}".replace(",", group)
    return ("-" if value < 0 else "") + groups + (f"{decimal}{rest:03d}" if digits else "")


@given(value=thousandths, further=thousandths, digits=st.sampled_from([0, 3]), place=st.sampled_from(sorted(WAYS)))
def test_what_was_learnt_of_a_column_holds(value: int, further: int, digits: int, place: str) -> None:
    """A column whose thousands were told is read back from any separator, also where a cell alone says nothing."""
    group, decimal = WAYS[place]
    if not digits:
        value, further = 1000 * value, 1000 * further
    column = pd.Series([written(value, digits, group, decimal), written(further, digits, group, decimal)], dtype=object)
    for separator in (",", ";", "\t"):
        known = WayOfWriting(decimal, group in ".,")
        if known.grouped or decimal == ".":
            found = as_known(column, known, None, separator)
            assert found.tolist() == [value / 1000, further / 1000]


@pytest.mark.parametrize(
    ("cells", "known", "separator", "expected"),
    [
        (["62,000"], WayOfWriting(".", True), "\t", "."),
        (["62,000"], WayOfWriting(",", False), "\t", ","),
        (["62.000"], WayOfWriting(",", True), ",", ","),
        (["62.000"], WayOfWriting(",", False), ",", "."),
        (["62.000"], WayOfWriting(",", False), ";", ","),
        (["62,5"], WayOfWriting(".", True), ";", ","),  # groups have three digits
        (["0,625"], WayOfWriting(".", True), ";", ","),  # and do not begin with 0
        (["1.250,5", "62,000"], WayOfWriting(".", True), ";", ","),
        (["$1,250.5", "$62,000"], WayOfWriting(",", True), "\t", "."),
        (["n/k", "62.5"], WayOfWriting(",", True), ";", "."),  # what has no digits says nothing
    ],
)
def test_cells_that_can_be_read_in_one_way_only_decide(
    cells: list[str], known: WayOfWriting, separator: str, expected: str
) -> None:
    assert decimal_of(pd.Series(cells), known, separator) == expected


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["007", "7"], True),
        (["007", "7", "07"], True),
        (["01234", "10115"], True),
        (["05", "010", "333"], True),
        (["12", "012345", "7"], False),  # one cell of many may be a slip
        (["0", "7"], False),
        (["0.5", "00.5"], False),
        (["1", "2"], False),
    ],
)
def test_whole_numbers_that_begin_with_zero_are_codes(texts: list[str], expected: bool) -> None:
    assert are_codes(texts) is expected


@pytest.mark.parametrize(
    ("texts", "lost"),
    [
        (["3.1", "3.10", "3.2"], "'3.1' and '3.10' are read as one number"),
        (["12", "012345"], "'012345' is read as 12345"),
        (["1E2", "7"], "'1E2' is read as 100"),
        (["1E2", "7.5"], None),
        (["9007199254740993"], "is read as 9007199254740992"),
        (["1.50", "2.00", "-3.25"], None),
        (["1", "1.0"], None),
        (["1" * 400], None),
    ],
)
def test_text_that_a_number_would_not_give_back(texts: list[str], lost: str | None) -> None:
    found = what_is_lost(texts)
    assert found is None if lost is None else found is not None and lost in found

"""How cells are read: numbers, dates and gaps as people write them, and what is said of those that are none."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sureshot.cli.reading import KINDS as KINDS_OF_COMMANDS
from sureshot.data.cells import (
    KINDS,
    CellError,
    as_days,
    as_numbers,
    as_texts,
    gaps_of,
    kind_of,
    order_of,
    zones_of,
)

NAN = float("nan")
DAY = 18292.0  # 2020-01-31


def series(cells: Any) -> pd.Series:
    return pd.Series(cells, name="x")


def test_commands_know_the_kinds() -> None:
    assert KINDS_OF_COMMANDS == KINDS


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1,234.50", "$12", "12 %", " "], [1234.5, 12, 12, NAN]),
        (["€ 1.234,50", "3,5", "1.234", "?"], [1234.5, 3.5, 1234, NAN]),
        (["-$5", "+3", "−4", "CHF 1'000"], [-5, 3, -4, 1000]),
        (["1 234 567", "12"], [1234567, 12]),
        (["1e5", ".5", "5.", "n/a"], [1e5, 0.5, 5, NAN]),
        ([True, False, None], [1, 0, NAN]),
        ([Decimal("1.5"), 2, "3"], [1.5, 2, 3]),
        (pd.array([1, None], dtype="Int64"), [1, NAN]),
        (pd.array([True, None], dtype="boolean"), [1, NAN]),
        (pd.to_timedelta([12, None], unit="h"), [0.5, NAN]),
        ([datetime.timedelta(days=2), None], [2, NAN]),
    ],
)
def test_numbers_as_people_write_them(cells: Any, expected: list[float]) -> None:
    kind, decimal = kind_of(series(cells))
    assert kind == "number"
    np.testing.assert_array_equal(as_numbers(series(cells), decimal), expected)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (
            ["48.1", "52.3", "50.9", "x", "49.2", "51.7", "47.7", "53.0", "50.1"],
            "'x' in row 3, counted from 0, is no num",
        ),
        ([*(f"{k} m" for k in range(2)), *map(str, range(20))], "'0 m' in row 0"),
    ],
)
def test_a_stray_cell_makes_no_categories_of_measurements(cells: Any, message: str) -> None:
    with pytest.raises(CellError, match=message):
        kind_of(series(cells))


def test_runs_of_blanks_take_no_time_to_speak_of() -> None:
    """A pattern that tries every end of a run would need the cube of its length: hours for these."""
    assert kind_of(series([f"{k} High Street" + 20_000 * " " + "flat" for k in range(40)]))[0] != "number"
    assert as_numbers(series(["12" + 100_000 * "\t" + "%", "$" + 100_000 * " " + "3"])).tolist() == [12, 3]


def test_a_cell_of_a_frame_with_an_index_is_named_by_it() -> None:
    column = pd.Series([*map(str, range(40)), "x"], index=[f"r{k}" for k in range(41)], name="a")
    with pytest.raises(CellError, match="'x' in row r40 of the index, is no number: correct it or leave it empty"):
        kind_of(column)


@pytest.mark.parametrize(
    "cells",
    [
        ["1", "2", "3", "4", "5", "6", "7", "8", "other"] * 2,
        ["36", "38", "40", "42", "44", "46", "XL", "XS", "S", "M"],
        ["1001-12", "1002-11", "1003-10", "1004-09"],
    ],
)
def test_codes_are_categories(cells: Any) -> None:
    assert kind_of(series(cells))[0] == "category"


@pytest.mark.parametrize("gap", ["-", "--", "n.a.", "#DIV/0!", "#VALUE!", "NAN"])
def test_what_programs_write_for_a_gap_is_one(gap: str) -> None:
    assert kind_of(series(["48.1", gap, "50.9"])) == ("number", ".")
    np.testing.assert_array_equal(as_numbers(series(["48.1", gap])), [48.1, NAN])


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["2020-01-31", "", "2020-01-31T12:00"], [DAY, NAN, DAY + 0.5]),
        (["2020-01-31T12:00+02:00"], [DAY + 10 / 24]),
        (["31.01.2020", "31.1.2020"], [DAY, DAY]),
        (["01/31/2020", "02/01/2020"], [DAY, DAY + 1]),
        (["31/01/2020", "01/02/2020"], [DAY, DAY + 1]),
        (["1/31/20", "2/1/20"], [DAY, DAY + 1]),
        (["31/1/20", "1/2/20"], [DAY, DAY + 1]),
        (["31-Jan-20", "01-Feb-20"], [DAY, DAY + 1]),
        (["1/31/2020 12:00 PM", "2/1/2020 6:00 am"], [DAY + 0.5, DAY + 1.25]),
        (["Jan 31, 2020", "1 Feb 2020"][:1], [DAY]),
        (["10:30", "23:00"], [10.5 / 24, 23 / 24]),
        ([datetime.time(12), None], [0.5, NAN]),
        ([datetime.date(2020, 1, 31), pd.NaT], [DAY, NAN]),
        (pd.to_datetime(["2020-01-31", None]), [DAY, NAN]),
        (pd.to_datetime(["2020-01-31"]).tz_localize("Europe/Berlin"), [DAY - 1 / 24]),
        (pd.period_range("2020-02", periods=1, freq="M"), [DAY + 1]),
        (["9999-12-31", "0001-01-01"], [2932896, -719162]),
    ],
)
def test_dates_as_people_write_them(cells: Any, expected: list[float]) -> None:
    kind, form = kind_of(series(cells))
    assert kind == "date"
    np.testing.assert_allclose(as_days(series(cells), form), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "cells",
    [
        ["red", "blue"],
        ["yes", "no"],
        [1, "a", 2.5, None],
        ["10 20", "3"],
        ["e5", "1e5"],
        ["1", "2", "4+"],
        ["555-1234"],
    ],
)
def test_what_is_left_are_categories(cells: list[Any]) -> None:
    assert kind_of(series(cells)) == ("category", "")


def test_numbers_of_one_value_have_one_text() -> None:
    assert as_texts(series([3.0, 2.5, None])).tolist() == ["3", "2.5", None]
    assert as_texts(series([3, 2])).tolist() == ["3", "2"]
    assert as_texts(series([" a ", "NA", 3])).tolist() == ["a", None, "3"]
    assert as_texts(series(pd.Categorical([1, None]))).tolist() == ["1", None]


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (
            [f"2020-01-{d:02d}" for d in range(1, 8)] + ["soon"],
            "'soon' in row 7, counted from 0, is no date such as 2025",
        ),
        ([str(n) for n in range(60)] + ["x1"], "'x1' in row 60, counted from 0, is no number"),
        (["1e999", "2"], "infinity in row 0"),
        ([b"a"], "bytes in row 0.*decode"),
        ([{}, 1], "dict in row 0"),
        ([1 + 2j], "complex128"),
        (pd.interval_range(0, 2), "interval"),
    ],
)
def test_an_odd_cell_is_named(cells: Any, message: str) -> None:
    def read() -> None:
        as_numbers(series(cells), kind_of(series(cells))[1])

    with pytest.raises(CellError, match=message):
        read()


def test_rows_have_the_names_that_they_have_in_the_frame() -> None:
    with pytest.raises(CellError, match="'b' in row 11"):
        as_numbers(pd.Series(["1", "b"], index=[10, 11], name="x"))


@given(st.lists(st.one_of(st.none(), st.text(max_size=8), st.integers(), st.floats(), st.dates(), st.booleans())))
def test_any_column_is_read_or_refused_in_a_line(cells: list[Any]) -> None:
    column, said = pd.Series(cells, dtype=object, name="x"), ""
    try:
        kind, way = kind_of(column)
        if kind in ("number", "date"):
            found = (as_numbers if kind == "number" else as_days)(column, way)
            np.testing.assert_array_equal(np.isnan(found), gaps_of(column))
    except CellError as error:
        said = str(error)
    assert "\n" not in said
    assert [text is None for text in as_texts(column)] == gaps_of(column).tolist()


def test_single_precision_names_the_same_levels() -> None:
    values = pd.Series([0.1, 2.0, np.nan, 1e-7])
    assert as_texts(values.astype(np.float32)).tolist() == as_texts(values).tolist()
    assert as_texts(values.astype("Float32")).tolist() == as_texts(values).tolist()


def test_gaps_and_dates_are_the_same_in_categories() -> None:
    texts = pd.Series(["NA", "EU", "?", "AS"], name="c")
    assert as_texts(texts.astype("category")).tolist() == as_texts(texts).tolist() == [None, "EU", None, "AS"]
    days = pd.Series(["2025-01-02", "", "2025-01-04"], name="d")
    np.testing.assert_array_equal(as_days(days.astype("category")), as_days(days))
    moments = pd.Series(pd.to_datetime(["2025-01-02", None, "2025-01-04"]), name="d")
    np.testing.assert_array_equal(as_days(moments.astype("category")), as_days(moments))


@pytest.mark.parametrize("dtype", ["float16", "float32", "Float32", "float[pyarrow]", "halffloat[pyarrow]"])
def test_levels_are_the_same_in_any_precision(dtype: str) -> None:
    levels = pd.Series([0.1, 0.2, 3.0], name="c")
    assert as_texts(levels.astype(dtype)).tolist() == ["0.1", "0.2", "3"]
    if dtype not in ("float16", "halffloat[pyarrow]"):  # pandas has no categories of these
        assert as_texts(levels.astype(dtype).astype("category")).tolist() == ["0.1", "0.2", "3"]
    assert as_texts(pd.Series([np.float32(0.1), "x"], name="c")).tolist() == ["0.1", "x"]


@pytest.mark.parametrize(
    ("cells", "kind"),
    [(["007", "7", "07"], "category"), (["01234", "10115"], "category"), (["0.5", "0", "1"], "number")],
)
def test_whole_numbers_that_begin_with_zero_are_codes(cells: list[str], kind: str) -> None:
    assert kind_of(series(cells))[0] == kind
    assert kind_of(series(cells), "number")[0] == "number"


def test_cells_that_are_no_numbers_are_named_together() -> None:
    cells = [*map(str, range(40)), "unknown", "n/k", "unknown", "unknown", "a", "b"]
    with pytest.raises(CellError) as caught:
        kind_of(series(cells))
    told = str(caught.value)
    assert (
        "'unknown' in row 40, counted from 0, and 2 more rows, 'n/k' in row 41, counted from 0, 'a' in row 44" in told
    )
    assert "and 1 other texts is no number: correct them or leave them empty" in told


@pytest.mark.parametrize(
    ("cells", "order"),
    [
        ([*(f"0{m}/0{d}/2025" for m in range(1, 8) for d in range(1, 8)), "25/12/2025"], "day_first"),
        ([*(f"0{m}-0{d}-2025" for m in range(1, 8) for d in range(1, 8)), "12-25-2025"], "month_first"),
        (["31.12.2025"], "day_first"),
        (["2025-12-31"], None),
    ],
)
def test_the_order_of_day_and_month_is_the_one_that_all_rows_allow(cells: list[str], order: str | None) -> None:
    kind, form = kind_of(series(cells))
    assert (kind, order_of(form)) == ("date", order)


def test_an_order_can_be_stated_and_is_named_where_a_cell_has_the_other() -> None:
    cells = ["05/04/2025", "06/04/2025"]
    kind, form = kind_of(series(cells), "day_first")
    assert kind == "date"
    assert as_days(series(cells), form).tolist() == [20183.0, 20184.0]  # the fifth and the sixth of April
    assert as_days(series(cells), kind_of(series(cells))[1]).tolist() == [20212.0, 20243.0]  # 4 May and 4 June
    with pytest.raises(CellError, match=r"no date such as 12/31/2025, but one in the other order.*'x': 'day_first'"):
        as_days(series(["25/12/2025"]), "%m/%d/%Y")
    with pytest.raises(CellError, match="is no date such as 12/31/2025: correct"):
        as_days(series(["25/25/2025"]), "%m/%d/%Y")


@pytest.mark.parametrize(
    ("cells", "zones"),
    [
        (["2025-01-01T10:00Z", ""], {True}),
        (["2025-01-01 10:00+0200", "2025-01-01T10:00"], {True, False}),
        (["2025-01-01"], {False}),
        (pd.to_datetime(["2025-01-01"]), {False}),
        (pd.to_datetime(["2025-01-01"]).tz_localize("Europe/Berlin"), {True}),
        ([datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC), None], {True}),
        ([1.5], set()),
    ],
)
def test_time_zones_are_seen(cells: Any, zones: set[bool]) -> None:
    assert zones_of(series(cells)) == zones

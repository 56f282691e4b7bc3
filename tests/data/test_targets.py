"""What a column of targets holds: classes that people name by numbers are not measured, and numbers are not named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sureshot.data import DataError, read_table
from sureshot.data.root import UnclearTask
from sureshot.data.tables import load_table
from sureshot.data.targets import FEW, task_of_numbers

RNG = np.random.default_rng(0)
INTEGERS = st.integers(-(10**9), 10**9)

COLUMNS: dict[str, tuple[Any, str | None]] = {
    "digits": (np.arange(500) % 10, "classes"),
    "letters from 1": (1 + np.arange(2000) % 26, "classes"),
    "one of each digit": (np.arange(10), "classes"),
    "signs": ([-1, 1, 1], "classes"),
    "two codes": ([3, 7, 7], "classes"),
    "one class": ([4, 4, 4], "classes"),
    "150 intents, five each": (np.repeat(np.arange(150), 5), "classes"),
    "codes far apart": (np.repeat([101, 205, 990], 4), "classes"),
    "ratings": (RNG.integers(3, 10, 1500), "classes"),
    "prices": (RNG.integers(100_000, 900_000, 300), "numbers"),
    "few prices": (120 + 7 * np.arange(12) ** 2, "numbers"),
    "counts of many kinds": (RNG.poisson(300, 2000) ** 2, None),
    "ages": (RNG.integers(18, 90, 400), None),
    "ranks": (np.arange(300), None),
    "four rows": ([120, 135, 150, 99], None),
    "fractions": ([0.5, 1.0, 0.5], "numbers"),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_that_people_have(name: str) -> None:
    values, task = COLUMNS[name]
    assert task_of_numbers(np.asarray(values, dtype=float)) == task


@settings(max_examples=60, deadline=None)
@given(st.lists(INTEGERS, min_size=1, max_size=FEW, unique=True), st.integers(2, 4), st.randoms())
def test_few_that_come_again_are_classes_in_any_order(labels: list[int], times: int, random: Any) -> None:
    rows = labels * times
    random.shuffle(rows)
    assert task_of_numbers(np.array(rows, dtype=float)) == "classes"


@settings(max_examples=60, deadline=None)
@given(st.lists(INTEGERS, min_size=1, max_size=80), st.integers(2, 4))
def test_rows_that_come_again_make_no_numbers_of_classes(values: list[int], times: int) -> None:
    once, again = (task_of_numbers(np.array(values * n, dtype=float)) for n in (1, times))
    assert again != "numbers" or once == "numbers"


@settings(max_examples=60, deadline=None)
@given(st.lists(INTEGERS, min_size=10, max_size=80, unique=True), st.booleans())
def test_whole_numbers_that_all_differ_are_no_classes_but_of_a_count(values: list[int], fraction: bool) -> None:
    rows = np.array(values, dtype=float)
    if fraction:
        rows[0] += 0.5
    elif rows.max() - rows.min() < 2 * len(rows):
        return
    assert task_of_numbers(rows) == "numbers"


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1), st.integers(1, 200), st.integers(2, 9))
def test_classes_that_are_counted_and_come_as_often(first: int, n_classes: int, times: int) -> None:
    assert task_of_numbers(np.repeat(np.arange(first, first + n_classes), times).astype(float)) == "classes"


def written(tmp_path: Path, cells: Any, separator: str = ",") -> Path:
    pd.DataFrame({"x": range(len(cells)), "y": cells}).to_csv(tmp_path / "a.csv", index=False, sep=separator)
    return tmp_path / "a.csv"


def found(path: Path, task: Any = "auto") -> tuple[list[Any], bool]:
    table = load_table(path, "y", task=task)
    assert table.y is not None
    return table.y.tolist(), table.numbers


@pytest.mark.parametrize(
    "cells",
    [
        ["a", "b", "a"],
        [True, False, True],
        ["007", "008", "007"],
        ["5 %", "10 %", "5 %"],
        ["2024-01-01", "2024-01-02", "2024-01-02"],
        [1, 2, "NA", 1, 2, "NA"],
        ["1", "other", "2"],
    ],
)
def test_classes_stay_what_they_are(cells: list[Any], tmp_path: Path) -> None:
    """As they are read where nobody thinks of numbers."""
    path = written(tmp_path, cells)
    assert found(path) == found(path, "classes")
    assert not found(path)[1]


def test_numbers_of_files_of_many_kinds(tmp_path: Path) -> None:
    true = [0.5, 1e-05, 2500.25, *np.linspace(3, 4, 40).tolist()]
    assert found(written(tmp_path, true)) == (true, True)
    commas = [repr(number).replace(".", ",") for number in true]
    assert found(written(tmp_path, commas, ";")) == (true, True)
    assert read_table(written(tmp_path, [3, 4, 3]), "y", task="numbers").y.tolist() == [3.0, 4.0, 3.0]  # type: ignore[union-attr]
    assert found(written(tmp_path, ["$1,250.50", "$3"]), "numbers") == ([1250.5, 3.0], True)
    np.savez(tmp_path / "a.npz", X=np.zeros((3, 2)), y=np.array([0.5, 1, 2]))
    table = load_table(tmp_path / "a.npz", task="auto")
    assert table.numbers
    assert load_table(tmp_path / "a.npz", "y", task="numbers").y is not None


def test_what_is_not_clear_is_asked(tmp_path: Path) -> None:
    ages = written(tmp_path, RNG.integers(18, 90, 400))
    with pytest.raises(UnclearTask, match=r"column 'y' holds \d+ different whole numbers in 400 rows"):
        found(ages)
    assert found(ages, "numbers")[1]
    assert not found(ages, "classes")[1]


@pytest.mark.parametrize(
    ("cells", "task", "message"),
    [
        (["a", "b"], "numbers", "holds text, 'a', 'b', where numbers"),
        (["2024-01-01", "2024-01-02"], "numbers", "of dates, days since"),
        ([True, False], "numbers", "true and false, which are classes"),
        ([1.5, None, 2.5], "numbers", r"no number in 1 of 3 rows \(the first is row 1"),
        ([1.5, None, 2.5], "auto", "no number in 1 of 3"),
        ([1.5, "NA", 2.5], "numbers", "no number in 1 of 3"),
        ([1.5, np.inf, 2.5], "numbers", "infinity in row 1"),
        ([*np.linspace(0, 1, 30).tolist(), "about 2"], "auto", "holds text, 'about 2'"),
        ([1.5, 2.5], "classes", "numbers with fractions"),
    ],
)
def test_targets_that_are_none(cells: list[Any], task: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        found(written(tmp_path, cells), task)

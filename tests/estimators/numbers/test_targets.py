"""Numbers as users pass them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from sureshot.estimators.numbers.targets import check_numbers


@pytest.mark.parametrize(
    "y",
    [
        [1, 2, 3],
        (1.0, 2, 3),
        np.array([1, 2, 3], dtype=np.int8),
        pd.Series([1, 2, 3], dtype="Int64"),
        torch.tensor([1.0, 2, 3], requires_grad=True),
        np.array([[1], [2], [3]]),
        ["1", "2", "3"],
    ],
)
def test_numbers_of_any_kind(y: Any) -> None:
    found = check_numbers(y, 3)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, [[1.0], [2.0], [3.0]])


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "the target y is None"),
        (["red", 1, 2], "y must hold numbers; got 'red'"),
        ([True, False, True], "truth values, which are classes"),
        (pd.to_datetime(["2026-01-01"] * 3), "dates or times"),
        ([1, 2], "X has 3, y has 2"),
        ([1, 2, np.inf], "NaN or infinity"),
        (pd.Series([1, None, 2], dtype="Int64"), "missing numbers"),
        (np.ma.masked_array([1.0, 2.0, 3.0], [0, 1, 0]), "masked"),
        ([1, 2, 1e200], "whose square is no number"),
        (np.zeros((3, 2, 2)), r"got shape \(3, 2, 2\)"),
        (np.zeros((3, 0)), "a row of numbers"),
        ([1j, 2, 3], "Complex"),
    ],
)
def test_what_is_no_number_is_refused(y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_numbers(y, 3)


def test_as_many_numbers_a_row_as_are_known() -> None:
    with pytest.raises(ValueError, match="y must have 2 numbers a row, as in fit; got 1"):
        check_numbers([1, 2, 3], 3, 2)

"""How numbers are shown."""

from __future__ import annotations

import math

import pytest

from sureshot.rounding import rounded


@pytest.mark.parametrize(
    ("value", "error", "shown"),
    [
        (0.93571, math.nan, "0.9357"),
        (-1234.56789, 0.1, "-1234.5679 ± 0.1000"),
        (0.0, 0.0, "0.0000 ± 0.0000"),
        (1e-17, math.nan, "0.0000"),  # a sum that is zero
        (0.00123, math.nan, "0.0012"),
        (0.000123, math.nan, "0.00012"),
        (-3.14e-7, 2e-8, "-0.00000031 ± 0.00000002"),
        (3e-9, 0.02, "0.0000 ± 0.0200"),
        (math.inf, math.nan, "inf"),
        (math.nan, math.nan, "nan"),
    ],
)
def test_small_numbers_are_not_shown_as_zero(value: float, error: float, shown: str) -> None:
    assert rounded(value, 4, error) == shown

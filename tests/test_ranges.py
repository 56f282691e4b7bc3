"""Numbers that settings are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sureshot.ranges import check_counts, check_positive


def test_numbers_in_range_pass() -> None:
    check_counts(1, steps=1, tasks=np.int64(3), way=None)
    check_positive(rate=0.1, scale=np.float32(2.0), bound=None)


@pytest.mark.parametrize("count", [0, -1, 1.0, True, "3"])
def test_counts_are_refused_by_name(count: Any) -> None:
    with pytest.raises(ValueError, match=f"steps must be at least 1, got {count!r}"):
        check_counts(1, tasks=2, steps=count)


@pytest.mark.parametrize("value", [0.0, -1.0, np.inf, np.nan])
def test_numbers_are_refused_by_name(value: float) -> None:
    with pytest.raises(ValueError, match=f"rate must be positive and finite, got {value}"):
        check_positive(scale=1.0, rate=value)

"""How much memory may be used."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sureshot import GPClassifier
from sureshot.computing.memory import free_memory, in_bytes, memory_budget


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("2GB", 2e9), (" 1.5 GiB ", 1.5 * 2**30), ("500 mb", 5e8), ("3e9", 3e9), ("64k", 64e3), ("7 B", 7), (1000, 1000)],
)
def test_sizes(limit: Any, expected: float) -> None:
    assert memory_budget(limit) == expected


@pytest.mark.parametrize("limit", ["", "GB", "-1GB", "0 GB", "two", "1 QB", "nan", "1GB!", 0, -1, True, None, [1]])
def test_what_is_no_size_is_refused(limit: Any) -> None:
    with pytest.raises(ValueError, match="memory_limit must be 'auto', a positive number of bytes, or a size"):
        memory_budget(limit)
    with pytest.raises(ValueError, match="memory_limit"):
        GPClassifier(memory_limit=limit).fit([[0.0], [1.0]], [0, 1])


def test_the_budget_is_four_fifths_of_what_is_free() -> None:
    assert memory_budget("auto") == pytest.approx(0.8 * free_memory(), rel=0.2)  # others take memory meanwhile
    assert free_memory() > 0


@given(st.floats(1, 1e15))
def test_what_is_written_is_read_back(number: float) -> None:
    assert memory_budget(in_bytes(number).replace("bytes", "B")) == pytest.approx(number, rel=0.06, abs=0.5)

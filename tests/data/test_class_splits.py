"""Sharing out classes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sureshot.data import DataError
from sureshot.data.class_splits import split_by_names, split_by_seed


@given(
    st.integers(3, 60),
    st.tuples(*[st.floats(0.01, 10.0)] * 3),
    st.integers(0, 2**32 - 1),
)
def test_every_class_goes_somewhere_and_no_set_is_empty(
    n_classes: int, fractions: tuple[float, float, float], seed: int
) -> None:
    names = [str(k) for k in range(n_classes)]
    parts = split_by_seed(names, fractions, seed)
    assert all(parts)
    assert sorted(k for part in parts for k in part) == list(range(n_classes))
    assert parts == split_by_seed(names, fractions, seed)


def test_fractions_and_seeds() -> None:
    names = [str(k) for k in range(20)]
    parts = split_by_seed(names, (0.5, 0.2, 0.3), 0)
    assert [len(part) for part in parts] == [10, 4, 6]
    assert parts != split_by_seed(names, (0.5, 0.2, 0.3), 1)
    with pytest.raises(DataError, match="2 classes"):
        split_by_seed(["a", "b"], (1, 1, 1), 0)
    for wrong in [(1, 1), (1, 0, 1), (1, 1, float("nan")), 3, "abc", (1, "a", 1)]:
        with pytest.raises(DataError, match=r"fractions=.*three positive numbers"):
            split_by_seed(names, wrong, 0)  # type: ignore[arg-type]
    for seed in (-1, 0.5, "a", None, True):
        with pytest.raises(DataError, match=f"seed={seed!r}, expected a whole number, 0 or more"):
            split_by_seed(names, (1, 1, 1), seed)  # type: ignore[arg-type]


def test_lists_of_names() -> None:
    names = ("ant", "bee", "cat", "dog")
    assert split_by_names(names, None, ["dog"], ["bee"]) == ([0, 2], [3], [1])
    assert split_by_names(names, ["cat"], ["dog"], ["bee"]) == ([2], [3], [1])
    assert split_by_names(("0", "1", "2"), None, [1], [2]) == ([0], [1], [2])
    with pytest.raises(DataError, match="did you mean 'bee'"):
        split_by_names(names, None, ["dog"], ["beee"])
    with pytest.raises(DataError, match="'dog' is listed twice"):
        split_by_names(names, None, ["dog"], ["dog"])
    with pytest.raises(DataError, match="no class for val"):
        split_by_names(names, None, [], ["dog"])

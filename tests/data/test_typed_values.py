"""Values of settings against annotations: what passes, as what, and what messages say of what does not."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from sureshot.data.typed_values import check_call_options, typed_value

Count = int | tuple[int, int]
Rule = Literal["integral", "softmax"]


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (int, np.int64(3), 3),
        (float, 2, 2.0),
        (float, np.float32(0.5), 0.5),
        (bool, np.bool_(True), True),
        (float | None, None, None),
        (Count, 3, 3),
        (Count, [1, 5], (1, 5)),
        (Rule | None, "softmax", "softmax"),
        (dict[str, Any], {"a": 1}, {"a": 1}),
        (Mapping[str, Any] | None, {}, {}),
        (tuple[str, ...], ["a"], ("a",)),
        (tuple[float, ...], (1, 0.5, 2), (1.0, 0.5, 2.0)),
        (Sequence[float], np.array([0.5, 1.0]), (0.5, 1.0)),
        (Sequence[str | int] | None, ["a", np.int64(1)], ("a", 1)),
        (Sequence[int], range(2), (0, 1)),
    ],
)
def test_values_that_fit_become_plain_ones(hint: Any, value: Any, expected: Any) -> None:
    found = typed_value("x", hint, value)
    assert found == expected
    assert type(found) is type(expected)
    assert json.loads(json.dumps(found)) == (list(expected) if isinstance(expected, tuple) else expected)


def test_paths_stay_what_they_are() -> None:
    assert typed_value("x", str | os.PathLike[str], Path("a")) == Path("a")
    assert typed_value("x", str | os.PathLike[str], "a") == "a"


@pytest.mark.parametrize(
    ("hint", "value", "message"),
    [
        (int, True, "x must be a whole number, got True"),
        (int, 2.0, "x must be a whole number, got 2.0"),
        (float, np.array(0.5), "x must be a number, got array(0.5)"),
        (float | None, "a", "x must be a number, got 'a'"),
        (bool, 1, "x must be true or false, got 1"),
        (Count, (1, 2, 3), "x must be a whole number or a range of two whole numbers such as [1, 5], got (1, 2, 3)"),
        (Rule, "sofmax", "x must be one of 'integral', 'softmax', got 'sofmax' (did you mean 'softmax'?)"),
        (Rule, 3, "x must be one of 'integral', 'softmax', got 3"),
        (dict[str, Any], [], "x must be a table of options, got []"),
        (str | os.PathLike[str] | None, 3, "x must be text or a path, got 3"),
        (tuple[int, ...], 3, "x must be a list of whole numbers, got 3"),
        (tuple[int, ...], (1, "a"), "each entry of x must be a whole number, got 'a'"),
        (Sequence[str | int] | None, "12", "x must be a list of text or whole numbers, got '12'"),
        (Sequence[float], np.zeros((2, 2)), "each entry of x must be a number, got [0.0, 0.0]"),
    ],
)
def test_other_values_are_refused_with_what_was_expected(hint: Any, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        typed_value("x", hint, value)


def test_what_takes_any_options_takes_them() -> None:
    """As a class of a user does that hands them on to one of ours."""

    def make(width: int, *, depth: int = 1, **others: Any) -> None:
        raise NotImplementedError

    check_call_options("it", make, {"depth": 2, "floor": 0.1}, ("width",))
    with pytest.raises(ValueError, match="it: depth must be a whole number, got 'a'"):
        check_call_options("it", make, {"depth": "a", "floor": 0.1}, ("width",))
    with pytest.raises(ValueError, match="it needs the option width"):
        check_call_options("it", make, {"floor": 0.1})

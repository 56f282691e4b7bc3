"""Checks of numbers that settings are, by their names; imports nothing of ours."""

from __future__ import annotations

import math
from numbers import Integral


def check_counts(least: int, **counts: int | None) -> None:
    """ValueError for one that is no whole number, or below the least; None stands for none."""
    for name, count in counts.items():
        if count is not None and (not isinstance(count, Integral) or isinstance(count, bool) or count < least):
            raise ValueError(f"{name} must be at least {least}, got {count!r}")


def check_positive(**values: float | None) -> None:
    """ValueError for a number that is not positive and finite; None stands for none."""
    for name, value in values.items():
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{name} must be positive and finite, got {value}")

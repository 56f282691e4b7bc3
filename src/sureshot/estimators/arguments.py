"""Types of what users pass, so that a type checker sees wrong arguments, and checks of single ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from torch import Tensor

from sureshot.data.checks import near


class SparseRows(Protocol):
    """A sparse matrix or array of scipy, which has no types of its own."""

    def tocsr(self, copy: bool = ...) -> Any: ...


Rows = NDArray[Any] | pd.DataFrame | Tensor | Sequence[Sequence[Any]] | Sequence[NDArray[Any]] | SparseRows
"""Rows (n, D)."""

Labels = NDArray[Any] | pd.Series | Tensor | Sequence[Any]
"""One for each row, (n,): text, numbers or truth values."""

Weights = NDArray[Any] | pd.Series | Tensor | Sequence[float] | float
"""One for each row, (n,), or one for all."""

RandomState = int | np.integer | np.random.RandomState
"""A seed, or a generator that moves on."""

ByLabel = str | Mapping[Any, float] | NDArray[Any] | Sequence[float]
"""A name, a number for each class by its label, or numbers in the order of the classes."""


def check_choice(name: str, value: Any, allowed: tuple[Any, ...]) -> Any:
    """The value if it is allowed, else an error that lists what is."""
    if not isinstance(value, str | int | np.bool_ | NoneType) or value not in allowed:
        hint = near(value, [name for name in allowed if isinstance(name, str)]) if isinstance(value, str) else ""
        raise ValueError(f"{name} must be one of {', '.join(repr(item) for item in allowed)}; got {value!r}{hint}.")
    return value


def check_count(name: str, value: Any, least: int = 1) -> int:
    """A whole number of at least so much."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        what = "a positive integer" if least == 1 else f"an integer of at least {least}"
        raise ValueError(f"{name} must be {what}; got {value!r}.")
    return int(value)


def check_jobs(jobs: Any) -> int | None:
    """The number of jobs, as joblib takes it."""
    if jobs is not None and (not isinstance(jobs, int | np.integer) or isinstance(jobs, bool) or jobs == 0):
        raise ValueError(
            f"n_jobs must be None, a positive number of jobs, or a negative one to count from all cores (-1); "
            f"got {jobs!r}."
        )
    return None if jobs is None else int(jobs)


def checked_random_state(given: Any) -> np.random.RandomState:
    """Of a seed, a generator, or None for NumPy's own; ValueError for anything else."""
    try:
        return check_random_state(given)
    except ValueError as error:
        raise ValueError(
            "random_state must be None, a whole number from 0 to 4294967295 or a numpy.random.RandomState; "
            f"got {given!r}. Of a Generator take a number: int(generator.integers(2**32))."
        ) from error

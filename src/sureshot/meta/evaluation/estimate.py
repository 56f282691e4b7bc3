"""A number with how well it is known.

Tasks are the independent units of an evaluation: the queries of a task share a support set, so they are not.
Standard errors are therefore computed from sums over tasks, also where the quantity itself pools all queries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

NORMAL_QUANTILE = 1.959963984540054  # two-sided 95 %


@dataclass(frozen=True)
class Result:
    """A part of an evaluation. What its representation leaves out, fields of single tasks, is left out of JSON too."""

    also: ClassVar[tuple[str, ...]] = ()  # properties that stand beside the fields in JSON

    @final
    def as_dict(self) -> dict[str, Any]:
        """Everything by name, ready for JSON."""
        return _as_json(_shown(self) | {name: getattr(self, name) for name in self.also})


def _as_json(value: Any) -> Any:
    """Lists for tuples and arrays, None for numbers that are not finite and intervals of them."""
    if isinstance(value, Result):
        return value.as_dict()
    if is_dataclass(value):
        value = _shown(value)
    if isinstance(value, Mapping):
        return {name: _as_json(item) for name, item in value.items()}
    if isinstance(value, tuple | np.ndarray):
        items = [_as_json(item) for item in (value if isinstance(value, tuple) else value.tolist())]
        return None if isinstance(value, tuple) and items == [None, None] else items
    return value if not isinstance(value, float) or math.isfinite(value) else None


def _shown(value: Any) -> dict[str, Any]:
    return {each.name: getattr(value, each.name) for each in fields(value) if each.repr}


@dataclass(frozen=True)
class Estimate(Result):
    """A mean over tasks with its standard error."""

    mean: float
    standard_error: float  # NaN if there is only one task

    also: ClassVar[tuple[str, ...]] = ("interval",)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval: mean plus or minus 1.96 standard errors."""
        half = NORMAL_QUANTILE * self.standard_error
        return self.mean - half, self.mean + half


def mean_over_tasks(values: NDArray[np.float64]) -> Estimate:
    """Mean of one number for each task, (T,), and the standard error of that mean.

    >>> mean_over_tasks(np.array([0.0, 1.0, 1.0, 0.0])).mean
    0.5
    """
    error = float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan
    return Estimate(float(values.mean()), error)


def mean_over_queries(
    sums: NDArray[np.float64],  # (T,), the quantity summed over the queries of each task
    counts: NDArray[np.float64],  # (T,), queries of each task
) -> Estimate:
    """Mean over all queries of a quantity summed within tasks, with tasks as the independent units.

    The standard error is that of a ratio estimate, ``sd(sums - mean * counts) / (mean count * sqrt(T))``; with
    equally many queries in every task it is the standard error of the tasks' means.
    """
    mean = float(sums.sum() / counts.sum())
    if len(sums) < 2:
        return Estimate(mean, math.nan)
    residual = float(np.std(sums - mean * counts, ddof=1))
    return Estimate(mean, residual / (float(counts.mean()) * math.sqrt(len(sums))))

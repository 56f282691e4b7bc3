"""A number with how well it is known.

Tasks are the independent units of an evaluation: the queries of a task share a support set, so they are not.
Standard errors are therefore computed from sums over tasks, also where the quantity itself pools all queries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

NORMAL_QUANTILE = 1.959963984540054  # two-sided 95 %


@dataclass(frozen=True)
class Estimate:
    """A mean over tasks with its standard error."""

    mean: float
    standard_error: float  # NaN if there is only one task

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval: mean plus or minus 1.96 standard errors."""
        half = NORMAL_QUANTILE * self.standard_error
        return self.mean - half, self.mean + half

    def as_dict(self) -> dict[str, Any]:
        """The fields and the interval by name, ready for JSON (None for NaN)."""
        error = number(self.standard_error)
        return {
            "mean": number(self.mean),
            "standard_error": error,
            "interval": None if error is None else list(self.interval),
        }


def number(value: float) -> float | None:
    """The value as JSON has it: None if it is not finite."""
    return float(value) if math.isfinite(value) else None


def mean_over_tasks(values: NDArray[np.float64]) -> Estimate:
    """Mean of one number for each task, (T,), and the standard error of that mean.

    Examples
    --------
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

    Notes
    -----
    The standard error is that of a ratio estimate, ``sd(sums - mean * counts) / (mean count * sqrt(T))``; with
    equally many queries in every task it is the standard error of the tasks' means.
    """
    mean = float(sums.sum() / counts.sum())
    if len(sums) < 2:
        return Estimate(mean, math.nan)
    residual = float(np.std(sums - mean * counts, ddof=1))
    return Estimate(mean, residual / (float(counts.mean()) * math.sqrt(len(sums))))

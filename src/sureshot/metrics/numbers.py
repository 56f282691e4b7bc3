"""How good are predicted numbers, and what is said of how far off they may be?

The log density and the continuous ranked probability score are proper: their expectation is best for the true
distribution. The latter is in units of the numbers, and of a distribution without any doubt the absolute error.

Reference: Gneiting and Raftery, "Strictly proper scoring rules, prediction, and estimation" (2007).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

LEVELS = (np.arange(40) + 0.5) / 40
"""Quantiles by which the continuous ranked probability score is approximated."""


def ranked_probability_score(
    quantile: Callable[[float], ArrayLike],  # (n,), what a share of numbers is less than
    y: ArrayLike,  # (n,)
) -> NDArray[np.float64]:
    """Of each number, (n,): twice the mean of the pinball losses of quantiles; less is better."""
    true, total = np.asarray(y, dtype=np.float64), 0.0
    for level in LEVELS.tolist():
        error = true - np.asarray(quantile(level))
        total = total + np.maximum(level * error, (level - 1) * error)
    return np.asarray(2 * total / len(LEVELS))

"""How good are predicted numbers, and what is said of how far off they may be?

The log density and the continuous ranked probability score are proper: their expectation is best for the true
distribution. The latter is in units of the numbers, and of a distribution without any doubt the absolute error.

Reference: Gneiting and Raftery, "Strictly proper scoring rules, prediction, and estimation" (2007).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

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


def mixture_ranked_probability_score(
    mean: NDArray[np.float64],  # (M, ...), of normals
    deviation: NDArray[np.float64],  # (M, ...)
    y: NDArray[np.float64],  # (...)
    weight: NDArray[np.float64],  # of the normals, sums to 1 over them; broadcasts to (M, ...)
) -> NDArray[np.float64]:
    """The same score in closed form: ``E |Y - y| - E |Y - Y'| / 2``.

    Grimit et al. 2006, "The continuous ranked probability score for circular variables and its application to
    mesoscale forecast ensemble verification".
    """
    apart = sum(
        share * (weight * _expected_distance(mean - one, np.hypot(deviation, sd))).sum(0)
        for one, sd, share in zip(mean, deviation, weight, strict=True)
    )
    return np.asarray((weight * _expected_distance(y - mean, deviation)).sum(0) - 0.5 * apart)


def _expected_distance(mean: NDArray[np.float64], deviation: NDArray[np.float64]) -> NDArray[np.float64]:
    """``E |X|`` of normals."""
    z = mean / deviation
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    return np.asarray(mean * (2 * ndtr(z) - 1) + 2 * deviation * density)

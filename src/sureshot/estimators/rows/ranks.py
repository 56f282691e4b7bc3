"""From standardised columns to normal scores of their ranks, which heavy tails and extreme cells cannot stretch.

The map goes through quantiles of the training column, few enough to be smooth, and is linear between them. Beyond the
outermost it grows with the logarithm of the distance, so that it is monotone everywhere and what is far stays far. A
constant column becomes zero.

Reference: van der Waerden scores (Conover 1999, section 5.10).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

MAX_KNOTS = 64
STRAIGHT = 0.98
"""Squared correlation with the column from which on a map changes too little to be worth a second look."""

GROWTH = 1 / 40
"""Of the map beyond its knots, in ranges of the scores for each factor e of the distance: a cell a hundred spans away
is half a standard deviation further out than the last knot."""
_SMALLEST_SPAN = 1e-6  # of standardised columns


@dataclass(frozen=True)
class Ranks:
    """A monotone map of each column."""

    knots: np.ndarray  # (D, K), quantiles, not decreasing
    scores: np.ndarray  # (D, K), what becomes of them; the training column gets mean 0 and standard deviation 1

    def check_parts(self) -> None:
        """ValueError for what is no monotone map."""
        if self.knots.ndim != 2 or not self.knots.size or self.knots.shape != self.scores.shape:
            raise ValueError("malformed ranks of columns")
        if (np.diff(self.knots) < 0).any() or (np.diff(self.scores) < 0).any():
            raise ValueError("malformed ranks of columns")

    @classmethod
    def of(cls, x: np.ndarray, weight: np.ndarray) -> Ranks:
        """The maps for rows (N, D), of which one of weight 2 counts as two."""
        n_knots = min(MAX_KNOTS, len(x))
        levels = (np.arange(n_knots) + 0.5) / n_knots
        knots, scores = np.empty((2, x.shape[1], n_knots))
        for place, column in enumerate(x.T):
            order = np.argsort(column, kind="stable")
            reached = (np.cumsum(weight[order]) - 0.5 * weight[order]) / weight.sum()
            knots[place] = _lower_of_ties(np.interp(levels, reached, column[order]), column[order])
            _, tied = np.unique(knots[place], return_inverse=True)
            means = np.bincount(tied, ndtri(levels)) / np.bincount(tied)
            scores[place] = means[tied]
        mapped = cls(knots, scores)(x)
        mean = np.average(mapped, axis=0, weights=weight)
        deviation = np.sqrt(np.average((mapped - mean) ** 2, axis=0, weights=weight))
        deviation[deviation <= 1e-12] = np.inf
        return cls(knots, (scores - mean[:, None]) / deviation[:, None])

    def bends(self, x: np.ndarray) -> bool:
        """Whether it is more than an affine map for some column of these rows (N, D)."""
        centred, mapped = (part - part.mean(0) for part in (x, self(x)))
        shared = (centred * mapped).sum(0) ** 2
        return bool((shared < STRAIGHT * (centred**2).sum(0) * (mapped**2).sum(0)).any())

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """The scores (n, D) of rows (n, D)."""
        found = np.empty_like(x)
        for place, (column, knots, scores) in enumerate(zip(x.T, self.knots, self.scores, strict=True)):
            found[:, place] = np.interp(column, knots, scores) + _beyond(column, knots, scores)
        return found


def _beyond(column: np.ndarray, knots: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """What is added outside the outermost knots (n,): the logarithm of the distance, in spans of half the knots."""
    middle = knots[len(knots) // 2]
    low, high = (max(abs(end - middle), _SMALLEST_SPAN) for end in (knots[0], knots[-1]))
    above, below = np.maximum(column - knots[-1], 0) / high, np.maximum(knots[0] - column, 0) / low
    added: np.ndarray = GROWTH * (scores[-1] - scores[0]) * (np.log1p(above) - np.log1p(below))
    return added


def _lower_of_ties(quantiles: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """Quantiles moved to the next value of the column that is not larger: between two of few values there is none."""
    values = np.unique(ordered)
    if len(values) >= len(quantiles):
        return quantiles
    nearest = np.searchsorted((values[1:] + values[:-1]) / 2, quantiles)
    found: np.ndarray = values[nearest]
    return found

"""From standardised columns to normal scores of their ranks, which heavy tails and extreme cells cannot stretch.

The map is linear between quantiles of the training column, and constant beyond them. A constant column becomes zero.

Reference: van der Waerden scores (Conover 1999, section 5.10).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

MAX_KNOTS = 64
STRAIGHT = 0.98
"""Squared correlation with the column from which on a map changes too little to be worth a second look."""


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
            knots[place] = np.interp(levels, reached, column[order])
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
            found[:, place] = np.interp(column, knots, scores)
        return found

"""Conformal p-values: where a score stands among those of labelled rows that were left out.

Reference: Vovk, Gammerman & Shafer 2005.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

ROUNDING = 1e-9
"""By which numbers that are compared may differ."""


@dataclass(frozen=True)
class CalibrationScores:
    """Of labelled rows, each left out; the larger, the less usual."""

    scores: np.ndarray  # (M,), increasing
    weight: np.ndarray  # (M,), of how many rows they stand for

    @classmethod
    def of(cls, scores: np.ndarray, weight: np.ndarray) -> CalibrationScores:
        """In any order."""
        order = np.argsort(scores)
        return cls(scores[order], weight[order])

    @property
    def n_rows(self) -> float:
        """The sum of the weights, and M at least: weights that are shares make rows no fewer."""
        return max(float(self.weight.sum()), len(self.weight))

    @property
    def smallest(self) -> float:
        """The smallest p-value."""
        return 1 / (self.n_rows + 1)

    def p_values(self, scores: np.ndarray) -> np.ndarray:
        """The share of rows with scores as large, the row that is asked about among them; in the shape of the scores.

        Of rows to come that are exchangeable with the labelled ones a share of at most a has a p-value of a or less: in
        the limit of many rows, as a labelled row is scored by one row fewer than a row to come (Barber et al. 2021).
        """
        tail = np.append(np.cumsum(self.weight[::-1])[::-1], 0.0)  # weight from each place on
        lowest = np.where(np.isinf(scores), scores, scores - ROUNDING * (1 + np.abs(np.nan_to_num(scores))))
        as_large = tail[np.searchsorted(self.scores, lowest)] / tail[0]
        found: np.ndarray = np.minimum((1 + self.n_rows * as_large) * self.smallest, 1.0)
        return found

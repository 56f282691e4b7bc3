"""Directions of embeddings that count more: those along which the labelled rows vary.

A kernel that is linear in embeddings gives the weights of all directions one prior variance. What separates classes
is often found where embeddings vary much. The prior covariance here is ``(S + l m I)^(1/2)``, with S the covariance of
the labelled rows, m its mean eigenvalue, and l in proportion to the rows of a class: what few rows cannot say
themselves is assumed. Rows are mapped by the root of that and given their length again, so that every kernel of
directions sees them so. No label is looked at.

Reference: Chapelle, Weston & Schoelkopf 2002 (kernels whose spectrum is transformed).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LEVEL_PER_ROW = 0.2  # l for each row of a class
_LEAST_GAIN = 1.01  # below it a direction is left as it is


@dataclass(frozen=True)
class SpectralScaling:
    """A linear map of rows, each of which then gets its length again."""

    basis: np.ndarray  # (D, R), orthonormal columns
    gain: np.ndarray  # (R,), factors along them

    def check_parts(self) -> None:
        """ValueError for parts that do not fit together."""
        if self.basis.ndim != 2 or self.gain.shape != self.basis.shape[1:] or not (self.gain >= 1).all():
            raise ValueError("malformed directions of embeddings")

    @classmethod
    def of(cls, x: np.ndarray, weight: np.ndarray, per_class: float) -> SpectralScaling:
        """From rows (N, D) of which one of weight 2 counts as two, so many of them of each class."""
        centred = (x - np.average(x, axis=0, weights=weight)) * np.sqrt(weight / weight.sum())[:, None]
        _, roots, directions = np.linalg.svd(centred, full_matrices=False)
        variances = roots**2
        level = max(LEVEL_PER_ROW * per_class * variances.sum() / x.shape[1], np.finfo(np.float64).tiny)
        gain = (1 + variances / level) ** 0.25
        found = (gain > _LEAST_GAIN) & (variances > 1e-12)  # of rows that are all one, rounding errors are left
        return cls(np.ascontiguousarray(directions[found].T), gain[found])

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Rows (n, D) mapped, each as long as before."""
        largest = np.abs(x).max(axis=1, keepdims=True, initial=0.0)
        x = np.divide(x, largest, out=np.zeros_like(x), where=largest > 0)  # whose squares are numbers, however small
        mapped = x + ((x @ self.basis) * (self.gain - 1)) @ self.basis.T
        before, after = (np.linalg.norm(rows, axis=1, keepdims=True) for rows in (x, mapped))
        kept: np.ndarray = mapped * np.divide(before, after, out=np.ones_like(after), where=after > 0) * largest
        return kept

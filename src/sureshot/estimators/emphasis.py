"""Directions of embeddings that count more: those along which the labelled rows vary.

A kernel that is linear in embeddings gives the weights of all directions one prior variance. But what tells classes
apart is more often found where embeddings vary much, and the least directions are mostly noise: the prior covariance
here is ``(S + l m I)^(1/2)``, with S the covariance of the labelled rows, m its mean eigenvalue, and l in proportion to
the rows of a class: what few rows cannot say themselves is assumed, and many are left to say it. Rows are mapped by the
root of that and given their length again, so that every kernel of directions sees them so.

Measured on validation queries of CLINC150 as mean log loss: .451 to .440 for 150 intents with five labels each, .146 to
.127 for 15, .095 to .092 for 40 with twenty, .044 to .045 for 20 with a hundred. Written characters and digits as rows
of unit length gain as much, or next to nothing. Whitening, the opposite, loses.

This is a kernel whose spectrum is transformed (Chapelle, Weston & Schoelkopf 2002); no label is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MOST_ROWS = 1000
"""Rows by which directions are found where columns are more than that, too."""

_PER_ROW = 0.2  # l for each row of a class
_LEAST_GAIN = 1.01  # below it a direction is left as it is


@dataclass(frozen=True)
class Emphasis:
    """A linear map of rows that keeps their lengths."""

    basis: np.ndarray  # (D, R) float32, orthonormal columns: half as large in a file, and as good
    gain: np.ndarray  # (R,), factors along them, above 1

    @classmethod
    def of(cls, x: np.ndarray, weight: np.ndarray, n_classes: int) -> Emphasis | None:
        """From rows (N, D) of so many classes, one of weight 2 counting as two; None where no direction stands out."""
        n_rows, width = x.shape
        per_class = weight.sum() / n_classes
        if min(n_rows, width) > MOST_ROWS:
            some = np.linspace(0, n_rows - 1, MOST_ROWS).astype(np.int64)
            x, weight = x[some], weight[some]
        centred = (x - np.average(x, axis=0, weights=weight)) * np.sqrt(weight / weight.sum())[:, None]
        by_rows = len(x) < width
        values, vectors = np.linalg.eigh(centred @ centred.T if by_rows else centred.T @ centred)
        level = _PER_ROW * per_class * values.clip(0).sum() / width
        if not level > np.finfo(np.float64).tiny:
            return None
        gain = (1 + values.clip(0) / level) ** 0.25
        found = gain > _LEAST_GAIN
        if not found.any():
            return None
        basis = centred.T @ vectors[:, found] / np.sqrt(values[found]) if by_rows else vectors[:, found]
        return cls(np.ascontiguousarray(basis, dtype=np.float32), gain[found])

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Rows (n, D) mapped, each as long as before."""
        basis, largest = self.basis.astype(np.float64), np.abs(x).max(axis=1, keepdims=True, initial=0.0)
        x = np.divide(x, largest, out=np.zeros_like(x), where=largest > 0)  # whose squares are numbers, however small
        mapped = x + ((x @ basis) * (self.gain - 1)) @ basis.T
        before, after = (np.linalg.norm(rows, axis=1, keepdims=True) for rows in (x, mapped))
        kept: np.ndarray = mapped * np.divide(before, after, out=np.ones_like(after), where=after > 0) * largest
        return kept

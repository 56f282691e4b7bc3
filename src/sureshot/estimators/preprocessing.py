"""From raw columns to the inputs a kernel sees: drop constant columns, standardise where it helps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from sureshot.kernels import is_unit_norm


@dataclass(frozen=True)
class Scaling:
    """A fixed affine map of the columns.

    Attributes
    ----------
    kept : ndarray (D_kept,) int64
        The columns that vary.
    mean, scale : ndarray (D_kept,)
        Subtracted, then divided by.
    """

    kept: np.ndarray
    mean: np.ndarray
    scale: np.ndarray

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Map raw inputs (n, D) to kernel inputs (n, D_kept)."""
        return (x[:, self.kept] - self.mean) / self.scale

    def weighted(self, weights: np.ndarray) -> Scaling:
        """The map followed by a factor for each column."""
        return Scaling(self.kept, self.mean, self.scale / weights)


def fit_scaling(x: np.ndarray, weight: np.ndarray, standardize: bool | str) -> Scaling:
    """Learn the map from weighted rows.

    Parameters
    ----------
    x : ndarray (n, D)
    weight : ndarray (n,)
        A row of weight 2 counts as two rows.
    standardize : bool or "auto"
        "auto" standardises unless every row has unit length (embeddings, whose geometry is their meaning).
    """
    if standardize not in (True, False, "auto"):
        raise ValueError(f"standardize must be True, False or 'auto'; got {standardize!r}.")
    n_columns = x.shape[1]
    if standardize is False or (standardize == "auto" and is_unit_norm(torch.from_numpy(x))):
        return Scaling(np.arange(n_columns), np.zeros(n_columns), np.ones(n_columns))
    mean = np.average(x, axis=0, weights=weight)
    scale = np.sqrt(np.average((x - mean) ** 2, axis=0, weights=weight))
    varies = scale > 1e-12 * np.maximum(np.abs(mean), np.finfo(np.float64).tiny)
    if not varies.any():  # nothing tells the rows apart: keep the columns and predict from the prior
        return Scaling(np.arange(n_columns), mean, np.ones(n_columns))
    kept = np.flatnonzero(varies)
    return Scaling(kept, mean[kept], scale[kept])

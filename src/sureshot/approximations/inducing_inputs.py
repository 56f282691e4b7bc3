"""Inducing inputs: the centres of k-means in every class (Achituve et al. 2021)."""

from __future__ import annotations

import torch
from torch import Tensor

_OUT_OF_PROPORTION = 1e6


def kmeans_inducing(
    x: Tensor,  # (N, D)
    y: Tensor,  # (N,) int64
    n_per_class: int,
    random_state: int = 0,
) -> Tensor:
    """Inducing inputs (R, D): for every class the centres of k-means over its rows.

    A class with no more than ``n_per_class`` distinct rows contributes these rows themselves. So do, in any class, the
    few rows that lie a million times farther from its median than half of its rows do: among them k-means, which knows
    distances to eight digits, could not separate the others.
    """
    if n_per_class < 1:
        raise ValueError(f"n_per_class must be at least 1, but it is {n_per_class}")
    centres = []
    for label in y.unique():
        rows = x[y == label].unique(dim=0)
        if rows.shape[0] > n_per_class:
            far = _far_out(rows)
            if not 0 < int(far.sum()) <= n_per_class // 2:
                far = torch.zeros_like(far)
            from sklearn.cluster import KMeans  # takes long to import, and most models need none

            clustering = KMeans(n_per_class - int(far.sum()), n_init=1, random_state=random_state)
            clustering.fit(rows[~far].detach().cpu().numpy())
            found = torch.as_tensor(clustering.cluster_centers_, dtype=x.dtype, device=x.device)
            rows = torch.cat([found, rows[far]])
        centres.append(rows)
    return torch.cat(centres)


def _far_out(rows: Tensor) -> Tensor:
    """Which of the rows (N, D) are out of all proportion to the others, (N,) bool."""
    distance = torch.linalg.vector_norm(rows - rows.median(0).values, dim=-1)
    return distance > _OUT_OF_PROPORTION * distance.median()

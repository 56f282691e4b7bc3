"""A few rows that stand for all rows of a class: centres of k-means in every class (Achituve et al. 2021)."""

from __future__ import annotations

import torch
from torch import Tensor


def representative_groups(
    x: Tensor,  # (N, D), bounded
    y: Tensor,  # (N,) int64
    weight: Tensor,  # (N,)
    n_per_class: int,
) -> Tensor:
    """Numbers (N,) of groups of rows to be replaced by their mean, at most so many in each class.

    A class with no more rows than that has a group for each of them.
    """
    groups = torch.empty_like(y)
    found = 0
    for label in y.unique().tolist():
        own = (y == label).nonzero().flatten()
        numbers = torch.arange(len(own))
        if len(own) > n_per_class:
            distinct, place = x[own].cpu().unique(dim=0, return_inverse=True)
            of_distinct = torch.zeros(len(distinct), dtype=weight.dtype).index_add(0, place, weight[own].cpu())
            numbers = _clusters(distinct, of_distinct, n_per_class)[place]
        groups[own] = (found + numbers).to(groups.device)
        found += int(numbers.max()) + 1
    return groups


def _clusters(x: Tensor, weight: Tensor, n_clusters: int) -> Tensor:
    """Numbers (N,) of the clusters of distinct rows."""
    if len(x) <= n_clusters:
        return torch.arange(len(x))
    from sklearn.cluster import KMeans  # takes long to import, and most models need none

    clustering = KMeans(n_clusters, n_init=1, random_state=0).fit(x.numpy(), sample_weight=weight.numpy())
    return torch.from_numpy(clustering.labels_).long().unique(return_inverse=True)[1]

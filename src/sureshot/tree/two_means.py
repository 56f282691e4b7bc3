"""Two clusters of directions: spherical k-means with k = 2.

Directions are compared by the cosine of their angle; a cluster's centre is the direction of its sum, and the sum of all
cosines with their centres never falls (Dhillon & Modha 2001). Like any k-means it ends in a local optimum, so it runs
from several pairs of rows, all at once, and the best partition counts. The pairs are drawn as k-means++ draws its
centres (Arthur & Vassilvitskii 2007).
"""

from __future__ import annotations

import torch
from torch import Tensor

N_STARTS = 16
_MAX_STEPS = 100
_TIE = 1e-12  # cosines this close say nothing about which centre is nearer


def two_means(
    directions: Tensor,  # (M, D) float64, rows of unit length, or zero where there is no direction; M at least 2
    generator: torch.Generator,
    n_starts: int = N_STARTS,
) -> Tensor:
    """Which side each row is on, (M,) bool: the first row is always on the left (False), and no side is empty.

    Rows that are as near to one centre as to the other (rows of zero, or equal rows that are all there is) go one by
    one to the side that has fewer. Should a side be left without rows, the rows are halved in the order of how much
    nearer they are to one centre.
    """
    margin = _margins(directions, generator, n_starts)
    right = margin > 0
    count = torch.stack([(margin < -_TIE).sum(), (margin > _TIE).sum()]).tolist()
    for row in (margin.abs() <= _TIE).nonzero().flatten().tolist():
        side = int(count[1] < count[0])
        right[row] = bool(side)
        count[side] += 1
    if 0 in count:
        order = margin.argsort(stable=True)
        right[order] = torch.arange(len(order)) >= (len(order) + 1) // 2
    return right ^ right[0]


def _margins(directions: Tensor, generator: torch.Generator, n_starts: int) -> Tensor:
    """Cosine with the right centre less that with the left one, of the best partition, (M,)."""
    centres = directions[_pairs(directions, generator, n_starts)]  # (S, 2, D)
    before = None
    for _ in range(_MAX_STEPS):
        cosines = centres @ directions.mT  # (S, 2, M)
        right = cosines[:, 1] > cosines[:, 0]
        if before is not None and bool((right == before).all()):
            break
        before = right
        sums = torch.stack([~right, right], 1).to(directions.dtype) @ directions
        length = torch.linalg.vector_norm(sums, dim=-1, keepdim=True)
        centres = torch.where(length > 0, sums / length.clamp_min(1e-300), centres)
    best = cosines.amax(1).sum(-1).argmax()
    return cosines[best, 1] - cosines[best, 0]


def _pairs(directions: Tensor, generator: torch.Generator, n_starts: int) -> Tensor:
    """Rows to start from, (S, 2): any direction, and another the more likely the farther away it is."""
    usable = (directions != 0).any(-1).to(directions.dtype)
    if not bool(usable.any()):
        usable = torch.ones_like(usable)
    first = torch.multinomial(usable, n_starts, replacement=True, generator=generator)
    away = (1 - directions[first] @ directions.mT).clamp_min(0) * usable + 1e-300
    second = torch.multinomial(away / away.sum(-1, keepdim=True), 1, generator=generator).squeeze(-1)
    return torch.stack([first, second], -1)

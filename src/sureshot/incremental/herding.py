"""A few rows that stand for a class: herding.

Rows are chosen one after the other, each the one that brings the mean of those chosen so far nearest to the mean of
all; any first few of them are a good choice too.

References: Welling, "Herding dynamical weights to learn" (2009); Rebuffi et al., "iCaRL" (2017), for sessions.
"""

from __future__ import annotations

import torch
from torch import Tensor


def herded_rows(
    x: Tensor,  # (N, D)
    y: Tensor,  # (N,)
    room: Tensor,  # (C,), rows to choose of each class, at most; classes of y are below C
) -> Tensor:
    """Numbers of the chosen rows, class by class."""
    parts = [torch.empty(0, dtype=torch.int64)]
    for own in y.unique().tolist():
        rows = (y == own).nonzero().flatten()
        parts.append(rows[herded(x[rows], min(max(0, int(room[own])), len(rows)))])
    return torch.cat(parts)


def herded(
    rows: Tensor,  # (N, D), of one class
    n: int,
) -> Tensor:
    """Numbers of n rows in the order of their choice."""
    mean, total = rows.mean(0), torch.zeros_like(rows[0])
    chosen: list[int] = []
    for count in range(1, n + 1):
        distance = (mean - (total + rows) / count).square().sum(-1)
        distance[chosen] = float("inf")
        chosen.append(int(distance.argmin()))
        total = total + rows[chosen[-1]]
    return torch.tensor(chosen, dtype=torch.int64)

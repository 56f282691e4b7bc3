"""Folds of labelled rows, class by class, and what is computed for the rows of each from the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

FOLDS = 5


def row_folds(y: Tensor, n_folds: int = FOLDS) -> Tensor:
    """A fold (N,) for each row: the rows of a class are dealt in turn, in their order."""
    folds = torch.empty_like(y)
    dealt = 0
    for label in y.unique():
        rows = (y == label).nonzero().squeeze(-1)
        folds[rows] = (torch.arange(len(rows), device=y.device) + dealt) % n_folds
        dealt += len(rows)
    return folds


def by_folds(
    y: Tensor,  # (N,), labels
    weight: Tensor,  # (N,)
    share: Tensor,  # (N,), of its weight that is left out of a row
    predicted: Callable[[Tensor, Tensor, Tensor], Tensor],
) -> Tensor:
    """What is `predicted` of the rows (N, ...), each from the other folds.

    That is given the rows that stay (K,), their weights (K,), and the fold's rows (Q,).
    """
    parts = [(fold, predicted(stays, left, fold)) for fold, stays, left in _folds(y, weight, share)]
    return torch.cat([part for _, part in parts])[torch.cat([fold for fold, _ in parts]).argsort()]


def _folds(y: Tensor, weight: Tensor, share: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Rows of a fold, rows that stay, and their weights; what numbers classes have does not matter."""
    numbers, number = y.unique(return_inverse=True)
    first = y.new_full((len(numbers),), len(y)).scatter_reduce(0, number, torch.arange(len(y), device=y.device), "amin")
    folds = row_folds(first.argsort().argsort()[number])
    for number in folds.unique():
        inside = folds == number
        left = torch.where(inside, (1 - share) * weight, weight)
        if not bool((left > 0).any()):  # the only row
            left = weight
        stays = (left > 0).nonzero().squeeze(-1)
        yield inside.nonzero().squeeze(-1), stays, left[stays]

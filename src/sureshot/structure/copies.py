"""Rows that are the same row again, sent twice or weighted: they tell nothing new, and are left out together.

Where equal rows have different labels, as in a table of few values, one copy is left out, and each counts: without all
of them a row would be told by nothing but the labels that contradict it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Copies:
    """Of N rows, K of which differ, in the order in which they first came."""

    first: Tensor  # (K,) int64, the first of each among the rows
    place: Tensor  # (N,) int64, of each row, which of the K it is
    together: Tensor  # (K,) bool, whether all copies are left out at once; else one

    @classmethod
    def of(
        cls,
        x: Tensor,  # (N, D)
        y: Tensor,  # (N,) int64
    ) -> Copies:
        """Rows with the same inputs and the same label are copies."""
        inputs = x.unique(dim=0, return_inverse=True)[1]
        numbers, which = torch.stack([inputs, y], 1).unique(dim=0, return_inverse=True)
        first = torch.full((len(numbers),), len(y)).scatter_reduce(0, which, torch.arange(len(y)), "amin")
        first, order = first.sort()
        return cls(first, order.argsort()[which], numbers[order, 0].bincount()[numbers[order, 0]] == 1)

    @property
    def sizes(self) -> Tensor:
        """How many rows each of the K stands for, (K,)."""
        return self.place.bincount(minlength=len(self.first))

    @property
    def evidence(self) -> Tensor:
        """As how many observations each counts when it is left out, (K,): once, where that is with all copies."""
        return torch.where(self.together, 1, self.sizes)

    def sets(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Those of the K that leave with as many rows (S,), and these rows (S, R), the first of each in front."""
        order, sizes = self.place.argsort(stable=True), self.sizes
        begins = sizes.cumsum(0) - sizes
        leave = torch.where(self.together, sizes, 1)
        for size in leave.unique().tolist():
            those = (leave == size).nonzero().flatten()
            yield those, order[begins[those].unsqueeze(-1) + torch.arange(size)]

    def leaving(
        self,
        values: Tensor,  # (M, N, ...), of rows
    ) -> Tensor:
        """Sums (M, K, ...) over the rows that leave with each of the K."""
        alone = values[:, self.first]
        together = self.together.view(-1, *[1] * (values.dim() - 2))
        return torch.where(together, torch.zeros_like(alone).index_add(1, self.place, values), alone)

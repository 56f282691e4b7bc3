"""Rows whose distances and inner products many kernels share.

Whoever evaluates many kernels on the same rows, or one kernel at many parameters, computes these once: a kernel with
one length-scale for all columns then costs its function of one variable.

>>> from sureshot.kernels import RBF, Linear
>>> rows = SharedRows(torch.tensor([[0.0], [1.0]], dtype=torch.float64))
>>> (RBF([[1.0], [2.0]]) + Linear()).on(rows)[:, 0]
tensor([[1.0000, 0.6065],
        [1.0000, 0.8825]], dtype=torch.float64)
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from sureshot.kernels.distances import squared_distances


class SharedRows:
    """Rows (N, D) and others (M, D), the same if left out."""

    def __init__(self, x1: Tensor, x2: Tensor | None = None) -> None:
        self.x1, self.x2 = x1, x1 if x2 is None else x2
        self._of: dict[tuple[int, ...], SharedRows] = {}

    @cached_property
    def squared(self) -> Tensor:
        """Squared distances (N, M)."""
        return squared_distances(self.x1, self.x2)

    @cached_property
    def products(self) -> Tensor:
        """Inner products (N, M)."""
        return self.x1 @ self.x2.mT

    def of(self, columns: tuple[int, ...]) -> SharedRows:
        """The same rows with these columns only."""
        if columns not in self._of:
            chosen = torch.tensor(columns, device=self.x1.device)
            first = self.x1.index_select(-1, chosen)
            self._of[columns] = SharedRows(first, None if self.x2 is self.x1 else self.x2.index_select(-1, chosen))
        return self._of[columns]

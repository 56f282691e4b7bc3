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

from sureshot.kernels.distances import shared_paths, squared_distances

_ENTRIES = 2**15  # of a block: several such arrays stay in a core's cache
_MOST_BLOCKS = 4


class SharedRows:
    """Rows (N, D) and others (M, D), the same if left out."""

    def __init__(self, x1: Tensor, x2: Tensor | None = None) -> None:
        self.x1, self.x2 = x1, x1 if x2 is None else x2
        self._of: dict[tuple[int, ...], SharedRows] = {}
        self._blocks: dict[int, list[tuple[slice, slice, SharedRows]]] = {}

    @cached_property
    def squared(self) -> Tensor:
        """Squared distances (N, M)."""
        return squared_distances(self.x1, self.x2)

    @cached_property
    def log_squared(self) -> Tensor:
        """Their logarithms (N, M), minus infinity where rows are the same."""
        return self.squared.log()

    @cached_property
    def products(self) -> Tensor:
        """Inner products (N, M)."""
        return self.x1 @ self.x2.mT

    @cached_property
    def shared_paths(self) -> Tensor:
        """How far columns go the same way from zero, summed over them (N, M)."""
        return shared_paths(self.x1, self.x2)

    def of(self, columns: tuple[int, ...]) -> SharedRows:
        """The same rows with these columns only."""
        if columns not in self._of:
            chosen = torch.tensor(columns, device=self.x1.device)
            first = self.x1.index_select(-1, chosen)
            self._of[columns] = SharedRows(first, None if self.x2 is self.x1 else self.x2.index_select(-1, chosen))
        return self._of[columns]

    def blocks(self, n_kernels: int) -> list[tuple[slice, slice, SharedRows]]:
        """Rows and others cut so that matrices of so many kernels stay in a core's cache, with the places of each.

        Of rows with themselves those blocks only that together hold everything on the diagonal and below.
        """
        n, m = len(self.x1), len(self.x2)
        size = max(1, -(-n // _MOST_BLOCKS), _ENTRIES // max(1, m * n_kernels))
        if size not in self._blocks:
            cuts = [slice(begin, min(n, begin + size)) for begin in range(0, n, size)]
            ends = [slice(0, cut.stop if self.x2 is self.x1 else m) for cut in cuts]
            self._blocks[size] = [(*cut, _Block(self, *cut)) for cut in zip(cuts, ends, strict=True)]
        return self._blocks[size]


class _Block(SharedRows):
    """Some of the rows with some of the others, which looks up what all of them share."""

    def __init__(self, whole: SharedRows, first: slice, second: slice) -> None:
        super().__init__(whole.x1[first], whole.x2[second])
        self._whole, self._places = whole, (first, second)

    @cached_property
    def squared(self) -> Tensor:
        return self._whole.squared[self._places]

    @cached_property
    def log_squared(self) -> Tensor:
        return self._whole.log_squared[self._places]

    @cached_property
    def products(self) -> Tensor:
        return self._whole.products[self._places]

    @cached_property
    def shared_paths(self) -> Tensor:
        return self._whole.shared_paths[self._places]

    def of(self, columns: tuple[int, ...]) -> SharedRows:
        if columns not in self._of:
            self._of[columns] = _Block(self._whole.of(columns), *self._places)
        return self._of[columns]

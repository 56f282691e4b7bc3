"""A kernel matrix of any size by its tiles, each made, multiplied and forgotten; also by several processes at once.

Where ``torch.distributed`` has a process group, every process of it calls with the same rows, makes its share of the
tiles, and all shares are added. A tile above the diagonal is the transpose of one below, so half of them are made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.distributed as dist
from torch import Tensor

from sureshot.approximations.products import FACTORED, TILE, Factored, Products, across, by_factor
from sureshot.computing.blocks import blocks
from sureshot.kernels.expression import Expression
from sureshot.kernels.leaf import Stationary

_OF_A_GPU = 2**13  # rows and columns of a tile that keep it busy


@dataclass(frozen=True)
class Tiles(Products):
    """Of any kernel."""

    def exact(self, vectors: Tensor) -> Tensor:
        return self._times(lambda rows, columns: _tile(self.kernel, self.x, rows, columns), vectors)

    def rough(self, vectors: Tensor) -> Tensor:
        return self._times(self._single, vectors.float())

    def of_queries(self, queries: Tensor, vectors: Tensor) -> Tensor:
        return across(self.kernel, self.x, queries, vectors)

    def factored(self, noise: Tensor) -> Factored | None:
        return by_factor(self.kernel(self.x), noise) if len(self.x) <= FACTORED else None

    @cached_property
    def _single(self) -> Callable[[slice, slice], Tensor]:
        """Makes tiles in single precision; those of distances by inner products, in half the time."""
        kernel, leaf = self.kernel.to(torch.float32), self.kernel.base_kernel
        if not isinstance(leaf, Stationary):
            return lambda rows, columns: _tile(kernel, self.x.float(), rows, columns)
        x = ((self.x - self.x.mean(0)) / leaf.lengthscale).float()
        norms = x.square().sum(-1)

        def tile(rows: slice, columns: slice) -> Tensor:
            squared = torch.addmm(norms[columns], x[rows], x[columns].mT, alpha=-2).add_(norms[rows, None])
            found: Tensor = kernel.base_kernel.of_squared_distance(squared.clamp_min_(0)).mul_(kernel.outputscale)
            return found

        return tile

    @cached_property
    def _share(self) -> list[tuple[slice, slice]]:
        """The tiles of this process."""
        cut = blocks(len(self.x), 1, TILE if self.x.device.type == "cpu" else _OF_A_GPU)
        rank, count = (dist.get_rank(), dist.get_world_size()) if _is_group() else (0, 1)
        if count > 1:
            known = torch.stack([self.x.sum(), *(value.sum() for value in self.kernel.parameters.values())])
            least, most = known.clone(), known.clone()
            dist.all_reduce(least, dist.ReduceOp.MIN)
            dist.all_reduce(most, dist.ReduceOp.MAX)
            if not torch.equal(least, most):
                raise ValueError(
                    "the processes of the group have different rows or kernels: give all of them the same rows, and an "
                    "integer random_state."
                )
        return [(rows, columns) for k, rows in enumerate(cut) for columns in cut[k:]][rank::count]

    def _times(self, tile_of: Callable[[slice, slice], Tensor], vectors: Tensor) -> Tensor:
        total = self.x.new_zeros(vectors.shape)
        for rows, columns in self._share:
            tile = tile_of(rows, columns)
            total[rows] += tile @ vectors[columns]
            if rows != columns:
                total[columns] += tile.mT @ vectors[rows]
        return _added(total)


def _tile(kernel: Expression, x: Tensor, rows: slice, columns: slice) -> Tensor:
    return kernel(x[rows]) if rows == columns else kernel(x[rows], x[columns])


def _is_group() -> bool:
    return dist.is_available() and dist.is_initialized()


def _added(part: Tensor) -> Tensor:
    if _is_group():
        dist.all_reduce(part)
    return part

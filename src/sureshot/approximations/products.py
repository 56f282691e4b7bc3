"""Regression on all rows by products of a kernel matrix that is never kept.

A `Products` is a scaled kernel at N rows that knows its products with vectors, those of queries, and factors of its
matrix where they cost less; `conditioned` does the rest. `tiles` has the one for any kernel and rows, `gridded` those
for rows of grids or between their points.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sureshot.approximations.exact import lifted
from sureshot.approximations.near_preconditioner import NearRows
from sureshot.computing.blocks import blocks
from sureshot.gaussian.conjugate_gradients import (
    TOLERANCE,
    LowRank,
    Preconditioner,
    log_determinant,
    pivoted_cholesky,
    solve,
)
from sureshot.kernels.expression import Expression
from sureshot.warned import warn

FACTORED = 1500  # rows up to which a factor of the matrix costs less
TILE = 2**9  # rows and columns of a tile, which stays in a cache
MOST_RANK, ROWS_PER_RANK, MOST_ENTRIES = 1000, 10, 2**26
"""Of preconditioners, which take as long as a few products and save half of them; some such arrays are held."""
PROBES = 10


class Factored(NamedTuple):
    """``C = K + diag(noise)`` where it can be solved at once."""

    solve: Callable[[Tensor], Tensor]  # (N, T)
    log_det: Tensor  # ()


@dataclass(frozen=True)
class Products(ABC):
    """A kernel at rows."""

    kernel: Any  # a `Scale`
    x: Tensor  # (N, D)

    @abstractmethod
    def exact(self, vectors: Tensor) -> Tensor:
        """``K v`` (N, T)."""

    def rough(self, vectors: Tensor) -> Tensor:
        """The same, in single precision where that takes less time."""
        return self.exact(vectors)

    @abstractmethod
    def of_queries(self, queries: Tensor, vectors: Tensor) -> Tensor:
        """``K_* v`` (Q, T) of queries (Q, D)."""

    @abstractmethod
    def factored(self, noise: Tensor) -> Factored | None:
        """With noise (N,), where that costs less than products."""

    def preconditioner(self, noise: Tensor) -> Preconditioner:
        """Of few columns where these leave less over than noise, else by near rows."""
        rank = min(MOST_RANK, 1 + len(self.x) // ROWS_PER_RANK, 1 + MOST_ENTRIES // len(self.x))
        root = pivoted_cholesky(self.kernel.diagonal(self.x), lambda k: self.kernel(self.x[k, None], self.x)[0], rank)
        over = self.kernel.diagonal(self.x) - root.square().sum(-1)
        return LowRank.of(root, noise) if over.mean() < noise.mean() else NearRows.of(self.kernel, self.x, noise)


@torch.no_grad()
def conditioned(
    products: Products,
    residual: Tensor,  # (N, P), numbers less their means
    noise: Tensor,  # (N,)
    generator: torch.Generator,  # of probes
    start: Tensor | None = None,  # (N, P), solution of a like problem
) -> tuple[Tensor, Tensor]:
    """``C^-1 r`` (N, P) and log|C|: exactly by factors, else by conjugate gradients and an estimate."""
    known = products.factored(noise)
    if known is not None:
        return known.solve(residual), known.log_det
    guide = products.preconditioner(noise)
    found = solve(products.exact, residual, guide, products.rough, start)
    if found.left > TOLERANCE:
        warn(
            f"conjugate gradients left {found.left:.1e} of the numbers over after {found.steps} products, more than "
            f"{TOLERANCE:g}: means may be as far off. There is next to no noise, or many rows are alike: try "
            "approximation='nearest_neighbours', or fewer rows."
        )
    return found.value, log_determinant(products.rough, guide, guide.draw(PROBES, generator))[0]


def by_factor(gram: Tensor, noise: Tensor) -> Factored:
    """By a Cholesky factor of a kernel matrix (N, N)."""
    factor, failed = torch.linalg.cholesky_ex(gram + torch.diag(noise))
    if bool(failed):
        factor = torch.linalg.cholesky(lifted(gram) + torch.diag(noise))
    return Factored(lambda sides: torch.cholesky_solve(sides, factor), 2 * factor.diagonal().log().sum())


def across(kernel: Expression, x: Tensor, queries: Tensor, vectors: Tensor) -> Tensor:
    """``K_* v`` (Q, T), tile by tile."""
    found = vectors.new_zeros(len(queries), vectors.shape[1])
    for rows in blocks(len(x), 1, TILE):
        for some in blocks(len(queries), 1, TILE):
            found[some] += kernel(x[rows], queries[some]).mT @ vectors[rows]
    return found

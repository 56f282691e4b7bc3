"""Regression with a kernel matrix K that is known by its products alone: ``C = K + diag(noise)``.

**Solutions** ``C^-1 b`` of many sides at once by conjugate gradients, led by a matrix P, such as ``L L' + diag(noise)``
with L the first columns of a pivoted Cholesky factor of K. Rough products, in single precision, take a third of the
time: a round solves by these for what the rounds before have left over, as exact products tell. One that leaves too
much over is followed by exact ones.

**Log determinants** ``log|C| = log|P| + E z' P^-1/2 log(P^-1/2 C P^-1/2) P^-1/2 z`` over ``z ~ N(0, P)``: the steps of
conjugate gradients from a probe z are a tridiagonal matrix, whose eigenvalues are nodes of a Gauss quadrature
(Lanczos).

linear_operator has all of these; its solver stops at the mean of the sides, works in one precision and warns by itself,
and its pivoted Cholesky factor takes seventeen times as long.

References: Harbrecht, Peters & Schneider 2012; Ubaru, Chen & Saad 2017; Gardner et al. 2018; Wang et al. 2019.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

Product = Callable[[Tensor], Tensor]
"""Of a symmetric matrix (N, N) with vectors (N, T)."""

TOLERANCE, MOST_STEPS = 1e-7, 1000  # of what solutions leave over, relative to the sides
ROUND, STALLED = 3e-4, 0.2  # what a rough round is to leave over, and what says that it met the limits of its precision
QUADRATURE = 1e-2  # what probes leave over: the error of their quadrature goes with its square


class Preconditioner(ABC):
    """A matrix P that is near C, and easily solved."""

    noise: Tensor  # (N,)

    @property
    @abstractmethod
    def log_det(self) -> Tensor:
        """log|P|."""

    @abstractmethod
    def solve(self, vectors: Tensor) -> Tensor:
        """``P^-1 v`` (N, T)."""

    @abstractmethod
    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Vectors (N, count) of covariance P."""


@dataclass(frozen=True)
class LowRank(Preconditioner):
    """``P = L L' + D``, ``P^-1 = D^-1/2 (I - B B') D^-1/2``."""

    root: Tensor  # (N, R), L
    noise: Tensor  # (N,), D
    basis: Tensor  # (N, R), B
    triangle: Tensor  # (R,), whose squares multiply to the determinant of ``I + L' D^-1 L``

    @classmethod
    def of(cls, root: Tensor, noise: Tensor) -> LowRank:
        unit = torch.eye(root.shape[1], dtype=root.dtype, device=root.device)
        basis, triangle = torch.linalg.qr(torch.cat([root / noise.sqrt()[:, None], unit]))
        return cls(root, noise, basis[: len(root)].contiguous(), triangle.diagonal().abs())

    @property
    def log_det(self) -> Tensor:
        return self.noise.log().sum() + 2 * self.triangle.log().sum()

    def solve(self, vectors: Tensor) -> Tensor:
        scaled = vectors / self.noise.sqrt()[:, None]
        return (scaled - self.basis @ (self.basis.mT @ scaled)) / self.noise.sqrt()[:, None]

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        n, rank = self.root.shape
        drawn = torch.randn(rank + n, count, generator=generator, dtype=self.root.dtype, device=generator.device)
        along, own = drawn.to(self.root).split([rank, n])
        return self.root @ along + self.noise.sqrt()[:, None] * own


def pivoted_cholesky(diagonal: Tensor, row: Callable[[int], Tensor], rank: int) -> Tensor:
    """The first columns (N, at most `rank`) of a Cholesky factor of K, each for what varies most of the rest."""
    left, columns, count = diagonal.clone(), diagonal.new_zeros(rank, len(diagonal)), 0
    while count < rank and float(left.max()) > 1e-12 * float(diagonal.max()):
        place, known = int(left.argmax()), columns[:count]
        columns[count] = (row(place) - known[:, place] @ known) / left[place].sqrt()
        left = (left - columns[count].square()).clamp_min(0)
        left[place], count = 0.0, count + 1
    return columns[:count].mT.contiguous()


class Solution(NamedTuple):
    """What conjugate gradients have found."""

    value: Tensor  # (N, T)
    left: float  # the most that it leaves over of a side, relative to it
    steps: int


def solve(
    exact: Product,  # of K
    sides: Tensor,  # (N, T)
    preconditioner: Preconditioner,
    rough: Product | None = None,  # of K, in less time
    start: Tensor | None = None,  # (N, T), known to be near
    tolerance: float = TOLERANCE,
    most: int = MOST_STEPS,
) -> Solution:
    """``C^-1 b``, or as near as `most` products lead."""
    size = sides.norm(dim=0).clamp_min(torch.finfo(sides.dtype).tiny)

    def at(value: Tensor) -> tuple[Tensor, Tensor, float]:
        over = sides - exact(value) - preconditioner.noise[:, None] * value
        return value, over, float((over.norm(dim=0) / size).max())

    value, over, left = torch.zeros_like(sides), sides, float((sides != 0).any())
    if start is not None and (near := at(start))[2] < left:
        value, over, left = near
    steps = 0
    while left > tolerance and steps < most:
        goal, before = max(tolerance / left / 2, 0.0 if rough is None else ROUND), left
        further, lengths, _ = _descend(rough or exact, over, preconditioner, goal, most - steps)
        steps += len(lengths)
        if (better := at(value + further))[2] < left:
            value, over, left = better
        if left > STALLED * before:
            if rough is None:
                break
            rough = None
    return Solution(value, left, steps)


def log_determinant(product: Product, preconditioner: Preconditioner, probes: Tensor) -> tuple[Tensor, Tensor]:
    """An estimate of that of C, by probes (N, T) that `Preconditioner.draw` has drawn, and its standard error."""
    _, lengths, ratios = _descend(product, probes, preconditioner, QUADRATURE, MOST_STEPS)
    inverse = torch.where(lengths > 0, 1 / lengths, 1.0)  # where nothing was left to go, a node without weight
    diagonal, beside = inverse.clone(), (ratios[:-1].sqrt() * inverse[:-1]).mT
    diagonal[1:] += ratios[:-1] * inverse[:-1]
    steps = torch.diag_embed(diagonal.mT) + torch.diag_embed(beside, 1) + torch.diag_embed(beside, -1)
    nodes, vectors = torch.linalg.eigh(steps)
    logs = (vectors[:, 0].square() * nodes.clamp_min(torch.finfo(nodes.dtype).tiny).log()).sum(-1)
    values = (probes * preconditioner.solve(probes)).sum(0) * logs
    return preconditioner.log_det + values.mean(), values.std() / len(values) ** 0.5


def _descend(
    product: Product, sides: Tensor, preconditioner: Preconditioner, goal: float, most: int
) -> tuple[Tensor, Tensor, Tensor]:
    """From zero until no side leaves more than `goal` of itself over: (N, T); lengths and ratios (S, T) of steps."""
    noise, value, over = preconditioner.noise[:, None], torch.zeros_like(sides), sides.clone()
    lengths: list[Tensor] = []
    ratios: list[Tensor] = []
    enough = goal * sides.norm(dim=0)
    along = guided = preconditioner.solve(over)
    slope = (over * guided).sum(0)
    while not lengths or (len(lengths) < most and bool((over.norm(dim=0) > enough).any())):
        image = product(along) + noise * along
        lengths.append(torch.where(slope > 0, slope / (along * image).sum(0), 0.0))
        value, over = value + lengths[-1] * along, over - lengths[-1] * image
        guided, before = preconditioner.solve(over), slope
        slope = (over * guided).sum(0)
        ratios.append(torch.where(before > 0, slope / before, 0.0).clamp_min(0))
        along = guided + ratios[-1] * along
    return value, torch.stack(lengths), torch.stack(ratios)

"""Squared distances between rows whose digits do not depend on the rows beside them.

``|x|^2 + |z|^2 - 2 <x, z>`` is one matrix product, ten times as fast as sums of squared differences once there are
dozens of columns, but where rows lie close together compared with their distance from the origin nothing is left of its
digits. Two measures keep them: the origin moves to the mean of the *first* rows, so an extreme query disturbs nobody
but itself; and the pairs that have lost more than a quarter of their digits all the same, a few duplicates as a rule,
are computed again from the differences. The relative error is then below 1e-11 in float64 (1e-4 in float32) for every
pair, whatever the scale, offset or company of the rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_BLOCK_SIZE = 2**22  # differences held at once, for the pairs that are computed again


def squared_distances(
    x1: Tensor,  # (..., N, D)
    x2: Tensor,  # (..., M, D)
) -> Tensor:
    """Squared Euclidean distances (..., N, M); where both are one object, the diagonal is zero.

    Differentiable. The origin is set by the first rows: pass those that were learnt from. Distances that leave the
    range of the dtype are cut at the square root of its largest number, so that a kernel can square them.
    """
    same = x2 is x1
    origin = x1.detach().mean(-2, keepdim=True)
    first = x1 - origin
    second = first if same else x2 - origin
    norms = first.square().sum(-1).unsqueeze(-1), second.square().sum(-1).unsqueeze(-2)
    squared = (first @ second.mT).mul_(-2).add_(norms[0]).add_(norms[1])
    limits = torch.finfo(squared.dtype)
    with torch.no_grad():
        share = limits.eps**0.25
        lost = ~(squared - share * norms[0] >= share * norms[1])  # true for what is no number, too
        itself = torch.eye(squared.shape[-1], dtype=torch.bool, device=squared.device) if same else None
        if itself is not None:
            lost &= ~itself
    if bool(lost.any()):
        squared = _computed_again(squared, lost, x1, x2)
    if itself is not None:
        squared = squared.masked_fill(itself, 0)
    return squared.clamp_max(limits.max**0.5)


def power_of_distance(squared: Tensor, exponent: Tensor) -> Tensor:
    """``d^exponent`` at squared distances, exactly zero where these are, with finite gradients there."""
    # Below the smallest normal number gradients are not finite; and a small power of that would not be small.
    power = squared.clamp_min(torch.finfo(squared.dtype).tiny).pow(exponent / 2)
    return power.masked_fill(squared == 0, 0)


def manhattan_distances(
    x1: Tensor,  # (..., N, D)
    x2: Tensor,  # (..., M, D)
) -> Tensor:
    """``sum_d |x_d - x'_d|`` (..., N, M), differentiable once; an equal column has no part in the gradient."""
    if x2 is not x1:
        return torch.cdist(x1, x2, p=1)
    # A row's gradients as the first and as the second of a pair are one pass over the columns together.
    distances: Tensor = _BothOfPair.apply(torch.cdist(x1, x1.detach(), p=1))
    return distances


def shared_paths(
    x1: Tensor,  # (..., N, D)
    x2: Tensor,  # (..., M, D)
    paired: bool = False,
) -> Tensor:
    """``sum_d (|x_d| + |x'_d| - |x_d - x'_d|) / 2``: how far columns go the same way from zero.

    Of all pairs of rows (..., N, M), or of `paired` rows (..., N).
    """
    first, second = x1.abs().sum(-1), x2.abs().sum(-1)
    if paired:
        return (first + second - (x1 - x2).abs().sum(-1)) / 2
    return (first.unsqueeze(-1) + second.unsqueeze(-2) - torch.cdist(x1, x2, p=1)) / 2


class _BothOfPair(torch.autograd.Function):
    """A symmetric matrix of what is differentiated by the first of each pair only."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient + gradient.mT


def _computed_again(squared: Tensor, lost: Tensor, x1: Tensor, x2: Tensor) -> Tensor:
    """The same with the pairs in `lost` from the differences of their rows."""
    first, second = (x.expand(*squared.shape[:-2], *x.shape[-2:]).flatten(0, -2) for x in (x1, x2))
    n, m = squared.shape[-2:]
    pairs = lost.flatten().nonzero().squeeze(-1)
    batch, row, column = pairs // (n * m), (pairs // m) % n, pairs % m
    size = max(1, _BLOCK_SIZE // x1.shape[-1])
    parts = [
        (first[b * n + i] - second[b * m + j]).square().sum(-1)
        for b, i, j in zip(batch.split(size), row.split(size), column.split(size), strict=True)
    ]
    return squared.flatten().index_put((pairs,), torch.cat(parts)).view(squared.shape)

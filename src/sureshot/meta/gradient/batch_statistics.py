"""Batch normalisation by the rows at hand, in training and in use, for networks that are other ones in each task.

Running statistics would be those of a network that no task has. Rows that a task marks with zero weight are normalised
like the others but do not count, such as padding, or queries that are to be answered independently of each other.

It is written in means and squares and not by `torch.nn.functional.batch_norm`, whose second derivatives inside
`torch.func` are wrong by up to some per cent (torch 2.13), also in double precision.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class BatchStatistics(nn.Module):
    """What stands for a layer of batch normalisation; it has its weight and bias under their names."""

    def __init__(self, like: _BatchNorm) -> None:
        super().__init__()
        if like.weight is None:
            raise ValueError("batch normalisation without weight and bias cannot be adapted: give it both (affine)")
        after = dict(like.named_children())
        own = type(like).forward is not _BatchNorm.forward and not isinstance(like, nn.SyncBatchNorm)
        if own and list(after) != ["drop", "act"]:  # what follows the normalisation in layers of timm
            raise ValueError(f"{type(like).__name__} normalises in a way of its own and cannot be adapted")
        self.after = nn.Sequential(*after.values())
        self.weight = nn.Parameter(like.weight.detach().clone())
        self.bias = nn.Parameter(like.bias.detach().clone())
        self.eps = like.eps
        self.share: Tensor | None = None  # (B,), sums to 1: what each row counts; all the same without it

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, ...) of mean 0 and variance 1 over rows and places, then scaled and shifted."""
        wide = (-1, *[1] * (x.dim() - 2))
        centred = x - self._mean(x).view(wide)
        scale = (self._mean(centred.square()) + self.eps).rsqrt() * self.weight
        found: Tensor = self.after(centred * scale.view(wide) + self.bias.view(wide))
        return found

    def _mean(self, x: Tensor) -> Tensor:
        of_rows = x.flatten(2).mean(-1) if x.dim() > 2 else x
        return of_rows.mean(0) if self.share is None else self.share.to(x.dtype) @ of_rows


def with_batch_statistics(network: nn.Module) -> nn.Module:
    """A copy of a network whose batch normalisation goes by the rows at hand; names of parameters stay."""
    found = copy.deepcopy(network)
    for module in list(found.modules()):
        for name, child in module.named_children():
            if isinstance(child, _BatchNorm):
                setattr(module, name, BatchStatistics(child))
    return found


@contextmanager
def counting(
    network: nn.Module,
    weight: Tensor,  # (B,), not negative
) -> Iterator[None]:
    """Let only rows of positive weight count in the statistics of the passes inside."""
    layers = [module for module in network.modules() if isinstance(module, BatchStatistics)]
    share = weight / weight.sum().clamp_min(torch.finfo(weight.dtype).tiny)
    for layer in layers:
        layer.share = share
    try:
        yield
    finally:
        for layer in layers:
            layer.share = None

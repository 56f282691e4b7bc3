"""Nearest class mean: the mean direction of each class, cosines with them, one temperature.

The decoupled classifier of class-incremental learning (a frozen backbone, class means, a cosine softmax), and hard to
beat on frozen features. A class is its mean; nothing is ever forgotten but what newcomers crowd out.

References: Mensink et al., "Distance-based image classification" (2013); Gidaris & Komodakis, "Dynamic few-shot visual
learning without forgetting" (2018), for cosines with a scale; Tao et al. (2020), for the protocol it is used in.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sureshot.incremental.baselines.base import Baseline
from sureshot.incremental.method import Memory
from sureshot.incremental.temperature import loss_and_temperature
from sureshot.kernels.unit_sphere import unit_rows

SCALE = 16.0
"""What cosines are multiplied by where nothing can be learnt about it, the habit of the literature."""


class CosineMeans(NamedTuple):
    """All that is kept."""

    sums: Tensor  # (C, D), of rows of length one
    counts: Tensor  # (C,)
    scale: float


class NearestClassMean(Baseline[CosineMeans]):
    """Cosines with class means."""

    name = "nearest_class_mean"

    def __init__(
        self,
        # Of cosines; by default found from the base session, each row left out of its class in turn.
        scale: float | None = None,
    ) -> None:
        if scale is not None and not 0 < scale < float("inf"):
            raise ValueError(f"scale must be positive and finite, got {scale}")
        self.scale = scale

    def _learnt(self, x: Tensor, y: Tensor, n_classes: int) -> CosineMeans:
        unit = unit_rows(x)
        sums, counts = _sums(unit, y, n_classes)
        scale = SCALE if self.scale is None else self.scale
        shown = counts[y] > 1
        if self.scale is None and n_classes > 1 and bool(shown.any()):
            own = sums[y] - unit  # of the other rows of a row's class
            cosines = unit @ _directions(sums).mT
            cosines.scatter_(1, y.unsqueeze(1), (unit * _directions(own)).sum(-1, keepdim=True))
            scale = 1 / loss_and_temperature(cosines[shown], y[shown], 1 / SCALE)[1]
        return CosineMeans(sums, counts, scale)

    def _grown(self, state: CosineMeans, x: Tensor, y: Tensor, n_classes: int) -> CosineMeans:
        sums, counts = _sums(unit_rows(x), y, n_classes)
        known = len(state.counts)
        sums[:known] += state.sums
        counts[:known] += state.counts
        return CosineMeans(sums, counts, state.scale)

    def _scores(self, state: CosineMeans, x: Tensor) -> Tensor:
        return state.scale * _cosines(state, x)

    def _outlier(self, state: CosineMeans, x: Tensor) -> Tensor:
        return -_cosines(state, x).amax(-1)

    def _memory(self, state: CosineMeans, n_classes: int) -> Memory:
        return Memory(1, state.sums.numel() + state.counts.numel(), n_classes)


def _sums(unit: Tensor, y: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    sums = unit.new_zeros(n_classes, unit.shape[1]).index_add(0, y, unit)
    return sums, torch.bincount(y, minlength=n_classes).to(unit.dtype)


def _cosines(state: CosineMeans, x: Tensor) -> Tensor:
    return unit_rows(x) @ _directions(state.sums).mT


def _directions(sums: Tensor) -> Tensor:
    """Sums as unit vectors; opposite rows that cancel leave zero, whose cosines are zero."""
    return sums / torch.linalg.vector_norm(sums, dim=-1, keepdim=True).clamp_min(torch.finfo(sums.dtype).tiny)

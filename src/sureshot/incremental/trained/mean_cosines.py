"""Cosines with a vector for each class, and the scale that makes probabilities of them."""

from __future__ import annotations

import torch
from torch import Tensor

from sureshot.incremental.baselines.nearest_class_mean import SCALE
from sureshot.incremental.temperature import loss_and_temperature
from sureshot.incremental.trained.exemplars import unit_directions


def cosines(
    embeddings: Tensor,  # (Q, D)
    means: Tensor,  # (C, D) float64
) -> Tensor:
    """(Q, C) float64."""
    return unit_directions(embeddings) @ unit_directions(means).mT


def mean_directions(
    embeddings: Tensor,  # (N, D)
    y: Tensor,  # (N,)
    n_classes: int,
) -> tuple[Tensor, Tensor]:
    """Means (C, D) of embeddings of unit length, and how many rows each has (C,); zero for a class without rows."""
    unit, labels = unit_directions(embeddings), y.to(embeddings.device)
    counts = torch.bincount(labels, minlength=n_classes).double()
    sums = unit.new_zeros(n_classes, unit.shape[1]).index_add(0, labels, unit)
    return sums / counts.clamp_min(1).unsqueeze(1), counts


def fitted_scale(
    found: Tensor,  # (N, C), cosines of rows kept aside
    y: Tensor,  # (N,)
) -> float:
    """What cosines are to be multiplied by; the habit of the literature where there are no rows."""
    return 1 / loss_and_temperature(found.cpu(), y, 1 / SCALE)[1] if len(y) else SCALE

"""The temperature of scores by rows that took no part in making them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from sureshot.metrics.calibration import fit_temperature

_MOST_SMOOTHED = 2**24  # numbers; where rows are so many, one row's worth of mistakes makes no difference


def loss_and_temperature(
    scores: Tensor,  # (N, C)
    y: Tensor,  # (N,)
    smooth: bool = False,
) -> tuple[float, float]:
    """Mean log loss in nats at the temperature that suits scores best, and that temperature.

    ``smooth`` counts one row in all as labelled at random: without it a few rows that are all named right ask for
    certainty.
    """
    scores = scores.double()
    n, n_classes = scores.shape
    if smooth and n * n_classes**2 <= _MOST_SMOOTHED:
        share = 1 / (1 + n)
        labels = torch.cat([y, torch.arange(n_classes, device=y.device).repeat_interleave(n)])
        weight = torch.cat([scores.new_full((n,), 1 - share), scores.new_full((n * n_classes,), share / n_classes)])
        suits = fit_temperature(scores.repeat(n_classes + 1, 1).cpu().numpy(), labels.cpu().numpy(), weight.cpu())
    else:
        suits = fit_temperature(scores.cpu().numpy(), y.cpu().numpy())
    return float(cross_entropy(scores / suits, y)), suits

"""Means of neighbours: how near a row has to be, and how far off they are, is learnt over many functions."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from sureshot.meta.learners.functions import Context, Moments, RegressionLearner


class Neighbours(RegressionLearner):
    """Means weighted by a Gaussian window, with one row of zeros everywhere."""

    name = "neighbours"  # as in pyproject.toml

    def __init__(self, input_width: int, target_width: int, *, window: float = 1.0, floor: float = 0.01) -> None:
        super().__init__(input_width, target_width)
        self.floor = floor  # of the deviation, which bounds what a density can be
        self.log_window = nn.Parameter(torch.tensor(math.log(window), dtype=torch.float32))
        self.log_deviations = nn.Parameter(torch.zeros(2, dtype=torch.float32))  # beside many rows, and far from all

    def encode(self, context: Context, generator: torch.Generator) -> Context:
        """What is known are the rows themselves."""
        return context

    def answer(self, encoded: Context, query: Tensor) -> Moments:
        """Normals (1, T, Q, K) at inputs (T, Q, D); padding weighs nothing."""
        squared = (query.unsqueeze(2) - encoded.x.unsqueeze(1)).square().sum(-1)  # (T, Q, S)
        weight = torch.exp(-0.5 * squared / self.log_window.exp().square()) * encoded.mask.unsqueeze(1)
        mean, alone = weight @ encoded.y, 1 / (1 + weight.sum(-1, keepdim=True))
        near, far = self.log_deviations.exp()
        deviation = self.floor + near + (far - near) * alone
        return Moments((mean * alone).unsqueeze(0), deviation.expand_as(mean).unsqueeze(0))

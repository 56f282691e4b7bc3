"""How a regression on nearest rows predicts the target of a query, by its mean, its variance and learnt parameters.

The regression's variance is that of its own prior, of one kernel and noise for all targets; how much it tells of
a target, and how much of that in regions without rows, left-out rows have to say.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sureshot.likelihoods.auxiliary import one_hot

MACKAY = 4 / math.pi
"""Independent latents of variance s each, whose differences have twice as much, have about the mean probabilities of
their means over ``sqrt(1 + s / MACKAY)``."""


class LocalLink(ABC):
    """For N rows."""

    start: ClassVar[tuple[float, ...]]  # logarithms of the parameters: the mean of their prior
    spread: ClassVar[tuple[float, ...]]  # its standard deviations

    @abstractmethod
    def targets(self, place: Tensor) -> Tensor:
        """What rows at places (...) give to the regression, less its prior means, (..., P)."""

    @property
    @abstractmethod
    def width(self) -> int:
        """How many targets of the regression a row has, P."""

    @abstractmethod
    def log_density(
        self,
        parameters: Tensor,
        mean: Tensor,  # (B, P), of latents of prior variance 1
        variance: Tensor,  # (B,), of these
        noise: Tensor,  # (), variance
        place: Tensor,  # (B,), of the rows
    ) -> Tensor:
        """Of the rows' targets, (B,); differentiable."""


@dataclass(frozen=True)
class LabelLink(LocalLink):
    """``softmax(log P + a f / sqrt(1 + c v))``, with the classes' frequencies P, a gain a and a doubt c."""

    start = (math.log(4.0), 0.0)
    spread = (1.0, 1.0)
    y: Tensor  # (N,)
    frequency: Tensor  # (C,), none of them 0

    def targets(self, place: Tensor) -> Tensor:
        """One-hot labels less the frequencies, (..., C)."""
        return one_hot(self.y[place], len(self.frequency), self.frequency.dtype).mT - self.frequency

    @property
    def width(self) -> int:
        return len(self.frequency)

    def log_density(self, parameters: Tensor, mean: Tensor, variance: Tensor, noise: Tensor, place: Tensor) -> Tensor:
        gain, doubt = parameters
        logits = self.logits(gain, doubt, mean, variance)
        return torch.log_softmax(logits, -1).gather(-1, self.y[place].unsqueeze(-1)).squeeze(-1)

    def logits(self, gain: float | Tensor, doubt: float | Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """Of classes (..., C), by means (..., C) and variances (...)."""
        return self.frequency.to(mean).log() + gain * mean * (1 + doubt * variance).rsqrt().unsqueeze(-1)

    def latents(
        self, gain: float | Tensor, doubt: float | Tensor, mean: Tensor, variance: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Means (..., C) and variances (...) of Gaussian latents whose softmax has about these probabilities."""
        return self.frequency.to(mean).log() + gain * mean, MACKAY * doubt * variance


@dataclass(frozen=True)
class NumberLink(LocalLink):
    """``N(f, g (v + s^2))``: numbers in deviations, with latents of variance v, noise s^2, and an output scale g."""

    start = (0.0,)
    spread = (2.0,)
    numbers: Tensor  # (N, P), of mean 0

    def targets(self, place: Tensor) -> Tensor:
        return self.numbers[place]

    @property
    def width(self) -> int:
        return self.numbers.shape[1]

    def log_density(self, parameters: Tensor, mean: Tensor, variance: Tensor, noise: Tensor, place: Tensor) -> Tensor:
        spread = (parameters[0] * (variance + noise)).unsqueeze(-1)
        numbers = self.numbers[place].to(mean)
        return -0.5 * ((numbers - mean).square() / spread + (2 * math.pi * spread).log()).sum(-1)

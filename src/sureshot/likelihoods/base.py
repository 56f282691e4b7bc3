"""What predicts classes: a density of labels given latents, and the rules that turn latents into probabilities.

Shapes: ``f`` (..., C, N) with any leading batch dimensions (tasks, chains); ``y`` (..., N) int64 in 0..C-1. A
likelihood for two classes with a single latent function (`Logistic`) has C = 1 latent rows while its probabilities have
two.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal, get_args

import torch
from torch import Tensor

PredictiveRule = Literal["integral", "expected_log", "plug_in"]


class Likelihood(ABC):
    """Density and predictive rules of a categorical likelihood."""

    name: str
    """The public name, as in ``GPClassifier(likelihood=name)``."""

    translation_invariant = False
    """Whether one number added to all latents changes nothing."""

    def n_latents(self, n_classes: int) -> int:
        """Latent functions needed for that many classes (one for each by default)."""
        return n_classes

    @abstractmethod
    def class_log_likelihood(self, f: Tensor) -> Tensor:
        """``log L(f | y = c)`` for every class c, (..., classes, N); need not be normalised over classes."""

    def class_logits(self, f: Tensor) -> Tensor:
        """`class_log_likelihood` less what all classes share, which may be so large that it swallows differences."""
        return self.class_log_likelihood(f)

    def log_likelihood(self, f: Tensor, y: Tensor) -> Tensor:
        """``log L(f | y)`` of the observed labels, (..., N)."""
        values = self.class_log_likelihood(f)
        index = y.unsqueeze(-2).expand(*values.shape[:-2], 1, values.shape[-1])
        return values.gather(-2, index).squeeze(-2)

    def log_plug_in(self, mean: Tensor) -> Tensor:
        """Log of `plug_in`, accurate where probabilities underflow."""
        return torch.log_softmax(self.class_logits(mean), dim=-2)

    def plug_in(self, mean: Tensor) -> Tensor:
        """Normalised likelihood at the latent means, (..., classes, Q)."""
        return torch.softmax(self.class_logits(mean), dim=-2)

    @abstractmethod
    def integral(
        self,
        mean: Tensor,  # (..., C, Q)
        covariance: Tensor,  # variances (..., C, Q) of independent latents, or over the classes (..., Q, C, C)
    ) -> Tensor:
        """``E[L(f | y = c)]`` normalised over classes, (..., classes, Q)."""

    @abstractmethod
    def expected_log(self, mean: Tensor, covariance: Tensor) -> Tensor:
        """Softmax over classes of ``E[log L(f | y = c)]``, (..., classes, Q); arguments as in `integral`."""

    def predict(self, mean: Tensor, covariance: Tensor, rule: PredictiveRule) -> Tensor:
        """Class probabilities (..., classes, Q) by the named rule; ValueError for another."""
        if rule == "plug_in":
            return self.plug_in(mean)
        if rule == "expected_log":
            return self.expected_log(mean, covariance)
        if rule != "integral":
            raise ValueError(f"rule must be one of {', '.join(get_args(PredictiveRule))}, got {rule!r}")
        return self.integral(mean, covariance)

    def predict_mixture(self, mean: Tensor, covariance: Tensor, rule: PredictiveRule) -> Tensor:
        """Class probabilities (..., classes, Q) of a mixture of Gaussians (S, ..., C, Q), such as a sampler's chains.

        Those of the Gaussians, averaged: each is normalised on its own.
        """
        return self.predict(mean, covariance, rule).mean(0)

"""Softmax likelihood: the non-conjugate reference.

``p(k | f) = exp(f_k / tau) / sum exp(f_c / tau)``. There are no Gaussian sites in closed form; inference is
Laplace's (`sureshot.inference.laplace`). Only differences of the latents matter.

References: Rasmussen & Williams 2006, 3.5.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sureshot.likelihoods.auxiliary import positive
from sureshot.likelihoods.base import Likelihood
from sureshot.likelihoods.quadrature import N_POINTS, gaussian_expectation, is_full_covariance


class Softmax(Likelihood):
    """``p(k | f) = softmax(f / temperature)_k``; ``n_points`` are those of the fixed set behind `integral`."""

    name = "softmax"
    translation_invariant = True

    def __init__(self, temperature: float | Tensor = 1.0, n_points: int = N_POINTS) -> None:
        self.temperature = positive("temperature", temperature)
        self.n_points = n_points

    def class_log_likelihood(self, f: Tensor) -> Tensor:
        """``log softmax(f / temperature)``, (..., C, N)."""
        return torch.log_softmax(self.class_logits(f), dim=-2)

    def class_logits(self, f: Tensor) -> Tensor:
        """``f / temperature``, (..., C, N)."""
        return f / self.temperature

    def integral(self, mean: Tensor, covariance: Tensor) -> Tensor:
        """``E[softmax(f / temperature)]`` by the fixed point set, (..., C, Q)."""
        return gaussian_expectation(self.plug_in, mean, covariance, self.n_points)

    def expected_log(self, mean: Tensor, covariance: Tensor) -> Tensor:
        """Softmax of ``E[log p]``: ``softmax(mean / tau)``, since the normaliser is common to the classes."""
        is_full_covariance(mean, covariance)
        return torch.softmax(mean / self.temperature, dim=-2)

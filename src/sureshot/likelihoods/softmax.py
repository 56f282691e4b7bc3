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
from sureshot.likelihoods.quadrature import N_POINTS, is_full_covariance, log_gaussian_expectation


class Softmax(Likelihood):
    """``p(k | f) = softmax(f / temperature)_k``.

    Parameters
    ----------
    temperature : float or Tensor (), default=1.0
        Divides the latents; the same model as latents scaled by its inverse.
    n_points : int, default=256
        Points of the fixed quasi-Monte-Carlo set behind `integral`.

    Raises
    ------
    ValueError
        When the temperature is not positive.
    """

    name = "softmax"
    normalised = True

    def __init__(self, temperature: float | Tensor = 1.0, n_points: int = N_POINTS) -> None:
        self.temperature = positive("temperature", temperature)
        self.n_points = n_points

    def class_log_likelihood(self, f: Tensor) -> Tensor:
        """``log softmax(f / temperature)``, (..., C, N)."""
        return torch.log_softmax(f / self.temperature, dim=-2)

    def integral(self, mean: Tensor, covariance: Tensor) -> Tensor:
        """``E[softmax(f / temperature)]`` by the fixed point set, (..., C, Q)."""
        logs = log_gaussian_expectation(self.class_log_likelihood, mean, covariance, self.n_points)
        return torch.softmax(logs, dim=-2)

    def expected_log(self, mean: Tensor, covariance: Tensor) -> Tensor:
        """Softmax of ``E[log p]``: ``softmax(mean / tau)``, since the normaliser is common to the classes."""
        is_full_covariance(mean, covariance)
        return torch.softmax(mean / self.temperature, dim=-2)

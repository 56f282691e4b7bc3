"""Logistic likelihood: two classes, one latent function.

``p(y = 1 | f) = sigma(f)``. With Polya-Gamma variables ``omega ~ PG(s, f)``, s the weight of the datum, it
is the Gaussian factor ``exp(s (y - 1/2) f - omega f^2 / 2)``; mean field replaces omega by its expectation
at ``c^2 = E[f^2]``. This is the gold standard to read before adding a likelihood.

References: Polson, Scott & Windle 2013; Jaakkola & Jordan 2000 (the same mean field).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from sureshot.gaussian.sites import Sites
from sureshot.likelihoods.auxiliary import log_two_cosh_half, per_class, require_counts, total
from sureshot.likelihoods.polya_gamma import half_tanh_ratio, sample_polya_gamma
from sureshot.likelihoods.quadrature import expected_log_sigmoid, log_expected_sigmoid, marginal_variance
from sureshot.likelihoods.sites import AuxiliariesAtOptimum, ClassSites, ConjugateLikelihood


class Logistic(AuxiliariesAtOptimum, ConjugateLikelihood, ClassSites):
    """Two classes by one latent function; ``p(y = 1 | f) = sigma(f)``.

    Latents have shape (..., 1, N); probabilities have two rows, class 0 first.
    """

    name = "logistic"

    def n_latents(self, n_classes: int) -> int:
        """One latent function; `ValueError` for more than two classes."""
        if n_classes != 2:
            raise ValueError(
                f"the logistic likelihood is for 2 classes, but there are {n_classes}: use 'one_vs_each', "
                "'logistic_softmax' or 'softmax'"
            )
        return 1

    def class_log_likelihood(self, f: Tensor) -> Tensor:
        """``log sigma(-f)`` and ``log sigma(f)``, (..., 2, N)."""
        _check_one(f)
        return torch.cat([logsigmoid(-f), logsigmoid(f)], dim=-2)

    def integral(self, mean: Tensor, covariance: Tensor) -> Tensor:
        """``E[sigma(f)]`` by quadrature, see `quadrature`; (..., 2, Q)."""
        _check_one(mean)
        variance = marginal_variance(mean, covariance)
        logs = torch.cat([log_expected_sigmoid(-mean, variance), log_expected_sigmoid(mean, variance)], dim=-2)
        return torch.softmax(logs, dim=-2)

    def expected_log(self, mean: Tensor, covariance: Tensor) -> Tensor:
        """Softmax of ``E[log sigma(-f)], E[log sigma(f)]``, which is ``sigma(mean)`` at every variance."""
        _check_one(mean)
        variance = marginal_variance(mean, covariance)
        logs = torch.cat([expected_log_sigmoid(-mean, variance), expected_log_sigmoid(mean, variance)], dim=-2)
        return torch.softmax(logs, dim=-2)

    def sample_sites(self, f: Tensor, y: Tensor, weight: Tensor | None, generator: torch.Generator | None) -> Sites:
        """Draw ``omega ~ PG(s, f)``; whole numbers s only: no exact draw exists for others."""
        require_counts(weight)
        scale = per_class(weight) * torch.ones_like(f)
        omega = sample_polya_gamma(scale, f, generator)
        return Sites(omega, scale * (y.unsqueeze(-2).to(f.dtype) - 0.5))

    def expected_sites(self, mean: Tensor, variance: Tensor, y: Tensor, weight: Tensor | None) -> Sites:
        """``E[omega] = s tanh(c/2) / (2 c)`` with ``c^2 = E[f^2]``; shift ``s (y - 1/2)``."""
        scale = per_class(weight) * torch.ones_like(mean)
        return Sites(scale * half_tanh_ratio(mean**2 + variance), scale * (y.unsqueeze(-2).to(mean.dtype) - 0.5))

    def local_bound(self, mean: Tensor, variance: Tensor, y: Tensor, weight: Tensor | None) -> Tensor:
        """``sum of s ((y - 1/2) m - log(2 cosh(c/2)))``, (...)."""
        linear = (y.unsqueeze(-2).to(mean.dtype) - 0.5) * mean
        return total((linear - log_two_cosh_half(mean**2 + variance)).squeeze(-2), weight)


def _check_one(f: Tensor) -> None:
    if f.shape[-2] != 1:
        raise ValueError(f"the logistic likelihood has one latent function (..., 1, N), got shape {tuple(f.shape)}")

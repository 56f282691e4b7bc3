"""Gaussian latents under Gaussian sites: the interface of priors and posteriors.

Given sites, the posterior, the evidence, its gradients, the leave-one-out cavities and the predictions are all Gaussian
algebra, written once and used by mean field, Gibbs, Laplace and the objectives. Two representations of the same prior
are interchangeable:

* `sureshot.gaussian.gram.GramPrior` holds the kernel matrix ``K``. With ``B = I + W^1/2 K W^1/2`` (eigenvalues at least
  1) neither ``K^-1`` nor jitter is ever needed, and a precision of zero (no observation) is allowed anywhere.
* `sureshot.gaussian.features.FeaturePrior` holds features ``Phi`` with ``K = Phi Phi'``; with fewer features R than
  data N everything costs ``O(N R^2)`` instead of ``O(N^3)``.

References: Rasmussen & Williams 2006, chapter 3 (the B form) and 5.4.2 (leave-one-out).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from sureshot.gaussian.sites import Sites


class LatentPosterior(ABC):
    """The Gaussian posterior of the latents given sites.

    Attributes
    ----------
    prior_mean : Tensor (..., C, 1) or scalar
    sites : Sites
    mean, variance : Tensor (..., C, N)
        Marginal moments at the training inputs.
    log_det : Tensor (..., C)
        ``log|B| = log|K| - log|Sigma|``.
    quadratic : Tensor (..., C)
        ``(m - a)' K^-1 (m - a)``.
    """

    prior_mean: Tensor
    sites: Sites
    mean: Tensor
    variance: Tensor
    log_det: Tensor
    quadratic: Tensor

    def kl(self) -> Tensor:
        """``KL(q(f) || p(f))`` summed over the classes, shape (...)."""
        n = self.mean.shape[-1]
        return 0.5 * (self.trace() - n + self.log_det + self.quadratic).sum(-1)

    def log_evidence(self) -> Tensor:
        """``log of the integral of N(f; a, K) * sites``, summed over the classes, shape (...)."""
        w, b = self.sites
        a = self.prior_mean
        centred = b - w * a
        linear = (a * b - 0.5 * a**2 * w + 0.5 * centred * (self.mean - a)).sum(-1)
        return (linear - 0.5 * self.log_det).sum(-1)

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Mean and variance of every latent with its own site removed, each (..., C, N).

        Exact for fixed sites; with sites that were fitted to all the data (mean field, Laplace) an approximation,
        since the remaining sites have seen the left-out label.
        """
        w, b = self.sites
        kept = (1 - w * self.variance).clamp_min(torch.finfo(self.variance.dtype).tiny)
        return (self.mean - b * self.variance) / kept, self.variance / kept

    @abstractmethod
    def trace(self) -> Tensor:
        """``tr(K^-1 Sigma) = tr(B^-1)``, (..., C).

        From the factor of B when asked for: ``N - tr(W Sigma)`` would cancel where precisions are large.
        """

    @abstractmethod
    def query(self, cross: Tensor, prior_variance: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of the latents at query inputs, each (..., C, Q).

        Parameters
        ----------
        cross : Tensor
            Kernel between data and queries (..., C or 1, N, Q) for `GramPosterior`;
            the queries' features (..., C or 1, Q, R) for `FeaturePosterior`.
        prior_variance : Tensor (..., C or 1, Q)
            The kernel's diagonal at the queries.
        """


class LatentPrior(ABC):
    """A Gaussian prior over the latents at the training inputs."""

    mean: Tensor  # scalar or (..., C, 1)

    @property
    @abstractmethod
    def variance(self) -> Tensor:
        """Prior variances (..., C or 1, N)."""

    @abstractmethod
    def condition(self, sites: Sites) -> LatentPosterior:
        """The posterior under these sites."""

    @abstractmethod
    def sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        """Draws of the latents with the leading `shape` (..., C), giving (..., C, N)."""

"""Priors and posteriors in weight space, held as features ``Phi`` with ``K = Phi Phi'``."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.gaussian.algebra import factor_plus_identity, times_vector, trace_of_inverse
from sureshot.gaussian.latent import LatentPosterior, LatentPrior
from sureshot.gaussian.sites import Sites


@dataclass(frozen=True)
class FeaturePosterior(LatentPosterior):
    """Posterior in weight space; see `LatentPosterior`."""

    prior_mean: Tensor
    sites: Sites
    mean: Tensor
    variance: Tensor
    log_det: Tensor
    quadratic: Tensor
    weights: Tensor  # (..., C, R), posterior mean of the weights
    factor: Tensor  # (..., C, R, R), lower Cholesky factor of A = I + Phi' W Phi

    def trace(self) -> Tensor:
        """See `LatentPosterior.trace`; ``N - R + tr(A^-1)``."""
        return self.mean.shape[-1] - self.factor.shape[-1] + trace_of_inverse(self.factor)

    def query(self, cross: Tensor, prior_variance: Tensor) -> tuple[Tensor, Tensor]:
        """See `LatentPosterior.query`; variance outside the features' span is kept at its prior value."""
        mean = self.prior_mean + times_vector(cross, self.weights)
        explained = cross.square().sum(-1)
        inside = torch.linalg.solve_triangular(self.factor, cross.mT, upper=False).square().sum(-2)
        return mean, (prior_variance - explained).clamp_min(0) + inside


@dataclass(frozen=True)
class FeaturePrior(LatentPrior):
    """Prior ``N(a, Phi Phi')`` held as features.

    Parameters
    ----------
    features : Tensor (..., C or 1, N, R)
    mean : Tensor, scalar or (..., C, 1)
    """

    features: Tensor
    mean: Tensor

    @property
    def variance(self) -> Tensor:
        """Prior variances (..., C or 1, N)."""
        return self.features.square().sum(-1)

    def condition(self, sites: Sites) -> FeaturePosterior:
        """Condition on sites: ``A = I + Phi' W Phi``, one R x R factor for each class."""
        w, b = sites
        phi = self.features
        factor = factor_plus_identity(phi.mT @ (w.unsqueeze(-1) * phi))
        projected = times_vector(phi.mT, b - w * self.mean)
        weights = torch.cholesky_solve(projected.unsqueeze(-1), factor).squeeze(-1)
        return FeaturePosterior(
            prior_mean=self.mean,
            sites=sites,
            mean=self.mean + times_vector(phi, weights),
            variance=torch.linalg.solve_triangular(factor, phi.mT, upper=False).square().sum(-2),
            log_det=2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1),
            quadratic=weights.square().sum(-1),
            weights=weights,
            factor=factor,
        )

    def sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        """Draw from the prior; exact for any rank, never needs jitter."""
        rank = self.features.shape[-1]
        noise = torch.randn(*shape, rank, generator=generator, dtype=self.features.dtype, device=self.features.device)
        return self.mean + times_vector(self.features, noise)

"""Priors and posteriors in weight space, held as features: ``K = Phi Phi' + diag(residual)``.

The *residual* is the prior variance that the features do not explain, independent between rows: FITC for inducing
points, zero for features that are exact. It is a noise of its own on every latent, so it is integrated out of the sites
first: with ``s = 1 + w r`` a site (w, b) of ``f = g + e`` is the site ``(w / s, b / s)`` of ``g = a + Phi v``, times
``s^-1/2 exp(r b^2 / 2 s)``.

References: Snelson & Ghahramani 2006 (FITC); Rasmussen & Williams 2006, chapter 8.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sureshot.gaussian.algebra import factor_plus_identity, solve_vectors, times_vector, trace_of_inverse
from sureshot.gaussian.posterior import LatentMoments, ProblemPosterior, SitePosterior, of_problems
from sureshot.gaussian.prior import Covariance, Prior
from sureshot.gaussian.sites import Sites


@dataclass(frozen=True)
class FeaturePosterior(SitePosterior, ProblemPosterior):
    """Posterior in weight space; see `SitePosterior`."""

    prior_mean: Tensor
    sites: Sites
    mean: Tensor
    variance: Tensor
    log_det: Tensor
    quadratic: Tensor
    weights: Tensor  # (..., C, R), posterior mean of the weights
    factor: Tensor  # (..., C or 1, R, R), lower Cholesky factor of A = I + Phi' W Phi
    kept: Tensor | None  # (..., C or 1, N), of each row's 1 - w Sigma the part that a residual leaves; None without

    def trace(self) -> Tensor:
        """``N - R + tr(A^-1)`` without a residual."""
        if self.kept is not None:
            return self.kept.sum(-1)
        return self.mean.shape[-1] - self.factor.shape[-1] + trace_of_inverse(self.factor)

    def some(self, chosen: Tensor) -> FeaturePosterior:
        return replace(self, **of_problems(self, chosen))

    def query(self, cross: Tensor, prior_variance: Tensor) -> LatentMoments:
        """Variance outside the features' span is kept at its prior value."""
        return weight_query(self.prior_mean, self.weights, self.factor, cross, prior_variance)

    def query_mean(self, cross: Tensor) -> Tensor:
        return self.prior_mean + times_vector(cross, self.weights)


@dataclass(frozen=True)
class FeaturePrior(Prior):
    """Prior ``N(a, Phi Phi' + diag(residual))`` held as features."""

    features: Tensor  # (..., C or 1, N, R)
    mean: Tensor  # scalar or (..., C, 1)
    residual: Tensor | None = None  # (..., C or 1, N), not negative
    covariance: Covariance | None = None

    @property
    def variance(self) -> Tensor:
        explained = self.features.square().sum(-1)
        return explained if self.residual is None else explained + self.residual

    @property
    def width(self) -> int:
        """R."""
        return int(self.features.shape[-1])

    def some(self, chosen: Tensor, n: int) -> FeaturePrior:
        residual = None if self.residual is None else self.residual[chosen][..., :n]
        return FeaturePrior(self.features[chosen][..., :n, :], self.mean[chosen], residual, self.covariance)

    def condition(self, sites: Sites) -> FeaturePosterior:
        """``A = I + Phi' W Phi``, one R x R factor for each class."""
        phi, (w, b) = self.features, sites
        spread = self._spread(w)
        inner_w, inner_b = w / spread, b / spread
        factor = factor_plus_identity(phi.mT @ (inner_w.unsqueeze(-1) * phi))
        projected = times_vector(phi.mT, inner_b - inner_w * self.mean)
        weights = solve_vectors(factor.mT, solve_vectors(factor, projected, upper=False), upper=True)
        explained = times_vector(phi, weights)
        mean = self.mean + explained
        inside = torch.linalg.solve_triangular(factor, phi.mT, upper=False).square().sum(-2)
        log_det = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        variance, quadratic, kept = inside, weights.square().sum(-1), None
        if self.residual is not None:
            mean = mean + self.residual * (b - w * mean) / spread
            variance = self.residual / spread + inside / spread.square()
            kept = (1 - inner_w * inside) / spread
            quadratic = ((b - w * mean) * (mean - self.mean)).sum(-1)
            log_det = log_det + spread.log().sum(-1)
        return FeaturePosterior(
            prior_mean=self.mean,
            sites=sites,
            mean=mean,
            variance=variance.expand(mean.shape),
            log_det=log_det.expand(mean.shape[:-1]),
            quadratic=quadratic,
            weights=weights,
            factor=factor,
            kept=kept,
        )

    def log_density(self, residual: Tensor, precision: Tensor) -> Tensor:
        """By the matrix inversion lemma."""
        phi = self.features
        spread = self._spread(precision)
        w = precision / spread
        factor = factor_plus_identity(phi.mT @ (w.unsqueeze(-1) * phi))
        log_det = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1) + spread.log().sum(-1)
        projected = times_vector(phi.mT, w * residual)
        weights = solve_vectors(factor.mT, solve_vectors(factor, projected, upper=False), upper=True)
        fit = (w * residual * (residual - times_vector(phi, weights))).sum(-1)
        return -0.5 * (fit + log_det)

    def sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        """Exact for any rank, never needs jitter."""
        phi = self.features
        noise = torch.randn(*shape, phi.shape[-1], generator=generator, dtype=phi.dtype, device=phi.device)
        drawn = self.mean + times_vector(phi, noise)
        if self.residual is None:
            return drawn
        return drawn + self.residual.sqrt() * _normal_like(drawn, generator)

    def sampler(self) -> FeaturePrior:
        """Itself."""
        return self

    def draw(self, sites: Sites, generator: torch.Generator | None, sampler: Prior) -> Tensor:
        """``f = a + Phi v`` with ``v ~ N(A^-1 Phi' (b - w a), A^-1)``, and the residual given it."""
        phi, (w, b) = self.features, sites
        spread = self._spread(w)
        inner_w, inner_b = w / spread, b / spread
        factor = factor_plus_identity(phi.mT @ (inner_w.unsqueeze(-1) * phi))
        noise = torch.randn(*w.shape[:-1], phi.shape[-1], generator=generator, dtype=w.dtype, device=w.device)
        half = solve_vectors(factor, times_vector(phi.mT, inner_b - inner_w * self.mean), upper=False)
        weights = solve_vectors(factor.mT, half + noise, upper=True)
        drawn = self.mean + times_vector(phi, weights)
        if self.residual is None:
            return drawn
        share = self.residual / spread
        return drawn + share * (b - w * drawn) + share.sqrt() * _normal_like(drawn, generator)

    def _spread(self, precision: Tensor) -> Tensor:
        """By how much the residual widens the sites of the part that the features explain: ``s = 1 + w r``."""
        return torch.ones_like(precision) if self.residual is None else 1 + precision * self.residual


def weight_query(
    prior_mean: Tensor, weights: Tensor, factor: Tensor, cross: Tensor, prior_variance: Tensor
) -> LatentMoments:
    """Moments at queries from the weights' mean (..., C, R) and the factor of their precision (..., C or 1, R, R)."""
    mean = prior_mean + times_vector(cross, weights)
    inside = torch.linalg.solve_triangular(factor, cross.mT, upper=False).square().sum(-2)
    variance = (prior_variance - cross.square().sum(-1)).clamp_min(0) + inside
    return LatentMoments(mean, variance.expand(mean.shape))


def _normal_like(values: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.randn(values.shape, generator=generator, dtype=values.dtype, device=values.device)

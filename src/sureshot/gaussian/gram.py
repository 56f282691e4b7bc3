"""Priors and posteriors in function space, held as kernel matrices.

Reference: Rasmussen & Williams 2006, chapter 3 (the B form); Wilson et al. 2020 (Matheron's rule).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sureshot.gaussian.algebra import (
    factor_plus_identity,
    solve_vectors,
    symmetric_root,
    times_vector,
    trace_of_inverse,
    weighted_factor,
)
from sureshot.gaussian.features import FeaturePrior
from sureshot.gaussian.posterior import LatentMoments, ProblemPosterior, SitePosterior, of_problems
from sureshot.gaussian.prior import Covariance, Prior
from sureshot.gaussian.sites import Sites


@dataclass(frozen=True)
class GramPosterior(SitePosterior, ProblemPosterior):
    """Posterior in function space; see `SitePosterior`."""

    prior_mean: Tensor
    sites: Sites
    mean: Tensor
    variance: Tensor
    log_det: Tensor
    quadratic: Tensor
    alpha: Tensor  # (..., C, N), K^-1 (m - a)
    root: Tensor  # (..., C or 1, N), W^1/2
    factor: Tensor  # (..., C or 1, N, N), L_B, lower Cholesky factor of B = I + W^1/2 K W^1/2

    def whitened(self, cross: Tensor) -> Tensor:
        """``E = L_B^-1 W^1/2 cross`` (..., C, N, Q): ``E'E`` is what the data explain of the prior covariance."""
        return torch.linalg.solve_triangular(self.factor, self.root.unsqueeze(-1) * cross, upper=False)

    def trace(self) -> Tensor:
        return trace_of_inverse(self.factor)

    def some(self, chosen: Tensor) -> GramPosterior:
        return replace(self, **of_problems(self, chosen))

    def query(self, cross: Tensor, prior_variance: Tensor) -> LatentMoments:
        mean = self.query_mean(cross)
        variance = (prior_variance - self.whitened(cross).square().sum(-2)).clamp_min(0)
        return LatentMoments(mean, variance.expand(mean.shape))

    def query_mean(self, cross: Tensor) -> Tensor:
        return self.prior_mean + times_vector(cross.mT, self.alpha)


@dataclass(frozen=True)
class GramPrior(Prior):
    """Prior ``N(a, K)`` held as its kernel matrix."""

    gram: Tensor  # (..., C or 1, N, N), one matrix shared by the classes or one for each
    mean: Tensor  # scalar or (..., C, 1)
    covariance: Covariance | None = None

    @property
    def variance(self) -> Tensor:
        return self.gram.diagonal(dim1=-2, dim2=-1)

    @property
    def width(self) -> int:
        """N."""
        return int(self.gram.shape[-1])

    def some(self, chosen: Tensor, n: int) -> GramPrior:
        return GramPrior(self.gram[chosen][..., :n, :n], self.mean[chosen], self.covariance)

    def condition(self, sites: Sites) -> GramPosterior:
        """For each class one Cholesky factor of B and one triangular solve.

        The solve gives ``E = L_B^-1 W^1/2 K``, of which ``E'E`` is what the data explain of the prior covariance.
        Classes that share kernel matrix and precisions share the factor.
        """
        w, b = sites
        root = _root(w)
        scaled = root.unsqueeze(-1) * self.gram
        factor = factor_plus_identity(scaled * root.unsqueeze(-2))
        half_gram = torch.linalg.solve_triangular(factor, scaled, upper=False)
        centred = b - w * self.mean
        solved = solve_vectors(factor.mT, times_vector(half_gram, centred), upper=True)
        alpha = centred - root * solved
        shifted = times_vector(self.gram, alpha)
        variance = (self.variance - half_gram.square().sum(-2)).clamp_min(0)
        log_det = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return GramPosterior(
            prior_mean=self.mean,
            sites=sites,
            mean=self.mean + shifted,
            variance=variance.expand(shifted.shape),
            log_det=log_det.expand(shifted.shape[:-1]),
            quadratic=(shifted * alpha).sum(-1),
            alpha=alpha,
            root=root,
            factor=factor,
        )

    def log_density(self, residual: Tensor, precision: Tensor) -> Tensor:
        root = _root(precision)
        factor = weighted_factor(self.gram, root)
        whitened = solve_vectors(factor, root * residual, upper=False)
        log_det = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return -0.5 * (whitened.square().sum(-1) + log_det)

    def sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        return self.sampler().sample(shape, generator)

    def sampler(self) -> FeaturePrior:
        """A factor from the eigenvalues: singular kernel matrices need no jitter."""
        return FeaturePrior(symmetric_root(self.gram).to(self.gram.dtype), self.mean)

    def draw(self, sites: Sites, generator: torch.Generator | None, sampler: Prior) -> Tensor:
        """By Matheron's rule from one draw of the prior."""
        return matheron_sample(self, sites, sampler.sample(sites.precision.shape[:-1], generator), generator)


def matheron_sample(prior: GramPrior, sites: Sites, prior_draw: Tensor, generator: torch.Generator | None) -> Tensor:
    """One exact posterior draw from one prior draw (Matheron's rule), shape of `prior_draw` (..., C, N).

    ``r' = b - W g - W^1/2 e`` with prior draw g and e ~ N(0, I); then ``f = g + K (r' - G K r')``.
    """
    w, b = sites
    root = w.sqrt()
    noise = torch.randn(prior_draw.shape, generator=generator, dtype=w.dtype, device=w.device)
    residual = b - w * prior_draw - root * noise
    factor = weighted_factor(prior.gram, root)
    solved = torch.cholesky_solve((root * times_vector(prior.gram, residual)).unsqueeze(-1), factor).squeeze(-1)
    return prior_draw + times_vector(prior.gram, residual - root * solved)


def _root(precision: Tensor) -> Tensor:
    """``W^1/2``, whose gradient is zero where the precision is: it would be infinite."""
    observed = precision > 0
    return torch.where(observed, precision, 1).sqrt() * observed

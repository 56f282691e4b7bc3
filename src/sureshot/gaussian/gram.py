"""Priors and posteriors in function space, held as kernel matrices.

Reference: Rasmussen & Williams 2006, chapter 3 (the B form); Wilson et al. 2020 (Matheron's rule).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.gaussian.algebra import (
    cholesky_with_jitter,
    factor_plus_identity,
    times_vector,
    trace_of_inverse,
    weighted_factor,
)
from sureshot.gaussian.latent import LatentPosterior, LatentPrior
from sureshot.gaussian.sites import Sites


@dataclass(frozen=True)
class GramPosterior(LatentPosterior):
    """Posterior in function space; see `LatentPosterior`."""

    prior_mean: Tensor
    sites: Sites
    mean: Tensor
    variance: Tensor
    log_det: Tensor
    quadratic: Tensor
    alpha: Tensor  # (..., C, N), K^-1 (m - a)
    root: Tensor  # (..., C, N), W^1/2
    factor: Tensor  # (..., C, N, N), L_B, lower Cholesky factor of B = I + W^1/2 K W^1/2

    def whitened(self, cross: Tensor) -> Tensor:
        """``E = L_B^-1 W^1/2 cross`` (..., C, N, Q): ``E'E`` is what the data explain of the prior covariance."""
        return torch.linalg.solve_triangular(self.factor, self.root.unsqueeze(-1) * cross, upper=False)

    def half(self) -> Tensor:
        """``L_B^-1 W^1/2`` (..., C, N, N), so that ``half' half = W^1/2 B^-1 W^1/2``."""
        return torch.linalg.solve_triangular(self.factor, torch.diag_embed(self.root), upper=False)

    def trace(self) -> Tensor:
        """See `LatentPosterior.trace`."""
        return trace_of_inverse(self.factor)

    def query(self, cross: Tensor, prior_variance: Tensor) -> tuple[Tensor, Tensor]:
        """See `LatentPosterior.query`."""
        mean = self.prior_mean + times_vector(cross.mT, self.alpha)
        return mean, (prior_variance - self.whitened(cross).square().sum(-2)).clamp_min(0)


@dataclass(frozen=True)
class GramPrior(LatentPrior):
    """Prior ``N(a, K)`` held as its kernel matrix.

    Parameters
    ----------
    gram : Tensor (..., C or 1, N, N)
        One matrix shared by the classes (size 1 at that dimension) or one for each.
    mean : Tensor, scalar or (..., C, 1)
    """

    gram: Tensor
    mean: Tensor

    @property
    def variance(self) -> Tensor:
        """Prior variances (..., C or 1, N)."""
        return self.gram.diagonal(dim1=-2, dim2=-1)

    def condition(self, sites: Sites) -> GramPosterior:
        """Condition on sites: ``B = I + W^1/2 K W^1/2``, for each class one Cholesky factor and one triangular solve.

        The solve gives ``E = L_B^-1 W^1/2 K``, of which ``E'E`` is what the data explain of the prior covariance.
        """
        w, b = sites
        observed = w > 0  # the root's gradient at zero would be infinite
        root = torch.where(observed, w, 1).sqrt() * observed
        scaled = root.unsqueeze(-1) * self.gram
        factor = factor_plus_identity(scaled * root.unsqueeze(-2))
        half_gram = torch.linalg.solve_triangular(factor, scaled, upper=False)
        centred = b - w * self.mean
        solved = torch.linalg.solve_triangular(factor.mT, half_gram @ centred.unsqueeze(-1), upper=True)
        alpha = centred - root * solved.squeeze(-1)
        shifted = times_vector(self.gram, alpha)
        return GramPosterior(
            prior_mean=self.mean,
            sites=sites,
            mean=self.mean + shifted,
            variance=(self.variance - half_gram.square().sum(-2)).clamp_min(0),
            log_det=2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1),
            quadratic=(shifted * alpha).sum(-1),
            alpha=alpha,
            root=root,
            factor=factor,
        )

    def sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        """Draw from the prior; only members whose factorisation fails get jitter, with a warning."""
        noise = torch.randn(
            *shape, self.gram.shape[-1], generator=generator, dtype=self.gram.dtype, device=self.gram.device
        )
        factor = cholesky_with_jitter(self.gram)
        return self.mean + times_vector(factor, noise)


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

"""One more observation in O(N^2): a posterior in function space grows by a row.

With ``B = I + W^1/2 K W^1/2 = L L'`` the factor of one more row is that of the others with a last row
``(w_j^1/2 l', d)``, where ``l = L^-1 W^1/2 k_j`` and ``d^2 = 1 + w_j v_j``, v_j the latent's variance given the others.
Means and variances follow by the update of a Gaussian with one observation. Nothing is factorised again; the result is
that of conditioning on all rows at once, to rounding.

Reference: Rasmussen & Williams 2006, chapter 3, for B; Golub & Van Loan 2013, section 6.5, for the factor.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sureshot.gaussian.algebra import times_vector
from sureshot.gaussian.gram import GramPosterior, GramPrior
from sureshot.gaussian.sites import Sites


def append_row(
    prior: GramPrior,  # over N rows, (..., C or 1, N, N)
    posterior: GramPosterior,  # of that prior
    cross: Tensor,  # (..., C or 1, N), the kernel between the N rows and the new one
    prior_variance: Tensor,  # (..., C or 1), the kernel of the new row with itself
    site: Sites,  # of the new row, each (..., C)
) -> tuple[GramPrior, GramPosterior]:
    """Prior and posterior of N + 1 rows; a precision of zero (a row without a label yet) is allowed.

    The prior mean must be one number for each class, (..., C, 1) or a scalar.
    """
    w, b = site
    root = w.sqrt()
    own = posterior.whitened(cross.unsqueeze(-1)).squeeze(-1)  # l, (..., C, N)
    back = posterior.root * _back_substituted(posterior.factor, own)  # W^1/2 B^-1 W^1/2 k_j
    variance = (prior_variance - own.square().sum(-1)).clamp_min(0)
    a = posterior.prior_mean.squeeze(-1) if posterior.prior_mean.dim() else posterior.prior_mean
    mean = a + (cross * posterior.alpha).sum(-1)
    squared = 1 + w * variance  # d^2
    gain = (b - w * mean) / squared  # the new row's K^-1 (m - a)
    with_new = cross - times_vector(prior.gram, back)  # posterior covariance of the N latents with the new one
    means = _with_last(posterior.mean + with_new * gain.unsqueeze(-1), mean + variance * gain)
    alpha = _with_last(posterior.alpha - back * gain.unsqueeze(-1), gain)
    old = posterior.variance - (w / squared).unsqueeze(-1) * with_new.square()
    grown = GramPosterior(
        prior_mean=posterior.prior_mean,
        sites=Sites(_with_last(posterior.sites.precision, w), _with_last(posterior.sites.shift, b)),
        mean=means,
        variance=_with_last(old.clamp_min(0), variance / squared),
        log_det=posterior.log_det + squared.log(),
        quadratic=((means - posterior.prior_mean) * alpha).sum(-1),
        alpha=alpha,
        root=_with_last(posterior.root, root),
        factor=_bordered(posterior.factor, torch.zeros_like(own), root.unsqueeze(-1) * own, squared.sqrt()),
    )
    return GramPrior(_bordered(prior.gram, cross, cross, prior_variance), prior.mean), grown


def append_to_factor(
    factor: Tensor,  # (N, N), lower Cholesky factor of a matrix A
    cross: Tensor,  # (N, M)
    corner: Tensor,  # (M, M)
) -> Tensor:
    """The factor of ``[[A, cross], [cross', corner]]``, (N + M, N + M), in O(N^2 M)."""
    own = torch.linalg.solve_triangular(factor, cross, upper=False)  # L^-1 cross
    last = torch.linalg.cholesky(corner - own.mT @ own)
    above = torch.cat([factor, torch.zeros_like(cross)], -1)
    return torch.cat([above, torch.cat([own.mT, last], -1)], -2)


def _back_substituted(factor: Tensor, values: Tensor) -> Tensor:
    """``L'^-1 values`` (..., N)."""
    return torch.linalg.solve_triangular(factor.mT, values.unsqueeze(-1), upper=True).squeeze(-1)


def _with_last(values: Tensor, last: Tensor) -> Tensor:
    """(..., N) with one more entry (...)."""
    batch = np.broadcast_shapes(values.shape[:-1], last.shape)
    return torch.cat([values.expand(*batch, -1), last.expand(batch).unsqueeze(-1)], -1)


def _bordered(matrix: Tensor, column: Tensor, row: Tensor, corner: Tensor) -> Tensor:
    """(..., N, N) with one more column (..., N), row (..., N) and their corner (...)."""
    batch = np.broadcast_shapes(matrix.shape[:-2], column.shape[:-1], row.shape[:-1], corner.shape)
    n = matrix.shape[-1]
    wide = torch.cat([matrix.expand(*batch, n, n), column.expand(*batch, n).unsqueeze(-1)], -1)
    return torch.cat([wide, _with_last(row.expand(*batch, n), corner).unsqueeze(-2)], -2)

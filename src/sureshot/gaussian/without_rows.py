"""What is known of latents at queries without each of the labelled rows: its site is taken out of the posterior.

A site of precision w and shift b pulls its latent, of posterior mean m and variance v, with ``p = b - w m``. Where the
posterior covariance of a query with the row is c, the query's mean and variance without the site are

    mean - c p / (1 - w v),   variance + c^2 w / (1 - w v):

a downdate of rank one, exact while the other sites stay as they are. They do where the likelihood is Gaussian; where
sites were made of all labels (Laplace's method, mean field) it is one step towards the posterior without the row.

References: Rasmussen & Williams 2006, section 5.4.2; Rad & Maleki 2020, on the step.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sureshot.gaussian.posterior import LatentMoments

_SMALLEST_CAVITY = 1e-12  # share of a latent's precision that is not its own site's


class RowSites(NamedTuple):
    """Of N labelled rows."""

    precision: Tensor  # (..., L or 1, N), w
    pull: Tensor  # (..., L, N), p
    variance: Tensor  # (..., L or 1, N), v

    def leaving(self, place: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
        """Factors of covariances with rows (E,) of whose sites a share leaves, and of their squares, (..., L, E)."""
        precision = share * self.precision[..., place]
        kept = (1 - precision * self.variance[..., place]).clamp_min(_SMALLEST_CAVITY)
        return share * self.pull[..., place] / kept, precision / kept


def moments_without(
    mean: Tensor,  # (..., L, Q), of the queries given all rows
    variance: Tensor,  # (..., L, Q)
    covariance: Tensor,  # (..., L or 1, Q, N), of queries with rows given all rows
    sites: RowSites,
    place: Tensor,  # (E,) int64, rows that leave, each alone
    share: Tensor,  # (E,), of its site
) -> tuple[Tensor, Tensor]:
    """Means and variances of the queries' latents (..., L, Q, E) without each of some rows."""
    pull, precision = (part.unsqueeze(-2) for part in sites.leaving(place, share))
    between = covariance[..., place]
    return mean.unsqueeze(-1) - between * pull, variance.unsqueeze(-1) + between.square() * precision


def beside_prior_classes(
    given: LatentMoments,  # of queries given all rows, (..., C, Q)
    found: LatentMoments,  # without each of E rows, of the classes that have rows, (..., P, Q, E)
    present: Tensor,  # (P,) int64, their places
    prior_variance: Tensor,  # (..., 1, Q)
) -> LatentMoments:
    """The latter joined by the classes that keep their prior, (..., C, Q, E)."""
    mean, spread = given
    shape = (*mean.shape, found.mean.shape[-1])
    joined = mean.unsqueeze(-1).expand(shape).index_copy(-3, present, found.mean)
    if found.spread.dim() == found.mean.dim():
        return LatentMoments(joined, spread.unsqueeze(-1).expand(shape).index_copy(-3, present, found.spread))
    whole = torch.diag_embed(prior_variance.expand(mean.shape).mT).unsqueeze(-3)
    whole = whole.repeat(*[1] * (mean.dim() - 1), shape[-1], 1, 1)
    whole[..., present.unsqueeze(-1), present] = found.spread
    return LatentMoments(joined, whole)

"""A posterior in function space for one large set of rows: a block of classes at a time, and only vectors kept.

`GramPrior.condition` holds a few matrices (C, N, N) at once and its posterior keeps one: 675 MB for 150 classes of
five rows. Here a block of classes passes through it at a time, and what stays are sites, moments and the weights of the
rows. Variances at queries are computed from the sites when they are asked for, which takes one more Cholesky factor for
each class.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.computing.blocks import blocks
from sureshot.gaussian.algebra import times_vector, trace_of_inverse, weighted_factor
from sureshot.gaussian.gram import GramPrior
from sureshot.gaussian.posterior import LatentMoments, SitePosterior
from sureshot.gaussian.sites import Sites


@dataclass(frozen=True)
class GramBlockPosterior(SitePosterior):
    """Posterior in function space that keeps no matrix but the kernel's; see `SitePosterior`."""

    prior: GramPrior  # (..., 1 or C, N, N)
    prior_mean: Tensor  # (..., C, 1)
    sites: Sites
    mean: Tensor
    variance: Tensor
    log_det: Tensor
    quadratic: Tensor
    alpha: Tensor  # (..., C, N), K^-1 (m - a)

    def trace(self) -> Tensor:
        return torch.cat([trace_of_inverse(self._factor(block)) for block in _class_blocks(self.sites)], -1)

    def query(self, cross: Tensor, prior_variance: Tensor) -> LatentMoments:
        root = self.sites.precision.sqrt()
        explained = []
        for block in _class_blocks(self.sites, cross.shape[-1]):
            scaled = root[..., block, :].unsqueeze(-1) * _classes(cross, block)
            explained.append(torch.linalg.solve_triangular(self._factor(block), scaled, upper=False).square().sum(-2))
        variance = (prior_variance - torch.cat(explained, -2)).clamp_min(0)
        return LatentMoments(self.query_mean(cross), variance)

    def query_mean(self, cross: Tensor) -> Tensor:
        return self.prior_mean + times_vector(cross.mT, self.alpha)

    def _factor(self, block: slice) -> Tensor:
        """Cholesky factors of ``B`` of some classes, (..., c, N, N)."""
        return weighted_factor(_classes(self.prior.gram, block), self.sites.precision[..., block, :].sqrt())


def condition_by_blocks(prior: GramPrior, sites: Sites) -> GramBlockPosterior:
    """`GramPrior.condition` in blocks of classes, of which only vectors are kept."""
    precision, shift, _ = torch.broadcast_tensors(*sites, prior.mean)
    sites = Sites(precision, shift)
    prior_mean = prior.mean.expand(*prior.mean.shape[:-2], shift.shape[-2], 1)
    kept = []
    for block in _class_blocks(sites):
        part = GramPrior(_classes(prior.gram, block), prior_mean[..., block, :])
        found = part.condition(Sites(*(values[..., block, :] for values in sites)))
        kept.append((found.mean, found.variance, found.log_det, found.quadratic, found.alpha))
    mean, variance, log_det, quadratic, alpha = zip(*kept, strict=True)
    return GramBlockPosterior(
        prior=prior,
        prior_mean=prior_mean,
        sites=sites,
        mean=torch.cat(mean, -2),
        variance=torch.cat(variance, -2),
        log_det=torch.cat(log_det, -1),
        quadratic=torch.cat(quadratic, -1),
        alpha=torch.cat(alpha, -2),
    )


def _class_blocks(sites: Sites, n_queries: int = 0) -> list[slice]:
    n_classes, n = sites.precision.shape[-2:]
    others = sites.precision.shape[:-2].numel()
    return blocks(n_classes, others * n * max(n, n_queries))


def _classes(matrices: Tensor, block: slice) -> Tensor:
    """The classes' own matrices, or the one they share."""
    return matrices if matrices.shape[-3] == 1 else matrices[..., block, :, :]

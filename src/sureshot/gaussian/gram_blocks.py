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

from sureshot.gaussian.algebra import times_vector, trace_of_inverse, weighted_factor
from sureshot.gaussian.gram import GramPrior
from sureshot.gaussian.latent import LatentPosterior
from sureshot.gaussian.sites import Sites

NUMBERS_AT_ONCE = 2**23
"""Of one matrix (classes, N, N) or (classes, N, Q); there are about five of them at a time."""


@dataclass(frozen=True)
class GramBlockPosterior(LatentPosterior):
    """Posterior in function space that keeps no matrix but the kernel's; see `LatentPosterior`."""

    prior: GramPrior  # (1 or C, N, N)
    prior_mean: Tensor  # (C, 1)
    sites: Sites
    mean: Tensor
    variance: Tensor
    log_det: Tensor
    quadratic: Tensor
    alpha: Tensor  # (C, N), K^-1 (m - a)

    def query_mean(self, cross: Tensor) -> Tensor:
        """Means (C, Q) at queries, from the kernel between data and queries (1 or C, N, Q)."""
        return self.prior_mean + times_vector(cross.mT, self.alpha)

    def trace(self) -> Tensor:
        """See `LatentPosterior.trace`."""
        n_classes, n = self.sites.precision.shape
        return torch.cat([trace_of_inverse(self._factor(block)) for block in _class_blocks(n_classes, n * n)])

    def query(self, cross: Tensor, prior_variance: Tensor) -> tuple[Tensor, Tensor]:
        """See `LatentPosterior.query`; cross (1 or C, N, Q), prior_variance (1 or C, Q)."""
        root = self.sites.precision.sqrt()
        explained = []
        for block in _class_blocks(len(root), cross.shape[-2] * max(cross.shape[-2:])):
            scaled = root[block].unsqueeze(-1) * _classes(cross, block)
            explained.append(torch.linalg.solve_triangular(self._factor(block), scaled, upper=False).square().sum(-2))
        return self.query_mean(cross), (prior_variance - torch.cat(explained)).clamp_min(0)

    def _factor(self, block: slice) -> Tensor:
        """Cholesky factors of ``B`` of some classes, (c, N, N)."""
        return weighted_factor(_classes(self.prior.gram, block), self.sites.precision[block].sqrt())


def condition_by_blocks(prior: GramPrior, sites: Sites) -> GramBlockPosterior:
    """`GramPrior.condition` in blocks of classes, of which only vectors are kept."""
    n_classes, n = sites.precision.shape
    prior_mean = prior.mean.expand(n_classes, 1)
    kept = []
    for block in _class_blocks(n_classes, n * n):
        part = GramPrior(_classes(prior.gram, block), prior_mean[block]).condition(Sites(*(s[block] for s in sites)))
        kept.append((part.mean, part.variance, part.log_det, part.quadratic, part.alpha))
    moments = (torch.cat(parts) for parts in zip(*kept, strict=True))
    return GramBlockPosterior(prior, prior_mean, sites, *moments)


def _class_blocks(n_classes: int, numbers: int) -> list[slice]:
    size = max(1, NUMBERS_AT_ONCE // max(1, numbers))
    return [slice(start, start + size) for start in range(0, n_classes, size)]


def _classes(matrices: Tensor, block: slice) -> Tensor:
    """The classes' own matrices, or the one they share."""
    return matrices if matrices.shape[0] == 1 else matrices[block]

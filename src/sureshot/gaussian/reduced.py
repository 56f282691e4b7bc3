"""A posterior without training rows: by how much the data reduce the prior variance, in as few numbers as it takes.

In weight space the variance of a query with features phi is ``k** - phi' (I - A^-1) phi``. With the eigenvectors u of
the precision A and its eigenvalues a, at least 1, that is ``k** - |Q' phi|^2`` for ``Q = U (1 - 1/a)^1/2``: directions
on which the data say nothing have a = 1 and need not be kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.gaussian.posterior import LatentMoments, Posterior, WithPriorClasses, of_classes
from sureshot.gaussian.recomputed import SoftmaxWeightPosterior, WeightPosterior

_NOTHING = 1e-12  # share of a direction's prior variance that may be missing from the reduction


@dataclass(frozen=True)
class ReducedPosterior(Posterior):
    """Independent classes; see the module's docstring."""

    coefficients: Tensor  # (S, C, R)
    prior_mean: Tensor  # (C,)
    reduction: Tensor  # Q, (S, C or 1, R, K)

    def query(self, cross: Tensor, prior_variance: Tensor) -> LatentMoments:
        """See `Posterior.query`; features (Q, R) or (1, Q, R)."""
        return LatentMoments(self.query_mean(cross), self.query_variance(cross, prior_variance))

    def query_mean(self, cross: Tensor) -> Tensor:
        """See `Posterior.query_mean`."""
        return self.prior_mean[:, None] + self.coefficients @ cross.mT

    def query_variance(self, cross: Tensor, prior_variance: Tensor, classes: Tensor | None = None) -> Tensor:
        """See `Posterior.query_variance`."""
        features = cross.reshape(cross.shape[-2:])
        reduced = (features @ self.reduction).square().sum(-1)  # (S, C or 1, Q)
        variance = (prior_variance - reduced).clamp_min(0).expand(*self.coefficients.shape[:2], -1)
        return variance if classes is None else of_classes(variance, classes)


def reduction_of(
    posterior: Posterior,
    projection: Tensor | None,  # (M, R), makes features of the values that queries come as
) -> Tensor | None:
    """``Q`` (S, C or 1, R or M, K) of a posterior in weight space; None where classes are coupled."""
    if isinstance(posterior, WithPriorClasses):
        own = reduction_of(posterior.inner, projection)
        if own is None:
            return None
        inner = own.expand(-1, len(posterior.present), -1, -1)
        whole = inner.new_zeros(len(inner), len(posterior.prior_mean), *inner.shape[2:])
        return whole.index_copy(1, posterior.present, inner)
    if isinstance(posterior, SoftmaxWeightPosterior):
        posterior = posterior.with_precision()
    if not isinstance(posterior, WeightPosterior):
        return None
    n_blocks = 1 if posterior.shared else posterior.weights.shape[1]
    found = [
        [_block(posterior.factor(chain, c), projection) for c in range(n_blocks)]
        for chain in range(len(posterior.weights))
    ]
    width = max(block.shape[1] for blocks in found for block in blocks)
    padded = [[torch.nn.functional.pad(block, (0, width - block.shape[1])) for block in blocks] for blocks in found]
    return torch.stack([torch.stack(blocks) for blocks in padded])


def blocks_of(posterior: Posterior) -> int:
    """How many blocks `reduction_of` keeps."""
    if isinstance(posterior, WithPriorClasses):
        return len(posterior.prior_mean)
    assert isinstance(posterior, WeightPosterior)
    return len(posterior.weights) * (1 if posterior.shared else posterior.weights.shape[1])


def _block(factor: Tensor, projection: Tensor | None) -> Tensor:
    """From the lower Cholesky factor (R, R) of A."""
    vectors, singular, _ = torch.linalg.svd(factor)
    share = 1 - singular.square().reciprocal()
    kept = share > _NOTHING
    reduction = vectors[:, kept] * share[kept].sqrt()
    return reduction if projection is None else projection @ reduction

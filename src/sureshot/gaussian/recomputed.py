"""Posteriors over weights that keep no factor they can recompute.

With features ``Phi`` (N, R) and diagonal sites of precision ``W_c`` the posterior of class c's weights is Gaussian
with precision ``A_c = I + Phi' W_c Phi``. Keeping one R x R factor for each class costs ``C R^2`` numbers, far more
than the data; so these posteriors keep features and mean weights, and factorise a class only when its variance is
asked for. Classes are visited in a Python loop on purpose: on a CPU one Cholesky of a large block is faster than a
batched one, and memory stays at one block. Under a softmax most rows carry next to nothing about most classes
(probability near 0 or 1); those that together carry less than a stated amount are left out of a class's block.

============================  ==================================================================
`SitePosterior`               site precisions are stored (mean field, Gibbs, label regression)
`SoftmaxPosterior`            site precisions follow from the mode (Laplace): nothing is stored
`FactorPosterior`             one factor for each class (natural gradients with few inducing inputs)
`WithPriorClasses`            any of them, joined by classes that have no rows yet
============================  ==================================================================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

# Rows are left out of a class's block as long as their precisions times prior variances *sum* to less than this: it
# changes that class's posterior variances, anywhere, by less than one part in a thousand.
NEGLIGIBLE_INFORMATION = 1e-3


class WeightPosterior(ABC):
    """A posterior of the weights of every class, for one or more chains.

    Attributes
    ----------
    features : Tensor (N, R)
        Features of the training rows.
    weights : Tensor (S, C, R)
        Mean weights; S chains, 1 for deterministic inference.
    prior_mean : Tensor (C,)
    """

    features: Tensor
    weights: Tensor
    prior_mean: Tensor

    def latent_mean(self, features: Tensor) -> Tensor:
        """Posterior means at query features (Q, R), shape (S, C, Q)."""
        return self.prior_mean[:, None] + self.weights @ features.mT

    @abstractmethod
    def latent_variance(self, features: Tensor, residual: Tensor, classes: Tensor | None = None) -> Tensor:
        """Posterior variances at query features (Q, R).

        Parameters
        ----------
        residual : Tensor (Q,)
            Prior variance outside the features' span.
        classes : Tensor (Q,), optional
            One class for each query: only its variance is given, (S, Q); else all, (S, C, Q).
        """

    @abstractmethod
    def latent_spread(self, features: Tensor, residual: Tensor) -> Tensor:
        """Variances (S, C, Q) at query features (Q, R), or covariances over the classes (S, Q, C, C) if they have any.

        Parameters
        ----------
        residual : Tensor (Q,)
            As in `latent_variance`.
        """


class BlockPosterior(WeightPosterior):
    """Classes independent given the sites: one R x R block for each."""

    shared: bool
    """Whether the classes have one block in common."""

    @abstractmethod
    def factor(self, chain: int, c: int) -> Tensor:
        """Lower Cholesky factor of class c's posterior precision, (R, R)."""

    def latent_variance(self, features: Tensor, residual: Tensor, classes: Tensor | None = None) -> Tensor:
        """See `WeightPosterior.latent_variance`."""
        n_chains, n_classes = self.weights.shape[:2]
        shape = (n_chains, n_classes, len(features)) if classes is None else (n_chains, len(features))
        result = features.new_empty(shape)
        for chain in range(n_chains):
            if self.shared:
                result[chain] = self.block_variance(chain, 0, features)
                continue
            for c in range(n_classes):
                if classes is None:
                    result[chain, c] = self.block_variance(chain, c, features)
                elif bool((rows := classes == c).any()):
                    result[chain, rows] = self.block_variance(chain, c, features[rows])
        return result + residual

    def latent_spread(self, features: Tensor, residual: Tensor) -> Tensor:
        """See `WeightPosterior.latent_spread`: variances."""
        return self.latent_variance(features, residual)

    def block_variance(self, chain: int, c: int, features: Tensor) -> Tensor:
        """Variance of class c inside the features' span, (Q,)."""
        return torch.linalg.solve_triangular(self.factor(chain, c), features.mT, upper=False).square().sum(0)


@dataclass(frozen=True)
class SitePosterior(BlockPosterior):
    """Blocks from stored site precisions.

    Attributes
    ----------
    precision : Tensor (S, C or 1, N)
        Size 1 for classes that share their sites' precision.
    """

    features: Tensor
    weights: Tensor
    prior_mean: Tensor
    precision: Tensor

    @property
    def shared(self) -> bool:  # type: ignore[override]
        """Whether the classes have one block in common."""
        return self.precision.shape[1] == 1

    def factor(self, chain: int, c: int) -> Tensor:
        """See `BlockPosterior.factor`."""
        return weight_precision_factor(self.features, self.precision[chain, c])


@dataclass(frozen=True)
class SoftmaxPosterior(BlockPosterior):
    """Laplace's posterior of the softmax likelihood: precisions ``s p_c (1 - p_c) / T^2`` at the mode.

    Those of them that carry next to nothing are left out; see `without_negligible`.

    Attributes
    ----------
    row_weight : Tensor (N,)
    present : Tensor (C,) bool
        Classes that take part in the softmax; the others have no rows and keep their prior.
    temperature : float
    """

    features: Tensor
    weights: Tensor
    prior_mean: Tensor
    row_weight: Tensor
    present: Tensor
    temperature: float
    shared = False

    @property
    def precision(self) -> Tensor:
        """Site precisions (1, C, N), recomputed."""
        latent = self.latent_mean(self.features)[0] / self.temperature
        p = torch.softmax(latent.masked_fill(~self.present[:, None], -torch.inf), dim=0)
        return without_negligible(self.features, self.row_weight * p * (1 - p) / self.temperature**2)[None]

    def latent_variance(self, features: Tensor, residual: Tensor, classes: Tensor | None = None) -> Tensor:
        """See `WeightPosterior.latent_variance`."""
        return self.with_precision().latent_variance(features, residual, classes)

    def factor(self, chain: int, c: int) -> Tensor:
        """See `BlockPosterior.factor`."""
        return weight_precision_factor(self.features, self.precision[chain, c])

    def with_precision(self) -> SitePosterior:
        """The same posterior with its precisions held, for work that visits many classes."""
        return SitePosterior(self.features, self.weights, self.prior_mean, self.precision)


@dataclass(frozen=True)
class FactorPosterior(BlockPosterior):
    """Blocks that cannot be recomputed from sites.

    Attributes
    ----------
    factors : Tensor (S, C, R, R)
        Lower Cholesky factors of the posterior precisions.
    """

    features: Tensor
    weights: Tensor
    prior_mean: Tensor
    factors: Tensor
    shared = False

    def factor(self, chain: int, c: int) -> Tensor:
        """See `BlockPosterior.factor`."""
        return self.factors[chain, c]


@dataclass(frozen=True)
class WithPriorClasses(WeightPosterior):
    """A posterior over some classes, joined by classes that keep their prior.

    Attributes
    ----------
    inner : WeightPosterior
        Over the classes with rows.
    present : Tensor (C_present,) int64
        Their places.
    """

    features: Tensor
    weights: Tensor
    prior_mean: Tensor
    inner: WeightPosterior
    present: Tensor

    def latent_variance(self, features: Tensor, residual: Tensor, classes: Tensor | None = None) -> Tensor:
        """See `WeightPosterior.latent_variance`."""
        prior = features.square().sum(-1) + residual
        variance = prior.expand(*self.weights.shape[:2], -1).clone()
        variance[:, self.present] = self.inner.latent_variance(features, residual)
        if classes is None:
            return variance
        return variance.gather(1, classes.expand(len(variance), 1, -1)).squeeze(1)

    def latent_spread(self, features: Tensor, residual: Tensor) -> Tensor:
        """See `WeightPosterior.latent_spread`; the other classes are independent of those with rows."""
        inner = self.inner.latent_spread(features, residual)
        if inner.dim() == 3:
            return self.latent_variance(features, residual)
        prior = features.square().sum(-1) + residual
        spread = torch.diag_embed(prior[:, None].expand(len(inner), -1, self.weights.shape[1]))
        spread[..., self.present.unsqueeze(-1), self.present] = inner
        return spread


class TrainingMoments(NamedTuple):
    """What one visit to every class's block gives."""

    variance: Tensor  # (C, N), posterior variances at the training rows
    log_det: Tensor  # scalar, sum_c log|A_c|


def training_moments(features: Tensor, precision: Tensor, n_classes: int, only_informative: bool) -> TrainingMoments:
    """Training variances and log determinants, each class factorised once.

    Parameters
    ----------
    features : Tensor (N, R)
    precision : Tensor (C or 1, N)
        Size 1 for classes that share it.
    only_informative : bool
        Skip the posterior variance of rows whose site carries no information on a class and give their prior variance:
        leave-one-out means move by less than `NEGLIGIBLE_INFORMATION` of it, and with many classes most of the work is
        saved. For rules that read the means alone.
    """
    prior_variance = features.square().sum(-1)
    blocks = len(precision)
    variance = prior_variance.expand(blocks, -1).clone()
    log_det = features.new_zeros(())
    for c in range(blocks):
        factor = weight_precision_factor(features, precision[c])
        log_det = log_det + 2 * factor.diagonal().log().sum()
        rows = precision[c] * prior_variance > NEGLIGIBLE_INFORMATION if only_informative else slice(None)
        inside = torch.linalg.solve_triangular(factor, features[rows].mT, upper=False)
        variance[c, rows] = inside.square().sum(0)
    if blocks == 1:
        return TrainingMoments(variance.expand(n_classes, -1), n_classes * log_det)
    return TrainingMoments(variance, log_det)


def leave_one_out(mean: Tensor, variance: Tensor, precision: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """Means and variances with each row's own site removed, from posterior moments and sites, each (C, N)."""
    kept = (1 - precision * variance).clamp_min(1e-12)
    return (mean - shift * variance) / kept, variance / kept


def without_negligible(features: Tensor, precision: Tensor) -> Tensor:
    """The precisions (C, N) with the weakest of each class set to zero, `NEGLIGIBLE_INFORMATION` of them in all.

    Leaving out rows of precisions w changes ``A = I + Phi' W Phi`` by no more, in any direction, than the sum of
    ``w |phi|^2`` over them, and ``A >= I``.
    """
    information, order = (precision * features.square().sum(-1)).sort(dim=-1, stable=True)
    negligible = (information.cumsum(-1) < NEGLIGIBLE_INFORMATION).gather(-1, order.argsort(dim=-1))
    return precision.masked_fill(negligible, 0)


def weight_precision_factor(features: Tensor, precision: Tensor) -> Tensor:
    """Lower Cholesky factor of ``I + Phi' diag(precision) Phi`` for one class, (R, R); rows of precision 0 are free."""
    active = precision > 0
    if bool(active.all()):
        scaled = features * precision.sqrt()[:, None]
    else:
        scaled = features[active] * precision[active].sqrt()[:, None]
    gram = scaled.mT @ scaled
    gram.diagonal().add_(1)
    return torch.linalg.cholesky(gram)

"""Posteriors over weights that keep no factor they can recompute: what estimators predict from.

With features ``Phi`` (N, R) and diagonal sites of precision ``W_c`` the posterior of class c's weights is Gaussian
with precision ``A_c = I + Phi' W_c Phi``. Keeping one R x R factor for each class costs ``C R^2`` numbers, far more
than the data; so these posteriors keep features and mean weights, and factorise a class only when its variance is
asked for: in a Python loop, as on a CPU one Cholesky of a large block is faster than a batched one. Under a softmax
rows that together carry less than a stated amount about a class are left out of its block.

==========================  ==================================================================
`SiteWeightPosterior`       site precisions are stored (mean field, Gibbs, least squares)
`SoftmaxWeightPosterior`    site precisions follow from the mode (Laplace): nothing is stored
`FactorWeightPosterior`     one factor for each class (natural gradients with few inducing inputs)
==========================  ==================================================================
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from sureshot.gaussian.posterior import LatentMoments, Posterior

# Rows are left out of a class's block as long as their precisions times prior variances *sum* to less than this: it
# changes that class's posterior variances, anywhere, by less than one part in a thousand.
NEGLIGIBLE_INFORMATION = 1e-3
# Blocks of so many classes or more, whose largest eigenvalue is no larger, are factorised in single precision.
MANY_BLOCKS, MOST_IN_SINGLE = 50, 1e3
SMALLEST_BLOCK = 64  # columns of a product below which a call costs more than half of it


class WeightPosterior(Posterior):
    """A posterior of the weights of every class, independent between classes, for one or more chains."""

    features: Tensor  # (N, R), of the training rows
    weights: Tensor  # (S, C, R), means; S chains, 1 for deterministic inference
    prior_mean: Tensor  # (C,)

    shared: bool
    """Whether the classes have one block in common."""

    @abstractmethod
    def factor(self, chain: int, c: int) -> Tensor:
        """Lower Cholesky factor of class c's posterior precision, (R, R)."""

    @property
    def training_mean(self) -> Tensor:
        """Means at the training rows, (S, C, N)."""
        return self.query_mean(self.features)

    def query(self, cross: Tensor, prior_variance: Tensor) -> LatentMoments:
        """Features (Q, R) or (1, Q, R), means and variances (S, C, Q)."""
        return LatentMoments(self.query_mean(cross), self.query_variance(cross, prior_variance))

    def query_mean(self, cross: Tensor) -> Tensor:
        return self.prior_mean[:, None] + self.weights @ cross.mT

    def query_variance(self, cross: Tensor, prior_variance: Tensor, classes: Tensor | None = None) -> Tensor:
        features = cross.reshape(cross.shape[-2:])
        residual = (prior_variance - features.square().sum(-1)).clamp_min(0)
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

    def block_variance(self, chain: int, c: int, features: Tensor) -> Tensor:
        """Variance of class c inside the features' span, (Q,)."""
        return _row_variances(self.factor(chain, c), features)


@dataclass(frozen=True)
class SiteWeightPosterior(WeightPosterior):
    """Blocks from stored site precisions."""

    features: Tensor
    weights: Tensor
    prior_mean: Tensor
    precision: Tensor  # (S, C or 1, N), size 1 for classes that share their sites' precision

    @property
    def shared(self) -> bool:  # type: ignore[override]
        """Whether the classes have one block in common."""
        return self.precision.shape[1] == 1

    def factor(self, chain: int, c: int) -> Tensor:
        return weight_precision_factor(self.features, self.precision[chain, c])


@dataclass(frozen=True)
class SoftmaxWeightPosterior(WeightPosterior):
    """Laplace's posterior of the softmax likelihood: precisions ``s p_c (1 - p_c) / T^2`` at the mode.

    Those of them that carry next to nothing are left out; see `without_negligible`.
    """

    features: Tensor
    weights: Tensor
    prior_mean: Tensor
    row_weight: Tensor  # (N,)
    temperature: float
    shared = False

    @property
    def precision(self) -> Tensor:
        """Site precisions (1, C, N), recomputed."""
        p = torch.softmax(self.training_mean[0] / self.temperature, dim=0)
        return without_negligible(self.features, self.row_weight * p * (1 - p) / self.temperature**2)[None]

    def query_variance(self, cross: Tensor, prior_variance: Tensor, classes: Tensor | None = None) -> Tensor:
        return self.with_precision().query_variance(cross, prior_variance, classes)

    def factor(self, chain: int, c: int) -> Tensor:
        return weight_precision_factor(self.features, self.precision[chain, c])

    def with_precision(self) -> SiteWeightPosterior:
        """The same posterior with its precisions held, for work that visits many classes."""
        return SiteWeightPosterior(self.features, self.weights, self.prior_mean, self.precision)


@dataclass(frozen=True)
class FactorWeightPosterior(WeightPosterior):
    """Blocks that cannot be recomputed from sites."""

    features: Tensor
    weights: Tensor
    prior_mean: Tensor
    factors: Tensor  # (S, C, R, R), lower Cholesky factors of the posterior precisions
    shared = False

    def factor(self, chain: int, c: int) -> Tensor:
        return self.factors[chain, c]


class TrainingMoments(NamedTuple):
    """What one visit to every class's block gives."""

    variance: Tensor  # (C, N), posterior variances at the training rows
    log_det: Tensor  # scalar, sum_c log|A_c|


def training_moments(
    features: Tensor,  # (N, R)
    precision: Tensor,  # (C or 1, N), size 1 for classes that share it
    n_classes: int,
    only_informative: bool,
) -> TrainingMoments:
    """Training variances and log determinants, each class factorised once.

    With ``only_informative``, for rules that read the means alone, rows whose site carries no information on a class
    are given their prior variance: leave-one-out means move by less than `NEGLIGIBLE_INFORMATION` of it, and with many
    classes most of the work is saved. What is left is done in single precision where that is as good, for many classes.
    """
    prior_variance = features.square().sum(-1)
    blocks = len(precision)
    information = precision * prior_variance
    variance = prior_variance.expand(blocks, -1).clone()
    log_det = features.new_zeros(())
    # Eigenvalues of A lie between 1 and 1 plus all information, so single precision leaves four digits at least.
    coarse = only_informative and blocks >= MANY_BLOCKS and float(information.sum(-1).max()) < MOST_IN_SINGLE
    rows_of, weight = (features.float(), precision.float()) if coarse else (features, precision)
    for c in range(blocks):
        factor = weight_precision_factor(rows_of, weight[c])
        log_det = log_det + 2 * factor.diagonal().to(log_det).log().sum()
        rows = information[c] > NEGLIGIBLE_INFORMATION if only_informative else slice(None)
        variance[c, rows] = _row_variances(factor, rows_of[rows]).to(variance)
    if blocks == 1:
        return TrainingMoments(variance.expand(n_classes, -1), n_classes * log_det)
    return TrainingMoments(variance, log_det)


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
    if 4 * int(active.sum()) > 3 * len(active):  # taking a few rows out costs more than their zeros
        scaled = features * precision.sqrt()[:, None]
    else:
        scaled = features[active] * precision[active].sqrt()[:, None]
    gram = _lower_gram(scaled)
    gram.diagonal().add_(1)
    return torch.linalg.cholesky(gram)


def _row_variances(factor: Tensor, rows: Tensor) -> Tensor:
    """``|L^-1 x|^2`` of rows x (N, R), (N,).

    One factor is solved from the right, as rows lie in memory: half to nine tenths of the time from the left. For
    batches of factors nothing is gained.
    """
    return torch.linalg.solve_triangular(factor.mT, rows, upper=True, left=False).square_().sum(-1)


def _lower_gram(rows: Tensor) -> Tensor:
    """``X' X`` (R, R), of which only the lower triangle is right: with four blocks of columns 5/8 of the products."""
    rank = rows.shape[1]
    if rank < 4 * SMALLEST_BLOCK:
        return rows.mT @ rows
    gram = rows.new_zeros(rank, rank)
    for block in range(4):
        first, last = block * rank // 4, (block + 1) * rank // 4
        gram[first:last, :last] = rows[:, first:last].mT @ rows[:, :last]
    return gram

"""The Gibbs posterior of the one-vs-each likelihood: a mixture of the chains' Gaussians.

Given one chain's Polya-Gamma variables the latents are Gaussian with classes coupled by a star at every datum, so
(co)variances come from the structured solver of `structure`. In function space it is differentiable in the kernel and
the prior means; in weight space, where estimators predict from it, the means are linear in the features as always.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.gaussian.posterior import LatentMoments, Posterior
from sureshot.inference.one_vs_each.gibbs import OneVsEachGibbsResult, run_one_vs_each_gibbs
from sureshot.inference.one_vs_each.query import differentiable_query
from sureshot.inference.one_vs_each.structure import PairPrior, Pairs


@dataclass(frozen=True)
class OneVsEachPosterior(Posterior):
    """In function space, for T tasks; see `Posterior`. Moments are (S, T, C, Q) and (S, T, Q, C, C)."""

    result: OneVsEachGibbsResult
    gram: Tensor  # (T, N, N)
    class_mean: Tensor  # (T, C)

    def query(self, cross: Tensor, prior_variance: Tensor) -> LatentMoments:
        """One kernel for all classes, (T, 1, N, Q) and (T, 1, Q)."""
        between, diagonal = cross.squeeze(-3), prior_variance.squeeze(-2)
        if not self._learning(between, diagonal):
            return LatentMoments(*self.result.predict_latents(between, diagonal))
        return self._differentiable(between, diagonal)

    def query_mean(self, cross: Tensor) -> Tensor:
        """Where gradients are wanted it costs as much as `query`."""
        between = cross.squeeze(-3)
        if not self._learning(between):
            return self.class_mean.unsqueeze(-1) + self.result.dual() @ between
        return self._differentiable(between, between.new_zeros(between.shape[:-2] + between.shape[-1:])).mean

    def _learning(self, *queries: Tensor) -> bool:
        leaves = (self.gram, self.class_mean, *queries)
        return torch.is_grad_enabled() and any(leaf.requires_grad for leaf in leaves)

    def _differentiable(self, between: Tensor, diagonal: Tensor) -> LatentMoments:
        leaves = (self.gram, self.class_mean, between, diagonal)
        mean, covariance = differentiable_query(*leaves, self.result.prior, self.result.last)
        return LatentMoments(mean.transpose(0, 1), covariance.transpose(0, 1))


@dataclass(frozen=True)
class OneVsEachWeightPosterior(Posterior):
    """In weight space; see `Posterior`. Moments are (S, C, Q) and (S, Q, C, C)."""

    features: Tensor  # (N, R), of the training rows
    weights: Tensor  # (S, C, R), means
    prior_mean: Tensor  # (C,)
    result: OneVsEachGibbsResult
    y: Tensor  # (N,)
    row_weight: Tensor  # (N,), the whole-number weights that the chains saw

    @classmethod
    def of_chains(
        cls, features: Tensor, result: OneVsEachGibbsResult, prior_mean: float, y: Tensor, row_weight: Tensor
    ) -> OneVsEachWeightPosterior:
        """The posterior of finished chains on ``K = Phi Phi'``."""
        mean = features.new_full((result.omega.shape[-2],), prior_mean)
        return cls(features, result.dual() @ features, mean, result, y, row_weight)

    def query(self, cross: Tensor, prior_variance: Tensor) -> LatentMoments:
        """Features (Q, R) or (1, Q, R)."""
        queries = cross.reshape(cross.shape[-2:])
        diagonal = prior_variance.reshape(-1)
        covariance = self.result.predict_latents(self.features @ queries.mT, diagonal)[1]
        return LatentMoments(self.query_mean(cross), covariance)

    def query_mean(self, cross: Tensor) -> Tensor:
        return self.prior_mean[:, None] + self.weights @ cross.mT


def sample_one_vs_each(
    features: Tensor,  # (N, R)
    y: Tensor,  # (N,)
    n_classes: int,
    weight: Tensor,  # (N,), whole numbers
    prior_mean: float,
    n_chains: int,
    n_sweeps: int,
    generator: torch.Generator | None,
) -> OneVsEachWeightPosterior:
    """Run the chains on ``K = Phi Phi'`` and express their means as weights."""
    gram = features @ features.mT
    result = run_one_vs_each_gibbs(gram, prior_mean, y, n_classes, n_chains, n_sweeps, weight, generator)
    return OneVsEachWeightPosterior.of_chains(features, result, prior_mean, y, weight)


def restore_chains(
    features: Tensor, y: Tensor, n_classes: int, weight: Tensor, prior_mean: float, last: Tensor
) -> OneVsEachGibbsResult:
    """The result of finished chains from their last states ``result.last`` (1, S, C, R), as read from a file."""
    pairs = Pairs.of_labels(y[None], n_classes, weight[None], features.dtype)
    class_mean = features.new_full((1, n_classes), prior_mean)
    prior = PairPrior.of_kernel((features @ features.mT)[None], class_mean, pairs, "auto")
    omega = pairs.to_classes(last * (pairs.count.unsqueeze(1) > 0), len(y))[0]
    return OneVsEachGibbsResult(omega, None, prior, last, torch.Size())

"""The Gibbs posterior of the one-vs-each likelihood in weight space.

Given one chain's Polya-Gamma variables the latents are Gaussian with classes coupled by a star at every datum, so
variances come from the structured solver of `structure`; the means are linear in the features as always.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.gaussian.recomputed import WeightPosterior
from sureshot.inference.one_vs_each.gibbs import OneVsEachGibbsResult, run_one_vs_each_gibbs
from sureshot.inference.one_vs_each.structure import PairPrior, Pairs


@dataclass(frozen=True)
class OneVsEachPosterior(WeightPosterior):
    """A mixture of the chains' Gaussians; see `WeightPosterior`.

    Attributes
    ----------
    result : OneVsEachGibbsResult
        The chains' last states.
    y, row_weight : Tensor (N,)
        The labels and whole-number weights the chains saw.
    """

    features: Tensor
    weights: Tensor
    prior_mean: Tensor
    result: OneVsEachGibbsResult
    y: Tensor
    row_weight: Tensor

    def latent_spread(self, features: Tensor, residual: Tensor) -> Tensor:
        """See `WeightPosterior.latent_spread`: covariances over the classes, (S, Q, C, C)."""
        covariance = self.result.predict_latents(self.features @ features.mT, features.square().sum(-1))[1]
        identity = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
        return covariance + residual[:, None, None] * identity

    def latent_variance(self, features: Tensor, residual: Tensor, classes: Tensor | None = None) -> Tensor:
        """See `WeightPosterior.latent_variance`."""
        variance = self.latent_spread(features, residual).diagonal(dim1=-2, dim2=-1).mT.clamp_min(0)
        if classes is None:
            return variance
        return variance.gather(1, classes.expand(len(variance), 1, -1)).squeeze(1)


def sample_one_vs_each(
    features: Tensor,
    y: Tensor,
    n_classes: int,
    weight: Tensor,
    prior_mean: float,
    n_chains: int,
    n_sweeps: int,
    generator: torch.Generator | None,
) -> OneVsEachPosterior:
    """Run the chains on ``K = Phi Phi'`` and express their means as weights.

    Parameters
    ----------
    features : Tensor (N, R)
    y, weight : Tensor (N,)
        Weights must be whole numbers.
    """
    result = run_one_vs_each_gibbs(
        features @ features.mT, prior_mean, y, n_classes, n_chains, n_sweeps, weight, generator
    )
    return one_vs_each_posterior(features, result, prior_mean, y, weight)


def restore_chains(
    features: Tensor, y: Tensor, n_classes: int, weight: Tensor, prior_mean: float, last: Tensor
) -> OneVsEachGibbsResult:
    """The result of finished chains from their last states ``result.last`` (1, S, C, R), as read from a file."""
    pairs = Pairs.of_labels(y[None], n_classes, weight[None], features.dtype)
    class_mean = features.new_full((1, n_classes), prior_mean)
    prior = PairPrior.of_kernel((features @ features.mT)[None], class_mean, pairs, "auto")
    omega = pairs.to_classes(last * (pairs.count.unsqueeze(1) > 0), len(y))[0]
    return OneVsEachGibbsResult(omega, None, None, prior, last, torch.Size())


def one_vs_each_posterior(
    features: Tensor, result: OneVsEachGibbsResult, prior_mean: float, y: Tensor, weight: Tensor
) -> OneVsEachPosterior:
    """The posterior of finished chains, in weight space."""
    mean = features.new_full((result.omega.shape[-2],), prior_mean)
    return OneVsEachPosterior(features, result.dual() @ features, mean, result, y, weight)

"""What a posterior of latents is unsure of: the entropy of its mean probabilities, and how much of it would remain.

An average over fixed points of the posterior, so that equal questions get equal answers. Whichever estimator asks, and
by whichever likelihood its latents become probabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from sureshot.likelihoods.quadrature import displacement, standard_normal_points

N_DRAWS, DRAWS_AT_ONCE = 128, 16


def entropies(
    mean: Tensor,  # (S, L, Q), of the latents given each of S chains
    spread: Tensor,  # variances (S, L, Q), or covariances (S, Q, L, L)
    probabilities: Callable[[Tensor], Tensor],  # from latents (P, L, Q) to (P, C, Q)
) -> tuple[Tensor, Tensor]:
    """Total and aleatoric uncertainty in nats, each (Q,).

    The first is the entropy of the mean probabilities, the second the mean entropy of the probabilities, over all
    chains.
    """
    average, aleatoric = average_and_entropy(mean, spread, probabilities)
    return entropy(average, 0), aleatoric


def average_and_entropy(
    mean: Tensor,  # this and the next two as in `entropies`
    spread: Tensor,
    probabilities: Callable[[Tensor], Tensor],
    weights: Sequence[float] | None = None,  # S, of the chains, which sum to one; equal by default
) -> tuple[Tensor, Tensor]:
    """Mean probabilities (C, Q) and the mean entropy of probabilities (Q,)."""
    points = standard_normal_points(mean.shape[1], N_DRAWS, mean.dtype, mean.device)  # (P, L)
    weights = [1 / len(mean)] * len(mean) if weights is None else weights
    average, aleatoric = mean.new_zeros(()), mean.new_zeros(())
    for weight, chain_mean, chain_spread in zip(weights, mean, spread, strict=True):
        share = weight / len(points)
        displaced = displacement(chain_mean, chain_spread)
        for block in points.split(DRAWS_AT_ONCE):
            drawn = probabilities(chain_mean + displaced(block))
            average = average + share * drawn.sum(0)
            aleatoric = aleatoric + share * entropy(drawn, 1).sum(0)
    return average, aleatoric


def entropy(probabilities: Tensor, dim: int) -> Tensor:
    """Entropy in nats of the classes at `dim`."""
    return torch.special.entr(probabilities).sum(dim)

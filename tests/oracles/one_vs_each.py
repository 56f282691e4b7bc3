"""One-vs-each given its Polya-Gamma variables, by dense matrices over all pairs of a row and a rival class."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from experiments.pairwise import other_classes, pairwise_differences, pairwise_gram
from sureshot.gaussian.gram import GramPrior
from sureshot.gaussian.sites import Sites


def pairwise_mean(prior_mean: Tensor, y: Tensor, n_classes: int) -> Tensor:
    """Prior mean of the differences, (..., M), from a scalar or one mean for each class (..., C)."""
    if prior_mean.dim() == 0:  # a mean common to the classes cancels
        return prior_mean.new_zeros(*y.shape[:-1], y.shape[-1] * (n_classes - 1))
    coefficients = pairwise_differences(y, n_classes, prior_mean.dtype).flatten(-3, -2)
    return (coefficients @ prior_mean.unsqueeze(-1)).squeeze(-1)


def collapsed_evidence(
    Kxx: Tensor,  # (..., N, N)
    prior_mean: Tensor,  # scalar or (..., C)
    y: Tensor,  # (..., N)
    n_classes: int,
    omega: Tensor,  # (..., C, N), zero at each datum's own class
    weight: Tensor | None = None,  # (..., N)
) -> Tensor:
    """``log p(Y | omega)`` of the one-vs-each model, (...), by one matrix over all pairs; differentiable."""
    counts = torch.ones(y.shape, dtype=omega.dtype) if weight is None else weight
    prior = GramPrior(
        pairwise_gram(Kxx, y, n_classes).unsqueeze(-3), pairwise_mean(prior_mean, y, n_classes).unsqueeze(-2)
    )
    others = other_classes(y, n_classes).expand(*omega.shape[:-2], y.shape[-1], n_classes - 1)
    precision = omega.mT.gather(-1, others).flatten(-2).unsqueeze(-2)  # (..., 1, M)
    shift = 0.5 * counts.repeat_interleave(n_classes - 1, -1).unsqueeze(-2)
    evidence = prior.condition(Sites(precision, shift.expand_as(precision))).log_evidence()
    return evidence - math.log(2) * (n_classes - 1) * counts.sum(-1)

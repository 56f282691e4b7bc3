"""From latents at queries to class probabilities, chains averaged.

The rule is an argument because it changes results: for the same one-vs-each posteriors of synthetic one-shot tasks
the mean confidence is .28 by the predictive integral and .61 by what was released with the paper. Besides the
likelihood's own rules (`integral`, `expected_log`, `plug_in`), whose probabilities are averaged over chains
(one-vs-each can pool its integrals instead, see `OneVsEach`), there is `released_expected_log`, which reproduces the
published one-vs-each numbers: logarithms are averaged over chains, and the variance of a difference stands where its
standard deviation belongs.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from sureshot.likelihoods.base import Likelihood
from sureshot.likelihoods.one_vs_each import OneVsEach
from sureshot.likelihoods.quadrature import expected_log_sigmoid, is_full_covariance

TaskRule = Literal["integral", "expected_log", "plug_in", "released_expected_log"]
TASK_RULES: tuple[str, ...] = get_args(TaskRule)


def class_probabilities(
    likelihood: Likelihood,
    mean: Tensor,  # (S, T, C, Q)
    covariance: Tensor,  # (S, T, C, Q) or (S, T, Q, C, C)
    rule: TaskRule,
) -> Tensor:
    """Class probabilities (T, C, Q) from the latents of S chains."""
    if rule == "released_expected_log":
        if not isinstance(likelihood, OneVsEach):
            raise ValueError(f"the rule {rule!r} belongs to one-vs-each, not to {likelihood.name!r}")
        return _released(mean, covariance)
    return likelihood.predict_mixture(mean, covariance, rule)


def temper(probabilities: Tensor, temperature: Tensor, dim: int = -1) -> Tensor:
    """``p^(1 / temperature)``, normalised over the classes at `dim`; differentiable."""
    if bool((temperature == 1).all()):
        return probabilities
    logs = probabilities.clamp_min(torch.finfo(probabilities.dtype).tiny).log()
    return torch.softmax(logs / temperature, dim)


def _released(mean: Tensor, covariance: Tensor) -> Tensor:
    if is_full_covariance(mean, covariance):
        own = covariance.diagonal(dim1=-2, dim2=-1)  # (S, T, Q, C)
        spread = (own.unsqueeze(-1) + own.unsqueeze(-2) - 2 * covariance).movedim(-3, -1)
    else:
        spread = covariance.unsqueeze(-2) + covariance.unsqueeze(-3)
    centre = mean.unsqueeze(-2) - mean.unsqueeze(-3)  # (S, T, C, C, Q)
    n_classes = mean.shape[-2]
    others = 1 - torch.eye(n_classes, dtype=mean.dtype, device=mean.device).unsqueeze(-1)
    logs = (expected_log_sigmoid(centre, spread.clamp_min(0) ** 2) * others).sum(-2)
    return torch.softmax(logs.mean(0), -2)

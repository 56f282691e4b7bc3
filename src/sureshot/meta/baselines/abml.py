"""Amortised Bayesian meta-learning: a Gaussian over the network's weights, adapted to each task by a few steps.

The start is a Gaussian ``p``: a mean and a deviation for every weight, a mean alone for biases and batch normalisation.
A task's Gaussian ``q`` starts there and descends the mean cross-entropy of its support under reparametrised draws plus
``inner_weight`` times KL(q || p), along mean and log deviation. Meta-training descends the cross-entropy of the queries
averaged over draws from ``q``, plus ``outer_weight`` times KL(q || p) less the logarithm of the hyper-prior of ``p``:
standard normal means, and precisions from a Gamma distribution of shape 1 and rate 0.01. The hyper-prior counts once
for all training tasks, so each bears its ``1 / hyper_tasks``.

Inner steps settle only while ``inner_rate * inner_weight`` is less than twice the squared deviation of every weight.
Weights, draws and filters (32; an option of the backbone) are those of Snell and Zemel, who state neither rate nor
initial deviation, and use local reparametrisation and flipout where here one draw serves all rows and tasks.

References: Ravi and Beatson (2019), Amortized Bayesian meta-learning, algorithms 1 and 2; Snell and Zemel (2021),
appendix G.2.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from sureshot.meta.gradient.inner_loop import Descent, Parameters
from sureshot.meta.gradient.learner import SPREAD, GradientLearner, QueryStatistics, gaussians
from sureshot.networks.backbones.base import Backbone
from sureshot.networks.precision import Precision
from sureshot.ranges import check_counts, check_positive

_RATE = 0.01  # of the hyper-prior of precisions


class ABML(GradientLearner):
    """Amortised Bayesian meta-learning (Ravi & Beatson 2019) as compared by Snell & Zemel (2021)."""

    name = "abml"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"paper": {"way": 5, "query_statistics": "query"}}

    def __init__(
        self,
        backbone: Backbone,
        *,
        inner_steps: int = 4,
        inner_rate: float = 0.1,
        draws: int = 5,
        inner_weight: float = 0.01,  # of the divergence, beside a mean over rows
        outer_weight: float = 0.001,
        hyper_tasks: int = 60_000,  # training tasks that the hyper-prior is shared by
        initial_deviation: float = 0.05,
        way: int | None = None,
        query_statistics: QueryStatistics = "support",
        seed: int = 0,
        precision: Precision = "float32",
    ) -> None:
        descent = Descent(inner_steps, inner_rate)
        super().__init__(backbone, descent, descent, way, query_statistics, precision, seed)
        check_counts(1, draws=draws, hyper_tasks=hyper_tasks)
        check_positive(initial_deviation=initial_deviation)
        if min(inner_weight, outer_weight) < 0:
            raise ValueError(f"inner_weight and outer_weight must not be negative, got {inner_weight}, {outer_weight}")
        self.draws, self.inner_weight, self.outer_weight = draws, inner_weight, outer_weight
        self.hyper_tasks = hyper_tasks
        # Without `way` the classes share the deviations of the last layer's weights.
        weights = {name: part for name, part in self.network_start(way or 1).items() if part.dim() > 1}
        self._weights = tuple(weights)
        filled = (torch.full(part.shape, math.log(initial_deviation), dtype=torch.float32) for part in weights.values())
        self.log_deviations = nn.ParameterList(filled)

    def start(self, n_classes: int) -> Parameters:
        """Means by the names of the network's parts, and log deviations of the weights."""
        means = self.network_start(n_classes)
        spread = zip(self._weights, self.log_deviations, strict=True)
        return means | {SPREAD + name: value.expand_as(means[name]) for name, value in spread}

    def penalty(self, start: Parameters, parameters: Parameters, inner: bool) -> Tensor:
        if inner:
            return self.inner_weight * divergence(parameters, start)
        hyper = minus_log_hyper_prior(self.start(self.way or 1)) / self.hyper_tasks  # what classes share counts once
        return self.outer_weight * (divergence(parameters, start) + hyper)


def divergence(q: Parameters, p: Parameters) -> Tensor:
    """KL(q || p) of the Gaussians over weights, (), in nats; parameters as `ABML.start` names them."""
    parts = []
    for name in gaussians(p):
        ratio = q[SPREAD + name] - p[SPREAD + name]
        shift = (q[name] - p[name]) * (-p[SPREAD + name]).exp()
        parts.append(((2 * ratio).exp() + shift.square() - 1).sum() / 2 - ratio.sum())
    return torch.stack(parts).sum()


def minus_log_hyper_prior(p: Parameters) -> Tensor:
    """Up to a constant: standard normal means of weights, Gamma precisions of shape 1 and rate 0.01."""
    of_weights = ((p[name], (-2 * p[SPREAD + name]).exp()) for name in gaussians(p))
    return torch.stack([mean.square().sum() / 2 + _RATE * precision.sum() for mean, precision in of_weights]).sum()

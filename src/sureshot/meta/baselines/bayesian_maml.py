"""Bayesian MAML: particles for the last layer, adapted to each task by Stein variational gradient descent.

A particle is a last layer. An inner step moves the particles of a task along `stein_direction`, with the log likelihood
of the support (its sum over rows, under a flat prior) as log density. As in the comparison of Snell and Zemel only the
last layer is adapted, so embeddings do not depend on the task.

Two losses. ``"predictive"`` is minus the mean log probability of the queries, averaged over particles before the
logarithm. ``"chaser"`` is the squared distance of the particles after their steps to where ``leader_steps`` further
ones on support and queries together lead, a constant of the gradient: summed over weights, averaged over particles.

By default the particles of a task start at draws about zero of a learnt deviation, so that tasks may have any number of
classes; a start that classes share would leave all particles alike, as a softmax does not see it. With ``way`` the
starts are learnt, for so many classes, as published. Numbers of particles and steps are published; the rate is not.

References: Yoon et al. (2018), Bayesian model-agnostic meta-learning, algorithms 2 and 3; Snell and Zemel (2021),
appendix G.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from sureshot.meta.gradient.inner_loop import check_steps, check_way
from sureshot.meta.gradient.stein import stein_direction
from sureshot.meta.learners.base import DrawsPosterior, mean_over_rows
from sureshot.meta.learners.embedding import EmbeddedPosterior, EmbeddingLearner
from sureshot.meta.tasks import TaskRows, Tasks
from sureshot.networks.backbones.base import Backbone
from sureshot.networks.backbones.initialisation import he_normal
from sureshot.networks.precision import Precision
from sureshot.ranges import check_counts, check_positive

Objective = Literal["predictive", "chaser"]


@dataclass(frozen=True)
class ParticlePosterior(DrawsPosterior, EmbeddedPosterior):
    """Several last layers for each task."""

    particles: Tensor  # (T, M, C, D + 1), weights and bias
    class_mask: Tensor | None  # (T, C)

    def logits(self, query: Tensor) -> Tensor:
        return _logits(_with_one(query), self.particles, self.class_mask)


class BayesianMAML(EmbeddingLearner):
    """Bayesian MAML (Yoon et al. 2018) as compared by Snell & Zemel (2021)."""

    name = "bayesian_maml"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"paper": {"way": 5}}

    def __init__(
        self,
        backbone: Backbone,
        *,
        objective: Objective = "predictive",
        particles: int = 20,
        inner_steps: int = 1,
        inner_steps_prediction: int | None = None,  # as published by default: 1, and 5 for "chaser"
        leader_steps: int = 1,  # of "chaser"
        inner_rate: float = 1.0,
        initial_deviation: float = 0.1,  # of the particles' starts, without `way`
        way: int | None = None,
        seed: int = 0,  # of the particles' starts, with `way`
        precision: Precision = "float32",
        tasks_per_pass: int = 1,
    ) -> None:
        super().__init__(backbone, precision, tasks_per_pass)
        in_use = (5 if objective == "chaser" else 1) if inner_steps_prediction is None else inner_steps_prediction
        check_counts(2, particles=particles, way=way)
        check_counts(1, inner_steps=inner_steps, inner_steps_prediction=in_use, leader_steps=leader_steps)
        check_positive(inner_rate=inner_rate, initial_deviation=initial_deviation)
        self.objective, self.n_particles, self.inner_rate, self.way = objective, particles, inner_rate, way
        self.inner_steps, self.inner_steps_prediction, self.leader_steps = inner_steps, in_use, leader_steps
        self.n_features = backbone.n_features
        if way is None:
            self.log_deviation = nn.Parameter(torch.tensor(math.log(initial_deviation), dtype=torch.float32))
        else:
            drawn = he_normal(particles * way, self.n_features + 1, torch.Generator().manual_seed(seed))
            self.particles = nn.Parameter(drawn.unflatten(0, (particles, way)))

    def task_losses(self, tasks: Tasks, generator: torch.Generator) -> Tensor:
        """Of the queries, or the distance of chaser and leader, (T,)."""
        chaser = self._moved(self._start(tasks.support, generator), tasks.support, self.inner_steps)
        if self.objective == "chaser":
            leader = self._moved(chaser, tasks.merged(), self.leader_steps).detach()
            return (chaser - leader).square().sum((-2, -1)).mean(-1)
        found = ParticlePosterior(chaser, tasks.class_mask).logits(tasks.query_x).log_softmax(-1)
        index = tasks.query_y[:, None, :, None].expand(-1, found.shape[1], -1, 1)
        together = found.gather(-1, index).squeeze(-1).logsumexp(1) - math.log(self.n_particles)
        return -mean_over_rows(together, tasks.query_mask)

    def condition_embedded(self, support: TaskRows, generator: torch.Generator) -> ParticlePosterior:
        start = self._start(support, generator)
        return ParticlePosterior(self._moved(start, support, self.inner_steps_prediction), support.class_mask)

    def _start(self, support: TaskRows, generator: torch.Generator) -> Tensor:
        """(T, M, C, D + 1); draws are the same for all tasks of a call."""
        x, n_classes = support.x, support.n_classes
        check_way(self.name, self.way, n_classes)
        if self.way is None:
            shape = n_classes, self.n_particles, self.n_features + 1
            drawn = torch.randn(shape, generator=generator, device=x.device, dtype=x.dtype).transpose(0, 1)
            start = self.log_deviation.exp().to(x.dtype) * drawn
        else:
            start = self.particles.to(x.dtype)
        if support.class_mask is not None:  # absent classes shall not keep particles apart
            return start * support.class_mask[:, None, :, None]
        return start.expand(len(x), *start.shape)

    def _moved(self, particles: Tensor, rows: TaskRows, steps: int) -> Tensor:
        """The particles after steps on labelled rows (T, N, D); ValueError if one is not finite."""
        x, labels, sizes = _with_one(rows.without_padding()), rows.one_hot().unsqueeze(1), []
        for _ in range(steps):
            p = _logits(x, particles, rows.class_mask).softmax(-1) * labels.sum(-1, keepdim=True)
            slopes = (labels - p).mT @ x
            direction = stein_direction(particles.flatten(-2), slopes.flatten(-2))
            particles = particles + self.inner_rate * direction.view_as(particles)
            sizes.append(particles.detach().abs().sum((1, 2, 3)))
        check_steps(torch.stack(sizes, 1), self.name)
        return particles


def _with_one(x: Tensor) -> Tensor:
    """Rows (T, N, D) and a one for the bias, (T, 1, N, D + 1)."""
    return torch.cat([x, torch.ones_like(x[..., :1])], -1).unsqueeze(1)


def _logits(x: Tensor, particles: Tensor, class_mask: Tensor | None) -> Tensor:
    """(T, M, N, C), minus infinity for absent classes."""
    logits = x @ particles.mT
    return logits if class_mask is None else logits.masked_fill(~class_mask[:, None, None, :], -torch.inf)

"""Prototypical networks: the nearest class mean, made probabilistic.

The prototype of a class is the mean of its support embeddings; the logit of a class is minus the squared Euclidean
distance to its prototype. With one covariance for all classes this is linear discriminant analysis in the embedding,
and the backbone is trained until the covariance may be the identity. The loss is the mean cross-entropy of the
queries.

Reference: Snell, Swersky and Zemel (2017), Prototypical networks for few-shot learning, equations 1 and 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.meta.baselines.logits import LogitsPosterior, mean_cross_entropy, only_present
from sureshot.meta.learners.embedding import EmbeddingLearner
from sureshot.meta.tasks import TaskRows, Tasks


@dataclass(frozen=True)
class PrototypePosterior(LogitsPosterior):
    """Class means."""

    prototypes: Tensor  # (T, C, D)
    present: Tensor  # (T, C), False for classes without a support row

    def logits(self, query: Tensor) -> Tensor:
        """Minus the squared distances to the prototypes, (T, Q, C)."""
        # Distances do not move with the origin; about the centre the expanded square loses the fewest digits.
        centre = self.prototypes.mean(1, keepdim=True)
        prototypes, query = self.prototypes - centre, query - centre
        cross = query @ prototypes.transpose(1, 2)
        distances = query.square().sum(-1)[..., None] - 2 * cross + prototypes.square().sum(-1)[:, None, :]
        return only_present(-distances, self.present)


class ProtoNet(EmbeddingLearner):
    """Prototypical networks (Snell et al. 2017)."""

    name = "protonet"

    def task_losses(self, tasks: Tasks, generator: torch.Generator) -> Tensor:
        """Mean cross-entropy of the queries, (T,)."""
        posterior = self.condition_embedded(tasks.support, generator)
        return mean_cross_entropy(posterior.logits(tasks.query_x), tasks.query_y, tasks.query_mask)

    def condition_embedded(self, support: TaskRows, generator: torch.Generator) -> PrototypePosterior:
        """Class means; a class without support rows has no prototype and counts as absent."""
        return PrototypePosterior(*class_means(support))


def class_means(support: TaskRows) -> tuple[Tensor, Tensor]:
    """Mean embeddings (T, C, D), and which classes have a support row (T, C)."""
    labels = support.one_hot()
    counts = labels.sum(1)
    sums = labels.transpose(1, 2) @ support.without_padding()
    present = counts > 0 if support.class_mask is None else (counts > 0) & support.class_mask
    return sums / counts.clamp_min(1)[..., None], present

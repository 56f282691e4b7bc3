"""Transfer: learn the base classes by ordinary classification, then a new layer on frozen embeddings for each task.

Meta-training sees no episodes. It is fed single images and trains the backbone under one classification layer for all
base classes (`base_classes`). Afterwards that layer is dropped, and `condition` trains a new one on the support
embeddings.

No gradient flows from a task's new layer to the backbone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sureshot.meta.baselines.base_classes import BaseClassifier
from sureshot.meta.baselines.head_training import HeadTraining, train_heads
from sureshot.meta.baselines.heads import Head
from sureshot.meta.baselines.logits import LogitsPosterior, only_present
from sureshot.meta.learners.embedding import EmbeddingLearner, Precision
from sureshot.meta.tasks import SupportSets, Tasks
from sureshot.networks.backbones.base import Backbone


@dataclass(frozen=True)
class HeadPosterior(LogitsPosterior):
    """A trained classification layer for each task."""

    head: Head
    matrix: Tensor  # (T, C, D)
    vector: Tensor  # (T, C)
    class_mask: Tensor | None  # (T, C)

    def logits(self, query: Tensor) -> Tensor:
        """The layer's logits, (T, Q, C)."""
        return only_present(self.head.logits(self.head.features(query), self.matrix, self.vector), self.class_mask)


class TransferLearner(EmbeddingLearner):
    """Pretraining on base classes, then a new layer for each task."""

    samples_images = True

    def __init__(
        self,
        backbone: Backbone,
        base_head: Head,  # the kind of layer that learns the base classes
        task_head: Head,  # the kind of layer that learns a task
        n_base_classes: int,
        head_training: Mapping[str, Any] | None,  # fields of `HeadTraining` that differ from its defaults
        seed: int,  # of the initial values of the base classes' layer
        precision: Precision,
        tasks_per_pass: int,
    ) -> None:
        super().__init__(backbone, precision, tasks_per_pass)
        self.head_training = HeadTraining(**(head_training or {}))
        self.task_head = task_head
        self.base_classes = BaseClassifier(base_head, backbone.n_features, n_base_classes, seed)

    def task_losses(self, tasks: Tasks, generator: torch.Generator) -> Tensor:
        """Mean cross-entropy of images of base classes, (T,); see `BaseClassifier.forward`."""
        losses: Tensor = self.base_classes(tasks)
        return losses

    def condition_embedded(self, support: SupportSets, generator: torch.Generator) -> HeadPosterior:
        """A new layer for each task, trained on the support; gradients stop here."""
        matrix, vector = train_heads(self.task_head, self.head_training, support, generator)
        return HeadPosterior(self.task_head, matrix, vector, support.class_mask)

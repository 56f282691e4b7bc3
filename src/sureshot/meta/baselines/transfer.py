"""Transfer: learn the base classes by ordinary classification, then a new layer on frozen embeddings for each task.

Meta-training sees no episodes. It is fed single images and trains the backbone under one classification layer for all
base classes (`base_classes`). Afterwards that layer is dropped, and `condition` trains a new one on the support
embeddings.

No gradient flows from a task's new layer to the backbone.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.meta.baselines.base_classes import BaseClassifier
from sureshot.meta.baselines.head_training import HeadTraining, train_heads
from sureshot.meta.baselines.heads import Head
from sureshot.meta.baselines.logits import LogitsPosterior, only_present
from sureshot.meta.learners.embedding import EmbeddingLearner, Precision
from sureshot.meta.tasks import Tasks
from sureshot.networks.backbones.base import Backbone


@dataclass(frozen=True)
class HeadPosterior(LogitsPosterior):
    """A trained classification layer for each task.

    Attributes
    ----------
    head : Head
    matrix : Tensor (T, C, D)
    vector : Tensor (T, C)
    class_mask : Tensor (T, C) bool, optional
    """

    head: Head
    matrix: Tensor
    vector: Tensor
    class_mask: Tensor | None

    def logits(self, query: Tensor) -> Tensor:
        """The layer's logits, (T, Q, C)."""
        return only_present(self.head.logits(self.head.features(query), self.matrix, self.vector), self.class_mask)


class TransferLearner(EmbeddingLearner):
    """Pretraining on base classes, then a new layer for each task.

    Parameters
    ----------
    backbone : Backbone
        Maps rows (B, ...) to embeddings (B, D).
    n_base_classes : int
        Number of classes in meta-training.
    training : HeadTraining
        How the layer of a new task is trained.
    seed : int
        Of the initial values of the base classes' layer.
    precision, tasks_per_pass
        See `EmbeddingLearner`.
    """

    samples_images = True

    def __init__(
        self,
        backbone: Backbone,
        n_base_classes: int,
        training: HeadTraining,
        seed: int,
        precision: Precision,
        tasks_per_pass: int,
    ) -> None:
        super().__init__(backbone, precision, tasks_per_pass)
        self.head_training = training
        self.base_classes = BaseClassifier(self.base_head, backbone.n_features, n_base_classes, seed)

    @property
    @abstractmethod
    def base_head(self) -> Head:
        """The kind of layer that learns the base classes."""

    @property
    @abstractmethod
    def task_head(self) -> Head:
        """The kind of layer that learns a task."""

    def task_losses(self, tasks: Tasks, generator: torch.Generator) -> Tensor:
        """Mean cross-entropy of images of base classes, (T,); see `BaseClassifier.forward`."""
        losses: Tensor = self.base_classes(tasks)
        return losses

    def condition_embedded(
        self,
        support: Tensor,
        support_y: Tensor,
        n_classes: int,
        support_mask: Tensor | None,
        class_mask: Tensor | None,
        generator: torch.Generator,
    ) -> HeadPosterior:
        """A new layer for each task, trained on the support; gradients stop here."""
        matrix, vector = train_heads(
            self.task_head,
            self.head_training,
            support,
            support_y,
            n_classes,
            support_mask,
            class_mask,
            generator,
        )
        return HeadPosterior(self.task_head, matrix, vector, class_mask)

"""Transfer: learn the base classes by ordinary classification, then a new layer on frozen embeddings for each task.

Meta-training sees no episodes. It is fed single images and trains the backbone under one classification layer for all
base classes (`base_classes`). Afterwards that layer is dropped, and `condition` trains a new one on the support
embeddings.

The two learners differ in the kind of layer: linear, or by cosines. The scale of the cosine is fixed, 2 for up to 200
classes and 10 beyond, as in the released code; each class also learns the norm of its weights.

Reference: Chen, Liu, Kira, Wang and Huang (2019), A closer look at few-shot classification, section 3.1 ("Baseline")
and 3.2 ("Baseline++").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sureshot.meta.baselines.base_classes import BaseClassifier
from sureshot.meta.baselines.head_training import HeadTraining, train_heads
from sureshot.meta.baselines.heads import CosineHead, Head, LinearHead
from sureshot.meta.baselines.logits import LogitsPosterior, only_present
from sureshot.meta.learners.embedding import EmbeddingLearner
from sureshot.meta.tasks import TaskRows, Tasks
from sureshot.networks.backbones.base import Backbone
from sureshot.networks.precision import Precision

_FEW_CLASSES = 200


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

    def condition_embedded(self, support: TaskRows, generator: torch.Generator) -> HeadPosterior:
        """A new layer for each task, trained on the support; gradients stop here."""
        matrix, vector = train_heads(self.task_head, self.head_training, support, generator)
        return HeadPosterior(self.task_head, matrix, vector, support.class_mask)


class FeatureTransfer(TransferLearner):
    """Linear classification of the base classes, then of each task on frozen embeddings."""

    name = "feature_transfer"

    def __init__(
        self,
        backbone: Backbone,
        *,
        n_base_classes: int,
        head_training: dict[str, Any] | None = None,
        seed: int = 0,
        precision: Precision = "float32",
        tasks_per_pass: int = 1,
    ) -> None:
        heads = LinearHead(), LinearHead()
        super().__init__(backbone, *heads, n_base_classes, head_training, seed, precision, tasks_per_pass)


class BaselinePlusPlus(TransferLearner):
    """Cosine classification of the base classes, then of each task on frozen embeddings ("Baseline++")."""

    name = "baseline_plus_plus"

    def __init__(
        self,
        backbone: Backbone,
        *,
        n_base_classes: int,
        task_scale: float = 2.0,  # of the cosine in a task's layer, as released for tasks of up to 200 classes
        base_scale: float | None = None,  # in the base classes' layer; 2 for up to 200 base classes and 10 beyond
        head_training: dict[str, Any] | None = None,
        seed: int = 0,
        precision: Precision = "float32",
        tasks_per_pass: int = 1,
    ) -> None:
        if base_scale is None:
            base_scale = 2.0 if n_base_classes <= _FEW_CLASSES else 10.0
        for name, value in (("task_scale", task_scale), ("base_scale", base_scale)):
            if not value > 0:
                raise ValueError(f"{name} must be positive, got {value}")
        heads = CosineHead(base_scale), CosineHead(task_scale)
        super().__init__(backbone, *heads, n_base_classes, head_training, seed, precision, tasks_per_pass)

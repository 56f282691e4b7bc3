"""Baseline++: transfer with classification by cosine similarity.

Pretraining under a cosine layer makes the embeddings of a class point in one direction, which a few examples then
find. The scale of the cosine is fixed, 2 for up to 200 classes and 10 beyond, as in the released code of Chen et al.
(a softmax over thousands of classes needs the larger one); each class also learns the norm of its weights.

Reference: Chen, Liu, Kira, Wang and Huang (2019), A closer look at few-shot classification, section 3.2 ("Baseline++").
"""

from __future__ import annotations

from typing import Any

from sureshot.meta.baselines.heads import CosineHead
from sureshot.meta.baselines.transfer import TransferLearner
from sureshot.meta.learners.embedding import Precision
from sureshot.networks.backbones.base import Backbone

_FEW_CLASSES = 200


class BaselinePlusPlus(TransferLearner):
    """Cosine classification of the base classes, then of each task on frozen embeddings.

    Its other arguments are those of `TransferLearner`.
    """

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

"""Baseline++: transfer with classification by cosine similarity.

Pretraining under a cosine layer makes the embeddings of a class point in one direction, which a few examples then
find. The scale of the cosine is fixed, 2 for up to 200 classes and 10 beyond, as in the released code of Chen et al.
(a softmax over thousands of classes needs the larger one); each class also learns the norm of its weights.

References
----------
Chen, Liu, Kira, Wang and Huang (2019), A closer look at few-shot classification, section 3.2 ("Baseline++").
"""

from __future__ import annotations

from typing import Any

from sureshot.meta.baselines.head_training import HeadTraining
from sureshot.meta.baselines.heads import CosineHead
from sureshot.meta.baselines.transfer import TransferLearner
from sureshot.meta.learners.embedding import Precision
from sureshot.networks.backbones.base import Backbone

_FEW_CLASSES = 200


class BaselinePlusPlus(TransferLearner):
    """Cosine classification of the base classes, then of each task on frozen embeddings.

    Parameters
    ----------
    backbone : Backbone
        Maps rows (B, ...) to embeddings (B, D).
    n_base_classes : int
        Number of classes in meta-training.
    task_scale : float
        Of the cosine in a task's layer. The default, 2, is the released code's for tasks of up to 200 classes.
    base_scale : float, optional
        Of the cosine in the base classes' layer; by default 2 for up to 200 base classes and 10 beyond.
    head_training : dict, optional
        Fields of `HeadTraining` that differ from its defaults.
    seed : int
        Of the initial values of the base classes' layer.
    precision, tasks_per_pass
        See `EmbeddingLearner`.

    Raises
    ------
    ValueError
        If ``n_base_classes`` is below 1, a scale is not positive or a setting of the training is out of range.
    """

    def __init__(
        self,
        backbone: Backbone,
        *,
        n_base_classes: int,
        task_scale: float = 2.0,
        base_scale: float | None = None,
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
        self._base_head = CosineHead(base_scale)
        self._task_head = CosineHead(task_scale)
        training = HeadTraining(**(head_training or {}))
        super().__init__(backbone, n_base_classes, training, seed, precision, tasks_per_pass)

    @property
    def base_head(self) -> CosineHead:
        """A cosine layer."""
        return self._base_head

    @property
    def task_head(self) -> CosineHead:
        """A cosine layer."""
        return self._task_head

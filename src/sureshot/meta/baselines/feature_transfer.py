"""Feature transfer: the plain baseline of pretraining and a new linear layer.

References
----------
Chen, Liu, Kira, Wang and Huang (2019), A closer look at few-shot classification, section 3.1 ("Baseline").
"""

from __future__ import annotations

from typing import Any

from sureshot.meta.baselines.head_training import HeadTraining
from sureshot.meta.baselines.heads import LinearHead
from sureshot.meta.baselines.transfer import TransferLearner
from sureshot.meta.learners.embedding import Precision
from sureshot.networks.backbones.base import Backbone


class FeatureTransfer(TransferLearner):
    """Linear classification of the base classes, then of each task on frozen embeddings.

    Parameters
    ----------
    backbone : Backbone
        Maps rows (B, ...) to embeddings (B, D).
    n_base_classes : int
        Number of classes in meta-training.
    head_training : dict, optional
        Fields of `HeadTraining` that differ from its defaults.
    seed : int
        Of the initial values of the base classes' layer.
    precision, tasks_per_pass
        See `EmbeddingLearner`.

    Raises
    ------
    ValueError
        If ``n_base_classes`` is below 1 or a setting of the training is out of range.
    """

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
        training = HeadTraining(**(head_training or {}))
        super().__init__(backbone, n_base_classes, training, seed, precision, tasks_per_pass)

    @property
    def base_head(self) -> LinearHead:
        """A linear layer."""
        return LinearHead()

    @property
    def task_head(self) -> LinearHead:
        """A linear layer."""
        return LinearHead()

"""Feature transfer: the plain baseline of pretraining and a new linear layer.

Reference: Chen, Liu, Kira, Wang and Huang (2019), A closer look at few-shot classification, section 3.1 ("Baseline").
"""

from __future__ import annotations

from typing import Any

from sureshot.meta.baselines.heads import LinearHead
from sureshot.meta.baselines.transfer import TransferLearner
from sureshot.meta.learners.embedding import Precision
from sureshot.networks.backbones.base import Backbone


class FeatureTransfer(TransferLearner):
    """Linear classification of the base classes, then of each task on frozen embeddings.

    Its arguments are those of `TransferLearner`.
    """

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

"""Rows for a meta-trained learner: embeddings of its backbone."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.estimators.rows.encoder import Encoder
from sureshot.meta.learners import EmbeddingLearner
from sureshot.networks.backbones import Backbone


@dataclass(frozen=True)
class LearnerEncoder(Encoder):
    """The backbone of a meta-trained learner, from rows to embeddings."""

    learner: EmbeddingLearner  # in evaluation mode and double precision

    @property
    def shape(self) -> tuple[int, ...]:
        backbone = self.learner.backbone
        assert isinstance(backbone, Backbone)
        return backbone.input_shape

    @property
    def device(self) -> torch.device:
        return device_of(self.learner)

    def embed(self, rows: Tensor) -> Tensor:
        return self.learner.embed(rows.unsqueeze(0)).squeeze(0)


def device_of(learner: EmbeddingLearner) -> torch.device:
    """Where a learner is."""
    return next(iter(learner.state_dict().values())).device

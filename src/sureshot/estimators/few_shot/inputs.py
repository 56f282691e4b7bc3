"""Rows for a meta-trained learner: embeddings of its backbone, or the rows as they are if tasks change the backbone."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.estimators.rows.encoder import Encoder
from sureshot.meta.learners import ClassLearner, EmbeddingLearner
from sureshot.networks.backbones import Backbone


@dataclass(frozen=True)
class LearnerEncoder(Encoder):
    """What a meta-trained learner is conditioned on."""

    learner: ClassLearner  # in evaluation mode and double precision

    @property
    def shape(self) -> tuple[int, ...]:
        return input_shape(self.learner)

    @property
    def device(self) -> torch.device:
        return self.learner.device

    def embed(self, rows: Tensor) -> Tensor:
        if isinstance(self.learner, EmbeddingLearner):
            return self.learner.embed(rows.unsqueeze(0)).squeeze(0)
        return rows.flatten(1)

    @property
    def exact(self) -> bool:
        return not isinstance(self.learner, EmbeddingLearner)


def input_shape(learner: ClassLearner) -> tuple[int, ...]:
    """Of one row."""
    assert isinstance(learner.network, Backbone)
    return learner.network.input_shape

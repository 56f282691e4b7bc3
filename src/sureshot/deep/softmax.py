"""A linear layer and softmax on a backbone: the reference, and how the other classifiers' backbones begin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from sureshot.deep.base import DeepClassifier, Predictor
from sureshot.networks.backbones import Backbone, backbone_from_config
from sureshot.networks.backbones.initialisation import dense


class SoftmaxNetwork(DeepClassifier):
    """Cross-entropy of ``softmax(W z + b)``."""

    name = "softmax"

    def __init__(
        self,
        backbone: Backbone,
        n_classes: int,
        *,
        seed: int = 0,  # of the initial weights of the linear layer, normal with variance 1 / D
    ) -> None:
        super().__init__(backbone, n_classes, {"seed": seed})
        width = backbone.n_features
        weight = torch.randn(n_classes, width, generator=torch.Generator().manual_seed(seed)) / width**0.5
        self.linear = dense(weight)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> SoftmaxNetwork:
        """See `DeepClassifier.from_config`."""
        return cls(backbone_from_config(config["backbone"]), config["n_classes"], seed=config["seed"])

    def losses(self, x: Tensor, y: Tensor, generator: torch.Generator, n_rows: int) -> Tensor:
        """See `DeepClassifier.losses`."""
        return functional.cross_entropy(self.linear(self.encoded(x)), y, reduction="none")

    def predictor(self) -> Predictor:
        """See `DeepClassifier.predictor`."""
        return lambda embeddings: torch.log_softmax(self.linear(embeddings), dim=-1)

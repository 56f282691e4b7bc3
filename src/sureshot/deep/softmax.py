"""A linear layer and softmax on a backbone: the reference, and how the other classifiers' backbones begin."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from sureshot.deep.base import Predictor
from sureshot.deep.growing import GrowingClassifier
from sureshot.networks.backbones import Backbone, backbone_from_config
from sureshot.networks.backbones.initialisation import dense


class SoftmaxNetwork(GrowingClassifier):
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
        generator = torch.Generator().manual_seed(seed)
        weight = torch.randn(n_classes, width, generator=generator, dtype=torch.float32) / width**0.5
        self.linear = dense(weight)

    @classmethod
    def of_embeddings(
        cls, backbone: Backbone, embeddings: Tensor, y: Tensor, n_classes: int, *, seed: int = 0
    ) -> SoftmaxNetwork:
        """The weights are drawn, whatever the rows are."""
        return cls(backbone, n_classes, seed=seed)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> SoftmaxNetwork:
        return cls(backbone_from_config(config["backbone"]), config["n_classes"], seed=config["seed"])

    def embedded_losses(self, embeddings: Tensor, y: Tensor, generator: torch.Generator, n_rows: int) -> Tensor:
        return functional.cross_entropy(self.linear(embeddings), y, reduction="none")

    def predictor(self) -> Predictor:
        return lambda embeddings: torch.log_softmax(self.linear(embeddings), dim=-1)

    def grown(self, embeddings: Tensor, y: Tensor, n_classes: int) -> SoftmaxNetwork:
        """The new classes' weights are drawn, whatever their rows are."""
        made = SoftmaxNetwork(copy.deepcopy(self.backbone), n_classes, seed=self.config["seed"])
        made.linear.to(self.linear.weight.device)
        with torch.no_grad():
            made.linear.weight[: self.n_classes] = self.linear.weight
            made.linear.bias[: self.n_classes] = self.linear.bias
        made.precision = self.precision
        return made

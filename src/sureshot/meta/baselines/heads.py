"""Classification layers: a linear one, and one by cosine similarity.

Both have a matrix (C, D), one row for each class, and a vector (C,). In the linear layer these are weights and
biases. In the cosine layer they are the directions and the norms of the weights, as weight normalisation has it; the
features are scaled to norm one, so that a logit is scale x norm x cosine and the norm of a class is learnt by itself.

The gradient of the cross-entropy of either layer is a few products, so that the layers of thousands of tasks are
trained without automatic differentiation (`head_training`).

References: Chen et al. (2019), A closer look at few-shot classification, section 3.2 and its released code; Salimans
and Kingma (2016), Weight normalization, equation 3 (gradients).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


class Head(ABC):
    """A kind of classification layer; its matrix and vector are held elsewhere."""

    @abstractmethod
    def features(self, embeddings: Tensor) -> Tensor:
        """What the layer sees of embeddings (..., D)."""

    @abstractmethod
    def initial(self, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Matrix (C, D) and vector (C,) from numbers (C, D + 1) uniform in [0, 1)."""

    @abstractmethod
    def logits(
        self,
        features: Tensor,  # (..., N, D)
        matrix: Tensor,  # (..., C, D)
        vector: Tensor,  # (..., C)
    ) -> Tensor:
        """Logits (..., N, C)."""

    @abstractmethod
    def gradient(
        self,
        features: Tensor,  # (..., N, D)
        error: Tensor,  # (..., N, C)
        matrix: Tensor,  # (..., C, D)
        vector: Tensor,  # (..., C)
    ) -> tuple[Tensor, Tensor]:
        """Gradients in matrix and vector of a loss with gradient ``error`` in the logits."""


def _weights(uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Uniform in +-1/sqrt(D), the usual start of a linear layer: (C, D) and (C,)."""
    bound = 1.0 / math.sqrt(uniform.shape[-1] - 1)
    values = bound * (2 * uniform - 1)
    return values[..., :-1], values[..., -1]


@dataclass(frozen=True)
class LinearHead(Head):
    """Logits x . w_c + b_c."""

    def features(self, embeddings: Tensor) -> Tensor:
        return embeddings

    def initial(self, uniform: Tensor) -> tuple[Tensor, Tensor]:
        return _weights(uniform)

    def logits(self, features: Tensor, matrix: Tensor, vector: Tensor) -> Tensor:
        return features @ matrix.mT + vector[..., None, :]

    def gradient(self, features: Tensor, error: Tensor, matrix: Tensor, vector: Tensor) -> tuple[Tensor, Tensor]:
        return error.mT @ features, error.sum(-2)


@dataclass(frozen=True)
class CosineHead(Head):
    """Logits scale x g_c x cos(x, v_c)."""

    scale: float  # fixed; lifts cosines to where a softmax can be confident

    def features(self, embeddings: Tensor) -> Tensor:
        return F.normalize(embeddings, dim=-1)

    def initial(self, uniform: Tensor) -> tuple[Tensor, Tensor]:
        matrix, _ = _weights(uniform)
        return matrix, torch.linalg.vector_norm(matrix, dim=-1)

    def logits(self, features: Tensor, matrix: Tensor, vector: Tensor) -> Tensor:
        return features @ (self.scale * vector[..., None] * F.normalize(matrix, dim=-1)).mT

    def gradient(self, features: Tensor, error: Tensor, matrix: Tensor, vector: Tensor) -> tuple[Tensor, Tensor]:
        norm = torch.linalg.vector_norm(matrix, dim=-1, keepdim=True)
        direction = matrix / norm
        weight = self.scale * (error.mT @ features)  # gradient in the normalised weight g v / |v|
        along = (weight * direction).sum(-1)
        return vector[..., None] / norm * (weight - along[..., None] * direction), along

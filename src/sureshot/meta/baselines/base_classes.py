"""The layer under which a backbone is trained to classify all base classes; dropped when training is over.

Meta-training feeds single images instead of episodes (`ClassLearner.samples_images`), as tasks with an empty query
whose labels number the base classes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sureshot.meta.baselines.heads import Head
from sureshot.meta.baselines.logits import mean_cross_entropy
from sureshot.meta.tasks import Tasks


class BaseClassifier(nn.Module):
    """A classification layer, of the kind of a head, for all base classes."""

    def __init__(self, head: Head, n_features: int, n_classes: int, seed: int = 0) -> None:
        super().__init__()
        if n_classes < 1:
            raise ValueError(f"n_base_classes must be at least 1, got {n_classes}")
        self.head = head
        self.n_classes = n_classes
        uniform = torch.rand(
            n_classes, n_features + 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float32
        )
        matrix, vector = head.initial(uniform)
        self.matrix = nn.Parameter(matrix.clone())
        self.vector = nn.Parameter(vector.clone())

    def forward(self, tasks: Tasks) -> Tensor:
        """Mean cross-entropy of the embeddings of images of base classes, (T,): the support; there is no query."""
        n_queries = tasks.query_y.shape[1]
        if n_queries > 0 or tasks.n_classes != self.n_classes:
            raise ValueError(
                "this learner is trained on single images: tasks with an empty query and labels of "
                f"{self.n_classes} base classes, got {n_queries} queries and {tasks.n_classes} classes; sample "
                "images of all base classes instead of episodes"
            )
        logits = self.head.logits(self.head.features(tasks.support_x), self.matrix, self.vector)
        return mean_cross_entropy(logits, tasks.support_y, tasks.support_mask)

"""Learners whose answer is one logit for each class: probabilities, loss and masks in one place.

A class that a task lacks has the logit minus infinity: it gets probability 0, no gradient, and never is the largest.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor

from sureshot.meta.learners.base import Latents, mean_over_rows
from sureshot.meta.learners.embedding import EmbeddedPosterior


class LogitsPosterior(EmbeddedPosterior):
    """A conditioned learner with deterministic logits."""

    @abstractmethod
    def logits(self, query: Tensor) -> Tensor:
        """Logits (T, Q, C) at query embeddings (T, Q, D); minus infinity for classes that a task lacks."""

    def predict(self, query: Tensor) -> Tensor:
        """Softmax of the logits, (T, Q, C)."""
        return self.logits(query).softmax(-1)

    def latents(self, query: Tensor) -> Latents:
        """The logits, with variance 0."""
        logits = self.logits(query)
        return Latents(logits, torch.zeros_like(logits))


def only_present(
    logits: Tensor,  # (T, Q, C)
    present: Tensor | None,  # (T, C)
) -> Tensor:
    """Logits with minus infinity for absent classes."""
    return logits if present is None else logits.masked_fill(~present[:, None, :], -torch.inf)


def mean_cross_entropy(
    logits: Tensor,  # (T, N, C)
    y: Tensor,  # (T, N)
    mask: Tensor | None,  # (T, N)
) -> Tensor:
    """Mean cross-entropy over the real rows of each task, (T,), in nats."""
    return mean_over_rows(F.cross_entropy(logits.transpose(1, 2), y, reduction="none"), mask)

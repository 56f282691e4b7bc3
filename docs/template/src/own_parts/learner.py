"""The nearest class median: prototypes that single odd rows do not move."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.meta.baselines.logits import LogitsPosterior, mean_cross_entropy, only_present
from sureshot.meta.learners import EmbeddingLearner
from sureshot.meta.tasks import TaskRows, Tasks


@dataclass(frozen=True)
class MedianPosterior(LogitsPosterior):
    """Class medians; it never changes."""

    medians: Tensor  # (T, C, D)
    present: Tensor  # (T, C), False for classes without a support row

    def logits(self, query: Tensor) -> Tensor:
        """Minus the squared distances to the medians, (T, Q, C)."""
        return only_present(-torch.cdist(query, self.medians).square(), self.present)


class Medians(EmbeddingLearner):
    """Prototypical networks with medians in the place of means."""

    name = "medians"

    def task_losses(self, tasks: Tasks, generator: torch.Generator) -> Tensor:
        """Mean cross-entropy of the queries, (T,)."""
        posterior = self.condition_embedded(tasks.support, generator)
        return mean_cross_entropy(posterior.logits(tasks.query_x), tasks.query_y, tasks.query_mask)

    def condition_embedded(self, support: TaskRows, generator: torch.Generator) -> MedianPosterior:
        """Class medians, column by column, of all tasks at once; padding belongs to no class."""
        of_class = support.one_hot().bool()  # (T, S, C)
        present = of_class.any(1) if support.class_mask is None else of_class.any(1) & support.class_mask
        rows = support.without_padding()[:, :, None, :]  # (T, S, 1, D)
        medians = rows.where(of_class[..., None], torch.nan).nanmedian(1).values
        return MedianPosterior(medians.where(present[..., None], 0.0), present)

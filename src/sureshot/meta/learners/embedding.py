"""Learners that adapt to embeddings, which a task does not change.

Such a learner has a *backbone* that turns inputs into embeddings and a rule that turns a few labelled embeddings into
class probabilities. Derived classes write the two methods of a learner in terms of embeddings, `task_losses` and
`condition_embedded`, and never see an image; whoever adapts to thousands of tasks passes every row through the
backbone once and looks the tasks up.

In training support and query rows of a task pass the backbone together (batch normalisation sees both, as published),
``tasks_per_pass`` tasks at a time, by default one. In evaluation mode grouping changes nothing.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sureshot.meta.learners.base import ClassLearner, Latents, TaskPosterior, check_query
from sureshot.meta.tasks import TaskRows, Tasks
from sureshot.networks.precision import Precision, check_precision, encode

ROWS_PER_PASS = 512
"""Inputs embedded at a time in evaluation, where batch normalisation does not couple rows; a constant, since noise is
drawn for one pass after another."""


class EmbeddedPosterior(TaskPosterior):
    """A learner conditioned on the embeddings of a support set; queries are embeddings (T, Q, D)."""


@dataclass(frozen=True)
class InputPosterior(TaskPosterior):
    """The same at inputs (T, Q, ...), by a backbone of its own; refuses queries that are not finite (`ValueError`)."""

    learner: EmbeddingLearner  # a copy, in evaluation mode; embeds the queries
    embedded: EmbeddedPosterior
    n_tasks: int

    def predict(self, query: Tensor) -> Tensor:
        with torch.no_grad():
            return self.embedded.predict(self._embed(query))

    def latents(self, query: Tensor) -> Latents:
        with torch.no_grad():
            return self.embedded.latents(self._embed(query))

    def outlier_score(self, query: Tensor) -> Tensor:
        with torch.no_grad():
            return self.embedded.outlier_score(self._embed(query))

    def _embed(self, query: Tensor) -> Tensor:
        check_query(query, self.n_tasks)
        return self.learner.embed(query)


class EmbeddingLearner(ClassLearner):
    """A learner whose embeddings can be computed ahead of its tasks."""

    fits_normalisation = False
    """Whether meta-training fits the normalisation of embeddings to validation classes."""

    centre: Tensor | None
    """Subtracted from embeddings in use, (D,), by learners with `fits_normalisation`."""

    def __init__(
        self,
        backbone: nn.Module,  # maps rows (B, ...) to embeddings (B, D)
        precision: Precision = "float32",  # of the backbone (autocast); embeddings come out as float32 in any case
        tasks_per_pass: int = 1,  # how many tasks share batch normalisation in training
    ) -> None:
        super().__init__()
        check_precision(precision)
        if tasks_per_pass < 1:
            raise ValueError(f"tasks_per_pass must be at least 1, got {tasks_per_pass}")
        self.register_buffer("centre", None)
        self.backbone = backbone
        self.precision: Precision = precision
        self.tasks_per_pass = tasks_per_pass

    @property
    def network(self) -> nn.Module:
        """The backbone."""
        return self.backbone

    @abstractmethod
    def task_losses(self, tasks: Tasks, generator: torch.Generator) -> Tensor:
        """`forward` for tasks of embeddings, (T,)."""

    @abstractmethod
    def condition_embedded(self, support: TaskRows, generator: torch.Generator) -> EmbeddedPosterior:
        """`condition` for embeddings (T, S, D); every gradient graph is the caller's business."""

    def input_losses(self, tasks: Tasks, generator: torch.Generator) -> Tensor:
        return self.task_losses(self.embed_tasks(tasks), generator)

    def condition_inputs(self, support: TaskRows, generator: torch.Generator) -> InputPosterior:
        """The posterior has a copy of the backbone."""
        found = self.condition_embedded(support._replace(x=self.embed(support.x)), generator)
        return InputPosterior(copy.deepcopy(self).eval().requires_grad_(False), found, len(support.y))

    def set_centre(self, centre: Tensor) -> None:
        """Subtract a vector (D,) or number () from all embeddings in use; for learners with `fits_normalisation`."""
        raise ValueError(f"{type(self).__name__} does not centre its embeddings")

    def normalised(self, embedded: Tensor) -> Tensor:
        """What the learner makes of embeddings (B, D) before any kernel sees them: nothing by default."""
        return embedded

    def embed(self, x: Tensor) -> Tensor:
        """Embeddings (T, N, D) of inputs (T, N, ...), in passes of ``tasks_per_pass`` tasks in training."""
        if not self.training:
            rows = x.flatten(0, 1)
            parts = [self._pass(part) for part in rows.split(ROWS_PER_PASS)]
            return torch.cat(parts).unflatten(0, x.shape[:2])
        parts = [self._pass(part.flatten(0, 1)) for part in x.split(self.tasks_per_pass)]
        return torch.cat(parts).unflatten(0, x.shape[:2])

    def embed_tasks(self, tasks: Tasks) -> Tasks:
        """The tasks with embeddings for inputs; support and query of a task pass together, padding does not."""
        n_support = tasks.support_y.shape[1]
        x, _, _, mask, _ = tasks.merged()
        if mask is None:
            embedded = self.embed(x)
        else:
            size = self.tasks_per_pass
            passes = zip(x.split(size), mask.split(size), strict=True)
            present = torch.cat([self._pass(part[rows]) for part, rows in passes])
            embedded = present.new_zeros(*mask.shape, present.shape[-1])
            embedded[mask] = present
        return tasks.with_inputs(embedded[:, :n_support], embedded[:, n_support:])

    def _pass(self, rows: Tensor) -> Tensor:
        embedded = self.normalised(encode(self.backbone, rows, self.precision))
        return embedded if self.training or self.centre is None else embedded - self.centre

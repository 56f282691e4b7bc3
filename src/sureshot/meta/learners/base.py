"""What every few-shot learner offers, Bayesian or not.

A learner has a *backbone* that turns inputs into embeddings and a rule that turns a few labelled embeddings into
class probabilities. Two methods matter: ``learner(tasks)`` gives one loss for each task, differentiable, for
meta-training; ``learner.condition(support_x, support_y)`` gives an immutable posterior, for use. Subclasses write
the same two in terms of embeddings: `task_losses` and `condition_embedded`. All tasks of a batch are adapted in
one tensor operation.

Support and query rows of a task pass the backbone together (batch normalisation sees both, as published); each
pass holds ``tasks_per_pass`` tasks, one by default, so that the statistics are those of a task and do not depend
on how tasks are grouped into batches or spread over processes. In evaluation mode the running statistics are used
and grouping changes nothing.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sureshot.meta.tasks import Tasks

Precision = Literal["float32", "bfloat16"]

ROWS_PER_PASS = 512
"""Inputs embedded at a time in evaluation, where batch normalisation does not couple rows; a constant, since noise is
drawn for one pass after another."""


@dataclass(frozen=True)
class Latents:
    """Marginal moments of a score for every class; of latent functions for Gaussian processes.

    Attributes
    ----------
    mean, variance : Tensor (T, Q, C)
    """

    mean: Tensor
    variance: Tensor


class EmbeddedPosterior(ABC):
    """A learner conditioned on the embeddings of a support set; frozen."""

    @abstractmethod
    def predict(self, query: Tensor) -> Tensor:
        """Class probabilities (T, Q, C) at query embeddings (T, Q, D); classes that a task lacks get 0."""

    @abstractmethod
    def latents(self, query: Tensor) -> Latents:
        """Scores of the classes at query embeddings (T, Q, D); larger is more likely."""

    def outlier_score(self, query: Tensor) -> Tensor:
        """How little a query embedding (T, Q, D) is like any class, (T, Q): minus the largest score by default."""
        return -self.latents(query).mean.amax(-1)


@dataclass(frozen=True)
class TaskPosterior:
    """A learner conditioned on a support set; what becomes of the learner afterwards does not change it.

    It has a backbone of its own: to adapt to thousands of tasks, embed them once and use `Learner.condition_embedded`.

    Attributes
    ----------
    learner : Learner
        A copy of the learner, in evaluation mode; embeds the queries.
    embedded : EmbeddedPosterior
    n_tasks : int
        T.
    """

    learner: Learner
    embedded: EmbeddedPosterior
    n_tasks: int

    def predict(self, query_x: Tensor) -> Tensor:
        """Class probabilities (T, Q, C) at queries (T, Q, ...).

        Raises
        ------
        ValueError
            If a query is not finite, or there is not one set of queries for each task; `latents` and `outlier_score`
            likewise.
        """
        with torch.no_grad():
            return self.embedded.predict(self._embed(query_x))

    def latents(self, query_x: Tensor) -> Latents:
        """Scores of the classes at queries (T, Q, ...)."""
        with torch.no_grad():
            return self.embedded.latents(self._embed(query_x))

    def outlier_score(self, query_x: Tensor) -> Tensor:
        """How little a query (T, Q, ...) is like any class, (T, Q); larger is less."""
        with torch.no_grad():
            return self.embedded.outlier_score(self._embed(query_x))

    def _embed(self, query_x: Tensor) -> Tensor:
        if query_x.dim() < 2 or len(query_x) != self.n_tasks:
            raise ValueError(
                f"query_x must be (T, Q, ...) with the queries of {self.n_tasks} tasks, got {tuple(query_x.shape)}"
            )
        _require_finite("query_x", query_x, None)
        return self.learner.embed(query_x)


class Learner(nn.Module, ABC):
    """A few-shot learner.

    Parameters
    ----------
    backbone : nn.Module
        Maps rows (B, ...) to embeddings (B, D).
    precision : {"float32", "bfloat16"}
        Of the backbone's arithmetic (autocast); embeddings come out as float32 in any case.
    tasks_per_pass : int
        How many tasks share batch normalisation in training.
    """

    samples_images = False
    """Whether meta-training feeds single images of all base classes instead of episodes (see `Tasks.class_ids`)."""

    fits_normalisation = False
    """Whether meta-training fits the normalisation of embeddings to validation classes."""

    centre: Tensor | None
    """Subtracted from embeddings in use, (D,), by learners with `fits_normalisation`."""

    fits_temperature = False
    """Whether meta-training fits a temperature of the predictive probabilities on validation tasks."""

    added_state: frozenset[str] = frozenset()
    """Names in ``state_dict()`` that checkpoints of early versions lack, for which zero is what was done before."""

    config: dict[str, Any]
    """What `sureshot.meta.learners.learner_from_config` builds it from; JSON values."""

    def __init__(self, backbone: nn.Module, precision: Precision = "float32", tasks_per_pass: int = 1) -> None:
        super().__init__()
        if precision not in ("float32", "bfloat16"):
            raise ValueError(f"precision must be 'float32' or 'bfloat16', got {precision!r}")
        if tasks_per_pass < 1:
            raise ValueError(f"tasks_per_pass must be at least 1, got {tasks_per_pass}")
        self.register_buffer("centre", None)
        self.backbone = backbone
        self.precision: Precision = precision
        self.tasks_per_pass = tasks_per_pass

    def forward(self, tasks: Tasks, generator: torch.Generator | None = None) -> Tensor:
        """One loss for each task, (T,), in nats per scored row.

        Parameters
        ----------
        tasks : Tasks
            Of inputs.
        generator : torch.Generator, optional
            For learners that sample; a fixed seed without it.

        Raises
        ------
        ValueError
            If an input is not finite: statistics of batch normalisation would never recover from it.
        """
        _require_finite("support_x", tasks.support_x, tasks.support_mask)
        _require_finite("query_x", tasks.query_x, tasks.query_mask)
        return self.task_losses(self.embed_tasks(tasks), generator or seeded(tasks.support_y.device))

    def condition(
        self,
        support_x: Tensor,
        support_y: Tensor,
        n_classes: int | None = None,
        support_mask: Tensor | None = None,
        class_mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> TaskPosterior:
        """Adapt to support sets.

        Parameters
        ----------
        support_x : Tensor (T, S, ...)
        support_y : Tensor (T, S) int64
            Labels 0..C-1.
        n_classes : int, optional
            C; the largest label plus 1 by default.
        support_mask : Tensor (T, S) bool, optional
            False for padding.
        class_mask : Tensor (T, C) bool, optional
            False for a class that a task does not have.
        generator : torch.Generator, optional
            For learners that sample; a fixed seed without it.

        Raises
        ------
        ValueError
            If shapes or labels do not fit, there is one class only, or an input is not finite.
        """
        if support_y.dim() != 2 or support_x.shape[:2] != support_y.shape:
            raise ValueError(
                f"support_x must be (T, S, ...) and support_y (T, S), got {tuple(support_x.shape)} and "
                f"{tuple(support_y.shape)}: add a leading dimension for a single task"
            )
        classes = int(support_y.max()) + 1 if n_classes is None else n_classes
        if int(support_y.min()) < 0 or int(support_y.max()) >= classes:
            raise ValueError(
                f"support_y must hold labels 0..{classes - 1}, got {int(support_y.min())}..{int(support_y.max())}: "
                "raise n_classes or recode the labels"
            )
        if classes < 2:
            raise ValueError(
                "support_y has one class only: there is nothing to tell apart; pass n_classes if more exist"
            )
        _require_finite("support_x", support_x, support_mask)
        with evaluating(self):
            embedded = self.embed(support_x)
            found = self.condition_embedded(
                embedded, support_y, classes, support_mask, class_mask, generator or seeded(support_y.device)
            )
        return TaskPosterior(copy.deepcopy(self).eval().requires_grad_(False), found, len(support_y))

    def set_centre(self, centre: Tensor) -> None:
        """Subtract a vector (D,) or number () from all embeddings in use; for learners with `fits_normalisation`.

        Raises
        ------
        ValueError
            For a learner without a centre.
        """
        raise ValueError(f"{type(self).__name__} does not centre its embeddings")

    def set_temperature(
        self, temperature: float, way: int = 2, growth: float = 0.0, shots: int = 1, shot_growth: float = 0.0
    ) -> None:
        """Temper predictive probabilities, ``p^(1 / T)`` normalised; for learners with `fits_temperature`.

        Parameters
        ----------
        temperature : float
            T for tasks of `way` classes with `shots` labelled rows of each.
        way, shots : int
        growth, shot_growth : float
            T for C classes and S shots is ``temperature * (C / way) ** growth * (S / shots) ** shot_growth``; a
            learner may bound S.

        Raises
        ------
        ValueError
            For a learner without a temperature.
        """
        raise ValueError(f"{type(self).__name__} has no temperature of its own (got {temperature})")

    @abstractmethod
    def task_losses(self, tasks: Tasks, generator: torch.Generator) -> Tensor:
        """`forward` for tasks of embeddings, (T,)."""

    @abstractmethod
    def condition_embedded(
        self,
        support: Tensor,  # (T, S, D)
        support_y: Tensor,  # (T, S)
        n_classes: int,
        support_mask: Tensor | None,
        class_mask: Tensor | None,
        generator: torch.Generator,
    ) -> EmbeddedPosterior:
        """`condition` for embeddings; every gradient graph is the caller's business."""

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
        x = torch.cat([tasks.support_x, tasks.query_x], 1)
        mask = joint_mask(tasks)
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
        if rows.dim() == 4:
            rows = rows.contiguous(memory_format=torch.channels_last)
        with torch.autocast(rows.device.type, torch.bfloat16, enabled=self.precision == "bfloat16"):
            embedded = self.backbone(rows)
        embedded = embedded.float() if embedded.dtype == torch.bfloat16 else embedded
        return embedded if self.training or self.centre is None else embedded - self.centre


@contextmanager
def evaluating(learner: Learner) -> Iterator[None]:
    """The learner in evaluation mode and without gradients; its mode is restored."""
    training = learner.training
    learner.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        learner.train(training)


def _require_finite(name: str, x: Tensor, mask: Tensor | None) -> None:
    """Refuse NaN and infinite inputs (T, N, ...) in rows that count."""
    if not x.is_floating_point():
        return
    broken = ~torch.isfinite(x).flatten(2).all(-1)
    if mask is not None:
        broken &= mask
    if bool(broken.any()):
        task, row = broken.nonzero()[0].tolist()
        raise ValueError(
            f"{name} has NaN or infinite numbers in {int(broken.sum())} rows, the first is row {row} of task {task}: "
            "fill them in or leave those rows out"
        )


def joint_mask(tasks: Tasks) -> Tensor | None:
    """Which rows of support and query, side by side, are real, (T, S + Q); None if all are."""
    if tasks.support_mask is None and tasks.query_mask is None:
        return None
    parts = [
        torch.ones_like(y, dtype=torch.bool) if mask is None else mask
        for y, mask in ((tasks.support_y, tasks.support_mask), (tasks.query_y, tasks.query_mask))
    ]
    return torch.cat(parts, 1)


def mean_over_rows(values: Tensor, mask: Tensor | None) -> Tensor:
    """Mean of (T, N) over the real rows of each task, (T,)."""
    if mask is None:
        return values.mean(-1)
    kept = mask.to(values.dtype)
    return (values.masked_fill(~mask, 0)).sum(-1) / kept.sum(-1).clamp_min(1)


def seeded(device: torch.device, seed: int = 0) -> torch.Generator:
    """A fresh generator, so that no global one is touched."""
    return torch.Generator(device=device).manual_seed(seed)

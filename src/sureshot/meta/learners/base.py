"""What every few-shot learner offers, Bayesian or not.

``learner(tasks)`` gives one loss for each task, differentiable, for meta-training; ``learner.condition(support_x,
support_y)`` gives an immutable posterior, for use. All tasks of a batch are adapted in one tensor operation. This file
is what training, validation and evaluation know of a learner: how it turns inputs into answers is its own business.

Most learners adapt to embeddings that do not depend on the task, so that these can be computed once for thousands of
tasks: those are `sureshot.meta.learners.embedding.EmbeddingLearner`, which see. A learner that changes its network for
each task, by gradient steps say, derives from `ClassLearner` itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from sureshot.likelihoods.sites import check_labels
from sureshot.meta.tasks import TaskRows, Tasks


@dataclass(frozen=True)
class Latents:
    """Marginal moments of a score for every class; of latent functions for Gaussian processes."""

    mean: Tensor  # (T, Q, C)
    variance: Tensor  # (T, Q, C)


class TaskPosterior(ABC):
    """A learner conditioned on support sets; frozen: what becomes of the learner afterwards does not change it.

    Queries are as the support was: inputs (T, Q, ...), or embeddings if it was conditioned on embeddings.
    """

    @abstractmethod
    def predict(self, query: Tensor) -> Tensor:
        """Class probabilities (T, Q, C); classes that a task lacks get 0."""

    @abstractmethod
    def latents(self, query: Tensor) -> Latents:
        """Scores of the classes; larger is more likely."""

    def outlier_score(self, query: Tensor) -> Tensor:
        """How little a query is like any class, (T, Q): minus the largest score by default."""
        return -self.latents(query).mean.amax(-1)


class DrawsPosterior(TaskPosterior):
    """A conditioned learner of which several draws answer, their probabilities averaged."""

    @abstractmethod
    def logits(self, query: Tensor) -> Tensor:
        """Of each draw, (T, M, Q, C); minus infinity for absent classes."""

    def predict(self, query: Tensor) -> Tensor:
        return self.logits(query).softmax(-1).mean(1)

    def latents(self, query: Tensor) -> Latents:
        """Mean and variance of the logits over the draws; minus infinity and 0 for absent classes."""
        logits = self.logits(query)
        mean = logits.mean(1)
        spread = (logits - mean.unsqueeze(1)).nan_to_num(0.0)  # of infinities, which are alike
        return Latents(mean, spread.square().mean(1))


class Learner(nn.Module, ABC):
    """What training knows of a learner; derived classes write `network`, `check_tasks` and `input_losses`.

    Derived classes say what it answers: `ClassLearner` those of classes.
    """

    task_state: dict[str, Tensor] | None = None
    """What training carries from the tasks of a step to those of the next, tasks leading; see `Trainable.carried`."""

    config: dict[str, Any]
    """What `sureshot.meta.learners.learner_from_config` builds it from; JSON values."""

    @property
    def device(self) -> torch.device:
        """Where it is; the CPU if it holds nothing."""
        return next((part.device for part in chain(self.parameters(), self.buffers())), torch.device("cpu"))

    @property
    @abstractmethod
    def network(self) -> nn.Module | None:
        """The part with ``config`` and with a learning rate of its own, if it has one."""

    @abstractmethod
    def check_tasks(self, tasks: Tasks) -> None:
        """ValueError for targets that are none."""

    @abstractmethod
    def input_losses(self, tasks: Tasks, generator: torch.Generator) -> Tensor:
        """`forward` for what was checked."""

    def forward(
        self,
        tasks: Tasks,  # of inputs
        generator: torch.Generator | None = None,  # for learners that sample; a fixed seed without it
    ) -> Tensor:
        """One loss for each task, (T,), in nats per scored row.

        Raises
        ------
        ValueError
            If targets are out of range, or an input is not finite: statistics of batch normalisation would never
            recover from it.
        """
        self.check_tasks(tasks)
        require_finite("support_x", tasks.support_x, tasks.support_mask)
        require_finite("query_x", tasks.query_x, tasks.query_mask)
        return self.input_losses(tasks, generator or seeded(tasks.support_y.device))


class ClassLearner(Learner):
    """A learner of classes; derived classes write `network`, `input_losses` and `condition_inputs`."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Options by which a preset differs from the defaults; of learners that have settings of their own for it."""

    samples_images = False
    """Whether meta-training feeds single images of all base classes instead of episodes (see `Tasks.class_ids`)."""

    transductive = False
    """Whether the answer to a query depends on the other queries that are asked with it."""

    fits_temperature = False
    """Whether meta-training fits a temperature of the predictive probabilities on validation tasks."""

    @abstractmethod
    def condition_inputs(self, support: TaskRows, generator: torch.Generator) -> TaskPosterior:
        """`condition` for what was checked, in evaluation mode and without gradients."""

    def check_tasks(self, tasks: Tasks) -> None:
        check_labels(tasks.support_y, tasks.n_classes, "support_y")
        check_labels(tasks.query_y, tasks.n_classes, "query_y")

    def condition(
        self,
        support_x: Tensor,  # (T, S, ...)
        support_y: Tensor,  # (T, S) int64, labels 0..C-1
        n_classes: int | None = None,  # C; the largest label plus 1 by default
        support_mask: Tensor | None = None,  # (T, S), False for padding
        class_mask: Tensor | None = None,  # (T, C), False for a class that a task does not have
        generator: torch.Generator | None = None,  # for learners that sample; a fixed seed without it
    ) -> TaskPosterior:
        """Adapt to support sets.

        Raises
        ------
        ValueError
            If shapes or labels do not fit, a task has no row, there is one class only, or an input is not finite.
        """
        if support_y.dim() != 2 or support_x.shape[:2] != support_y.shape:
            raise ValueError(
                f"support_x must be (T, S, ...) and support_y (T, S), got {tuple(support_x.shape)} and "
                f"{tuple(support_y.shape)}: add a leading dimension for a single task"
            )
        if support_y.numel() == 0 or (support_mask is not None and not bool(support_mask.any(1).all())):
            raise ValueError("support_y must hold at least one labelled row of every task, and one has none")
        classes = int(support_y.max()) + 1 if n_classes is None else n_classes
        check_labels(support_y, classes, "support_y")
        if classes < 2:
            raise ValueError("support_y has one class only, and two are needed; pass n_classes if more exist")
        require_finite("support_x", support_x, support_mask)
        support = TaskRows(support_x, support_y, classes, support_mask, class_mask)
        support = support._replace(x=support.without_padding())  # what it holds shall not spoil a kernel matrix
        with evaluating(self):
            return self.condition_inputs(support, generator or seeded(support_y.device))

    def set_temperature(
        self,
        temperature: float,  # for tasks of `way` classes with `shots` labelled rows of each
        way: int = 2,
        growth: float = 0.0,
        shots: int = 1,
        shot_growth: float = 0.0,
    ) -> None:
        """Temper predictive probabilities, ``p^(1 / T)`` normalised; for learners with `fits_temperature`.

        T for C classes and S shots is ``temperature * (C / way) ** growth * (S / shots) ** shot_growth``; a learner may
        bound S.

        Raises
        ------
        ValueError
            For a learner without a temperature.
        """
        raise ValueError(f"{type(self).__name__} has no temperature of its own (got {temperature})")


@contextmanager
def evaluating(learner: nn.Module) -> Iterator[None]:
    """The learner in evaluation mode and without gradients; its mode is restored."""
    training = learner.training
    learner.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        learner.train(training)


def require_finite(name: str, x: Tensor, mask: Tensor | None) -> None:
    """Refuse NaN and infinite inputs (T, N, ...) in rows that count."""
    if not x.is_floating_point() or bool(torch.isfinite(x.sum())):
        return  # the sum of what is not finite is not finite, and costs a fraction of a look at every number
    broken = ~torch.isfinite(x).flatten(2).all(-1)
    if mask is not None:
        broken &= mask
    if bool(broken.any()):
        task, row = broken.nonzero()[0].tolist()
        raise ValueError(
            f"{name} has NaN or infinite numbers in {int(broken.sum())} rows, the first is row {row} of task {task}: "
            "fill them in or leave those rows out"
        )


def check_query(
    query: Tensor,  # (T, Q, ...)
    n_tasks: int,
) -> None:
    """Refuse queries of another number of tasks, or that are not finite (`ValueError`)."""
    if query.dim() < 2 or len(query) != n_tasks:
        raise ValueError(f"query_x must be (T, Q, ...) with the queries of {n_tasks} tasks, got {tuple(query.shape)}")
    require_finite("query_x", query, None)


def mean_over_rows(values: Tensor, mask: Tensor | None) -> Tensor:
    """Mean of (T, N) over the real rows of each task, (T,)."""
    if mask is None:
        return values.mean(-1)
    kept = mask.to(values.dtype)
    return (values.masked_fill(~mask, 0)).sum(-1) / kept.sum(-1).clamp_min(1)


def seeded(device: torch.device, seed: int = 0) -> torch.Generator:
    """A fresh generator, so that no global one is touched."""
    return torch.Generator(device=device).manual_seed(seed)

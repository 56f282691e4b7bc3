"""How a Gaussian-process learner gets from labels to latents, for a batch of tasks.

A learner is a kernel, a likelihood, a `TaskInference` and an objective. The inference gives two things, both
differentiable in the prior: the (approximate) log evidence of a labelled set, which marginal-likelihood training
maximises, and a posterior for queries, which predictive-likelihood training and prediction use.

Moments that a posterior gives are (S, T, C, Q), chains leading; deterministic schemes have one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from sureshot.gaussian.gram import GramPrior
from sureshot.gaussian.posterior import Posterior
from sureshot.inference.schemes import Scheme
from sureshot.likelihoods.base import Likelihood

TaskState = dict[str, Tensor]
"""What a scheme carries from the tasks of one step of training to those of the next, tasks leading; no gradient."""


class TaskProblem(NamedTuple):
    """Labelled rows of T tasks, and the prior of the latents at them."""

    prior: GramPrior  # `gram` (T, 1 or C, N, N), `mean` scalar or (T or 1, C, 1)
    y: Tensor  # (T, N) int64
    n_classes: int  # C
    weight: Tensor | None = None  # (T, N); one by default, zero for padding


class TaskInference(ABC):
    """A scheme of inference for batches of tasks; stateless.

    A `Scheme` conditions one table by its features until nothing moves; learners need gradients, kernel matrices, and
    the steps that were published. What both forms have in common, the scheme says. Training asks for `evidence` and
    `posterior`; `FewShotClassifier` for all the rest, of one task that may be large.
    """

    likelihood: Likelihood
    """What turns latents into class probabilities."""

    @property
    @abstractmethod
    def scheme(self) -> Scheme:
        """What this is the batch form of, which says how many chains there are and whether they are drawn."""

    @abstractmethod
    def evidence(
        self,
        problem: TaskProblem,
        generator: torch.Generator,
        start: TaskState | None = None,  # what the tasks of the step before ended with
    ) -> tuple[Tensor, TaskState | None]:
        """What marginal-likelihood training maximises, and the state for the next step.

        The first is (T,), in nats: log evidence, bound, or a surrogate of it. A scheme that carries nothing over starts
        every task anew, and its state is None.
        """

    @abstractmethod
    def posterior(
        self, problem: TaskProblem, generator: torch.Generator, start: TaskState | None = None
    ) -> tuple[Posterior, TaskState | None]:
        """The posterior given a support set, and the state for the next step; see `evidence`."""

    @abstractmethod
    def condition_alone(self, problem: TaskProblem, generator: torch.Generator) -> tuple[Posterior, float]:
        """The posterior of one task and its log evidence, in as little memory as the scheme can do with.

        T = 1, and there are rows of every class; no gradient is asked for. The log evidence is that of the labels, each
        counted with its weight, in nats: exact or a lower bound; NaN where there is neither.
        """

    @abstractmethod
    def entries(self, n_rows: int, n_classes: int, n_kernels: int) -> int:
        """Entries of the arrays that `condition_alone` holds at a time, with so many kernel matrices (1 or C)."""

"""What is averaged: something that answers about rows as they are kept, and the plan that it was made by."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from sureshot.estimators.gp.leaving import Leaving
from sureshot.estimators.gp.plan import Plan
from sureshot.estimators.rows.labelled_rows import LabelledRows
from sureshot.kernels import Expression

_SMALLEST_VARIANCE = 1e-300


def doubts(top: Tensor, variance: Tensor) -> Tensor:
    """Minus latent means (Q,) of the most likely classes in standard deviations."""
    return -top / variance.clamp_min(_SMALLEST_VARIANCE).sqrt()


@dataclass(frozen=True)
class Member(ABC):
    """Queries (Q, D) are rows as they are kept, or rows of kernel values if these are precomputed.

    The plan's temperature is the one before `calibrate`.
    """

    plan: Plan

    def weighing(self, weight: float) -> Self:
        """With another share of the average."""
        return replace(self, plan=replace(self.plan, weight=weight))

    @property
    @abstractmethod
    def kernel(self) -> Expression:
        """As a value, with the learned scales."""

    @abstractmethod
    def moments(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Means (S, C, Q) and what the predictive rule needs to know of their spread."""

    @abstractmethod
    def probabilities(self, mean: Tensor, spread: Tensor, temperature: float, n_classes: int) -> Tensor:
        """Class probabilities (Q, C), from moments divided by a temperature."""

    @abstractmethod
    def latents(self, queries: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
        """Means and variances (Q, C)."""

    @abstractmethod
    def outlier_scores(self, queries: Tensor, n_classes: int) -> Tensor:
        """Minus the latent mean of the most likely class in standard deviations, (Q,)."""

    @abstractmethod
    def average_and_entropy(
        self, queries: Tensor, temperature: float, n_classes: int, noise: float
    ) -> tuple[Tensor, Tensor]:
        """Mean probabilities (C, Q) over the whole posterior, and the mean entropy of probabilities (Q,)."""

    @abstractmethod
    def left_out(self, rows: LabelledRows, place: Tensor, n_classes: int, temperature: float) -> tuple[Tensor, Tensor]:
        """Class probabilities (M, C) and `outlier_scores` (M,) of labelled rows at places (M,), each without itself.

        The rows have the weights that they were learnt with.
        """

    @abstractmethod
    def leaving(self, rows: LabelledRows, n_classes: int) -> Leaving | None:
        """What `probabilities_without` needs to know of the labelled rows, if anything."""

    @abstractmethod
    def probabilities_without(
        self,
        queries: Tensor,
        without: Leaving | None,
        place: Tensor,  # (E,), of rows
        share: Tensor,  # (E,), of their weight that leaves
        temperature: float,
        n_classes: int,
    ) -> Tensor:
        """Class probabilities (Q, E, C) without each of some labelled rows."""

"""What `GPClassifier` has learnt: one Gaussian process, or several that are averaged, and what chose them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from sureshot.computing.threads import threads_for
from sureshot.estimators.classes.class_fitted import ClassFitted
from sureshot.estimators.gp.ensemble import Ensemble
from sureshot.estimators.gp.following import Followed
from sureshot.estimators.gp.global_member import GlobalMember
from sureshot.estimators.gp.leaving import Leaving
from sureshot.estimators.gp.member import Member
from sureshot.estimators.gp.plan import relevance_of
from sureshot.estimators.rows.labelled_rows import LabelledRows, part_of
from sureshot.estimators.rows.precomputed import MatrixReader
from sureshot.kernels import Expression
from sureshot.likelihoods.base import PredictiveRule


class EnsembleMember(NamedTuple):
    """What a user is told of a member."""

    weight: float
    kernel: Expression
    likelihood: str
    ranks: bool  # whether the kernel sees normal scores of the columns' ranks
    relevance: bool  # whether columns have length-scales of their own
    rule: PredictiveRule
    n_neighbours: int | None = None  # rows that it sees of each query; None: all that it has


@dataclass(frozen=True)
class LeftOutScores:
    """How right the labels of rows are that were left out one at a time, those of a class's only row not counted."""

    accuracy: float
    balanced_accuracy: float  # the mean of the classes'
    nll: float  # in nats,
    spread: float  # and its standard deviation from row to row


@dataclass(frozen=True)
class GPFitted(ClassFitted):
    """What a `GPClassifier` has learnt."""

    predictor: Ensemble
    score: float  # mean leave-one-out log probability in nats; NaN where no row could be left out
    weight_of_class: np.ndarray  # (C,), of all its rows, those of `class_weight` multiplied in
    left_out: LeftOutScores | None = field(default=None, kw_only=True)  # where probabilities of left-out rows are known
    chosen_by: tuple[int, int] = field(default=(0, 0), kw_only=True)  # how many rows, of how many classes; 0: unknown
    class_weight: Any = field(default=None, kw_only=True)  # the argument that was learnt with
    followed: Followed = field(default=Followed(math.nan), kw_only=True)  # by rows that came

    @property
    def outgrown(self) -> int:
        """How often rows or classes have doubled since settings were chosen by them."""
        now = len(self.rows.y), int(np.count_nonzero(self.frequencies))
        grown = (number / before for number, before in zip(now, self.chosen_by, strict=True) if before)
        return math.floor(math.log2(max([1.0, *grown])))

    def for_rows(self, n_rows: int) -> Self:
        """With the members that an average of so many rows may have."""
        members = self.predictor.for_rows(n_rows)
        if len(members) == len(self.members):
            return self
        # An average's temperature comes on top of its members', a single member's in place of its own.
        own = members[0].plan.temperature if len(members) == 1 else 1.0
        return replace(self, predictor=replace(self.predictor, members=members), temperature=self.temperature * own)

    @property
    def members(self) -> tuple[Member, ...]:
        """What is averaged, the heaviest first."""
        return self.predictor.members

    @property
    def globals(self) -> tuple[GlobalMember, ...]:
        """Those that see all their rows at once."""
        return self.predictor.globals

    @property
    def heaviest(self) -> Member:
        """The member of the largest weight."""
        return self.predictor.heaviest

    @property
    def frequencies(self) -> np.ndarray:
        """By the weights that were learnt with."""
        return self.weight_of_class

    def with_prior(self, class_prior: np.ndarray | None) -> Self:
        """Without the scores of left-out rows, which are by the prior of the fit."""
        return replace(self, class_prior=class_prior, left_out=None)

    @property
    def uncalibrated(self) -> Self:
        """Without label noise: held-out rows show how many labels are wrong, or none of them are."""
        return replace(self, predictor=replace(self.predictor, label_noise=0.0), left_out=None)

    @property
    def usual_temperature(self) -> float:
        """Of one member what its left-out rows were predicted best with, or what is usual."""
        return self.heaviest.plan.temperature if len(self.members) == 1 else 1.0

    @property
    def learnt(self) -> LabelledRows:
        """Those of classes whose weight is not 0."""
        return self.rows if self._counted.all() else part_of(self.rows, self._counted)

    @property
    def _counted(self) -> np.ndarray:
        """Of the rows (N,) bool, those of classes whose weight is not 0."""
        return self.weight_of_class[self.rows.y] > 0

    @cached_property
    def weighted(self) -> LabelledRows:
        """The rows of `learnt` with the weights of their classes multiplied in."""
        rows = self.learnt
        totals = np.bincount(rows.y, rows.weight, minlength=len(self.classes))
        of_class = self.weight_of_class / np.maximum(totals, 1e-300)
        return LabelledRows(rows.x, rows.y, rows.weight * of_class[rows.y], rows.weight)

    @cached_property
    def _left_out(self) -> tuple[Tensor, Tensor]:
        rows = self.weighted
        with threads_for(len(rows.y)):
            return self.predictor.left_out(rows, torch.from_numpy(self.places_left_out), self.temperature)

    @cached_property
    def _leaving(self) -> tuple[Leaving | None, ...]:
        """Of each member; of the rows that have weight."""
        rows = self.weighted
        return tuple(member.leaving(rows, len(self.classes)) for member in self.members)

    @property
    def entries_without(self) -> int:
        return max([len(self.classes), *(one.entries for one in self._leaving if one is not None)])

    def probabilities_without(self, queries: Tensor, place: Tensor, share: Tensor) -> Tensor:
        counted = torch.from_numpy(self._counted)
        share = share * counted[place]  # nothing leaves with a row of no weight
        place = (counted.cumsum(0) - 1).clamp_min(0)[place]
        return self.predictor.probabilities_without(queries, self._leaving, place, share, self.temperature)

    @property
    def has_distances(self) -> bool:
        """Not if kernel values are all there is."""
        return not self.precomputed

    @property
    def summary(self) -> tuple[EnsembleMember, ...]:
        """The members as a user is told of them."""
        return tuple(
            EnsembleMember(
                plan.weight,
                member.kernel,
                plan.model.likelihood,
                plan.scaling.ranks is not None,
                plan.scaling.relevance is not None,
                plan.rule,
                None if plan.local is None else plan.local.n_neighbours,
            )
            for member in self.members
            for plan in [member.plan]
        )

    @property
    def relevance(self) -> np.ndarray:
        """Factors of the columns as the user knows them, the average of the members'; 0 where none looks at one."""
        if self.precomputed or not self.reader.has_columns:
            return np.ones(self.columns.n_features)
        return relevance_of([member.plan for member in self.members], self.reader, self.rows.x.shape[1])

    @property
    def precomputed(self) -> bool:
        """Whether X is the kernel matrix."""
        return isinstance(self.reader, MatrixReader)


def evidence_of(members: Sequence[Member]) -> float:
    """Of the heaviest member that knows it."""
    known = (one.log_evidence for one in members if isinstance(one, GlobalMember))
    return next((value for value in known if not math.isnan(value)), math.nan)

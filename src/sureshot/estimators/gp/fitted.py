"""What `GPClassifier` has learnt: one Gaussian process, or several that are averaged."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from sureshot.computing.layout import aligned
from sureshot.computing.threads import threads_for
from sureshot.estimators.classes.temperature import log_probability, with_noise
from sureshot.estimators.classes.uncertainty import entropy
from sureshot.estimators.fitted import Fitted
from sureshot.estimators.gp.leaving import Leaving
from sureshot.estimators.gp.member import Member
from sureshot.estimators.gp.tuning.stacking import MOST_OF_SOME, SOME_ROWS, most_members
from sureshot.estimators.rows.precomputed import MatrixReader
from sureshot.estimators.rows.row_ids import part_of
from sureshot.estimators.rows.support import FEW_ROWS
from sureshot.estimators.rows.validation import LabelledRows
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


@dataclass(frozen=True)
class LeftOutScores:
    """How right the labels of rows are that were left out one at a time, those of a class's only row not counted."""

    accuracy: float
    balanced_accuracy: float  # the mean of the classes'
    nll: float  # in nats


@dataclass(frozen=True)
class GPFitted(Fitted):
    """See `Fitted`. Queries are rows as they are kept: each member scales columns in its own way.

    The temperature divides the latents of the only member, or the log probabilities of an average, whose members have
    temperatures of their own besides. An average expects a share of labels to be drawn at random, too.
    """

    members: tuple[Member, ...]  # the heaviest first
    score: float  # mean leave-one-out log probability in nats; NaN where no row could be left out
    weight_of_class: np.ndarray  # (C,), of all its rows, those of `class_weight` multiplied in
    label_noise: float = field(default=0.0, kw_only=True)  # that share; what `calibrate` sees tells better
    left_out: LeftOutScores | None = field(default=None, kw_only=True)  # where probabilities of left-out rows are known
    chosen_by: tuple[int, int] = field(default=(0, 0), kw_only=True)  # how many rows, of how many classes; 0: unknown
    class_weight: Any = field(default=None, kw_only=True)  # the argument that was learnt with

    @property
    def outgrown(self) -> int:
        """How often rows or classes have doubled since settings were chosen by them."""
        now = len(self.rows.y), int(np.count_nonzero(self.frequencies))
        grown = (number / before for number, before in zip(now, self.chosen_by, strict=True) if before)
        return math.floor(math.log2(max([1.0, *grown])))

    def for_rows(self, n_rows: int) -> GPFitted:
        """With the members that an average of so many rows may have, their weights brought to 1.

        Fewer than `FEW_ROWS` have chosen many, which more rows would pay for at every update. Of equally heavy ones
        those that stay are taken from all over the list, in which those of a kind stand together.
        """
        most = MOST_OF_SOME if n_rows < SOME_ROWS else most_members(n_rows, n_rows)
        if n_rows < FEW_ROWS or len(self.members) <= most:
            return self
        weights = np.array([member.plan.weight for member in self.members])
        least = np.sort(weights)[-most]
        heavier, equal = np.flatnonzero(weights > least), np.flatnonzero(weights == least)
        spread = np.linspace(0, len(equal) - 1, most - len(heavier)).round().astype(int)
        members = [self.members[place] for place in sorted([*heavier.tolist(), *equal[spread].tolist()])]
        total = sum(member.plan.weight for member in members)
        kept = tuple(replace(one, plan=replace(one.plan, weight=one.plan.weight / total)) for one in members)
        # An average's temperature comes on top of its members', a single member's in place of its own.
        own = kept[0].plan.temperature if len(kept) == 1 else 1.0
        return replace(self, members=kept, temperature=self.temperature * own)

    @property
    def frequencies(self) -> np.ndarray:
        """See `Fitted.frequencies`; by the weights that were learnt with."""
        return self.weight_of_class

    def inputs(self, kept: np.ndarray) -> Tensor:
        """See `Fitted.inputs`; kernel values as they are, if they are precomputed."""
        return torch.from_numpy(np.require(kept, requirements=["C", "W"]))

    def moments(self, queries: Tensor) -> tuple[Tensor, ...]:
        """See `Predictor.moments`: two tensors for each member."""
        return tuple(part for member in self.members for part in member.moments(queries))

    def probabilities(self, moments: tuple[Tensor, ...], temperature: float) -> Tensor:
        """See `Predictor.probabilities`."""
        if len(self.members) == 1:
            mean, spread = moments
            return self.heaviest.probabilities(mean, spread, temperature, len(self.classes))
        parts = (
            member.probabilities(mean, spread, member.plan.temperature, len(self.classes))
            for member, mean, spread in zip(self.members, moments[::2], moments[1::2], strict=True)
        )
        return self._tempered(parts, temperature)

    def _tempered(self, parts: Iterable[Tensor], temperature: float) -> Tensor:
        p = torch.softmax(log_probability(self._average(parts)) / temperature, 1)
        return with_noise(p.mT, self.label_noise).mT

    def with_prior(self, class_prior: np.ndarray | None) -> Self:
        """See `Fitted.with_prior`; without the scores of left-out rows, which are by the prior of the fit."""
        return replace(self, class_prior=class_prior, left_out=None)

    @property
    def uncalibrated(self) -> Self:
        """See `Fitted.uncalibrated`: held-out rows say how sure to be, of which other labels may be wrong or none."""
        return replace(self, label_noise=0.0, left_out=None)

    @property
    def usual_temperature(self) -> float:
        """See `Fitted.usual_temperature`: of one member what its left-out rows say, or what is usual."""
        return self.heaviest.plan.temperature if len(self.members) == 1 else 1.0

    @property
    def learnt(self) -> LabelledRows:
        """See `Fitted.learnt`: without those of classes whose weight is 0."""
        return part_of(self.rows, self._counted)

    @property
    def _counted(self) -> np.ndarray:
        """Of the rows (N,) bool, those of classes whose weight is not 0."""
        return self.weight_of_class[self.rows.y] > 0

    def outlier_scores_left_out(self) -> Tensor:
        """See `Fitted.outlier_scores_left_out`."""
        return self._average([said for _, said in self._members_left_out])

    def probabilities_left_out(self) -> Tensor:
        """See `Fitted.probabilities_left_out`."""
        p = [found for found, _ in self._members_left_out]
        return p[0] if len(p) == 1 else self._tempered(p, self.temperature)

    @cached_property
    def _members_left_out(self) -> list[tuple[Tensor, Tensor]]:
        """Of each member; see `Member.left_out`."""
        rows, n_classes, single = self.learnt, len(self.classes), len(self.members) == 1
        of_class = self.weight_of_class / np.maximum(np.bincount(rows.y, rows.weight, minlength=n_classes), 1e-300)
        weighted = LabelledRows(rows.x, rows.y, rows.weight * of_class[rows.y], rows.weight)
        with threads_for(len(rows.y)):
            return [
                member.left_out(weighted, n_classes, self.temperature if single else member.plan.temperature)
                for member in self.members
            ]

    def latents(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """See `Predictor.latents`; those of the mixture of chains, and of members.

        Members' latents are divided by their temperatures first, without which they are not comparable.
        """
        n_classes = len(self.classes)
        if len(self.members) == 1:
            return self.heaviest.latents(queries, n_classes)
        found = [(*member.latents(queries, n_classes), member.plan.temperature) for member in self.members]
        means = [mean / temperature for mean, _, temperature in found]
        average = self._average(means)
        spreads = [
            variance / temperature**2 + (mean - average).square()
            for mean, (_, variance, temperature) in zip(means, found, strict=True)
        ]
        return average, self._average(spreads)

    def outlier_scores(self, queries: Tensor) -> Tensor:
        """See `Predictor.outlier_scores`: the average of the members'."""
        return self._average([member.outlier_scores(queries, len(self.classes)) for member in self.members])

    def entropies(self, queries: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """See `Predictor.entropies`: what members disagree about is epistemic too."""
        single = len(self.members) == 1
        found = [
            member.average_and_entropy(
                queries,
                temperature if single else temperature * member.plan.temperature,
                len(self.classes),
                self.label_noise,
            )
            for member in self.members
        ]
        average, aleatoric = (self._average(parts) for parts in zip(*found, strict=True))
        return entropy(average, 0), aleatoric

    @cached_property
    def _leaving(self) -> tuple[Leaving, ...]:
        """Of each member; of the rows that have weight."""
        counted, n_classes = self._counted, len(self.classes)
        totals = np.bincount(self.rows.y, self.rows.weight, minlength=n_classes)
        weight = self.rows.weight * self.weight_of_class[self.rows.y] / totals[self.rows.y]
        found = []
        for member in self.members:
            y, of_rows = (aligned(part[counted], member.plan.device) for part in (self.rows.y, weight))
            found.append(member.leaving(y, of_rows, n_classes))
        return tuple(found)

    @property
    def entries_without(self) -> int:
        """See `Fitted.entries_without`."""
        return max(len(self.classes), *(one.entries for one in self._leaving))

    def probabilities_without(self, queries: Tensor, place: Tensor, share: Tensor) -> Tensor:
        """See `Fitted.probabilities_without`."""
        counted = torch.from_numpy(self._counted)
        share = share * counted[place]  # nothing leaves with a row of no weight
        place, single = (counted.cumsum(0) - 1).clamp_min(0)[place], len(self.members) == 1
        found = []
        for member, without in zip(self.members, self._leaving, strict=True):
            temperature = self.temperature if single else member.plan.temperature
            at, part = place.to(member.plan.device), share.to(member.plan.device)
            found.append(member.probabilities_without(queries, without, at, part, temperature, len(self.classes)))
        if single:
            return found[0]
        return self._tempered((p.flatten(0, 1) for p in found), self.temperature).view_as(found[0])

    @property
    def has_distances(self) -> bool:
        """See `Fitted.has_distances`: not if kernel values are all there is."""
        return not self.precomputed

    def _average(self, parts: Iterable[Tensor]) -> Tensor:
        return averaged(self.members, parts)

    @property
    def heaviest(self) -> Member:
        """The member of the largest weight."""
        return self.members[0]

    @property
    def kernel(self) -> Expression:
        """The heaviest member's kernel as a value, with the learned scales."""
        return self.heaviest.kernel

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
            )
            for member in self.members
            for plan in [member.plan]
        )

    @property
    def relevance(self) -> np.ndarray:
        """Factors of the columns as the user knows them, the average of the members'; 0 where none looks at one."""
        if self.precomputed or not self.reader.has_columns:
            return np.ones(self.columns.n_features)
        found = np.zeros(self.rows.x.shape[1])
        for plan in (member.plan for member in self.members):
            found[plan.scaling.kept] += plan.weight * (
                1.0 if plan.scaling.relevance is None else plan.scaling.relevance
            )
        return found if self.reader.encoder is None else self.reader.encoder.by_source(found)

    @property
    def precomputed(self) -> bool:
        """Whether X is the kernel matrix."""
        return isinstance(self.reader, MatrixReader)


def evidence_of(members: Sequence[Member]) -> float:
    """Of the heaviest member that knows it."""
    return next((one.log_evidence for one in members if not math.isnan(one.log_evidence)), math.nan)


def averaged(members: Sequence[Member], parts: Iterable[Tensor]) -> Tensor:
    """By the members' weights."""
    weighted = [member.plan.weight * part for member, part in zip(members, parts, strict=True)]
    return torch.stack(weighted).sum(0) if len(weighted) > 1 else weighted[0]

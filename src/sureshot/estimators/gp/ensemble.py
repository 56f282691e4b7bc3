"""Gaussian processes that are averaged, or a single one, as a predictor of classes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sureshot.estimators.classes.class_fitted import ClassPredictor
from sureshot.estimators.classes.temperature import log_probability, with_noise
from sureshot.estimators.classes.uncertainty import entropy
from sureshot.estimators.gp.global_member import GlobalMember
from sureshot.estimators.gp.leaving import Leaving
from sureshot.estimators.gp.member import Member
from sureshot.estimators.gp.tuning.stacking import MOST_OF_SOME, SOME_ROWS, most_members
from sureshot.estimators.rows.labelled_rows import LabelledRows
from sureshot.estimators.rows.support import FEW_ROWS


@dataclass(frozen=True)
class Ensemble(ClassPredictor):
    """Queries are rows as they are kept: each member scales columns in its own way.

    The temperature divides the latents of the only member, or the log probabilities of an average, whose members have
    temperatures of their own besides. An average expects a share of labels to be drawn at random, too.
    """

    members: tuple[Member, ...]  # the heaviest first
    n_classes: int
    label_noise: float = 0.0  # that share; what `calibrate` sees tells better

    @property
    def heaviest(self) -> Member:
        """The member of the largest weight."""
        return self.members[0]

    def inputs(self, kept: np.ndarray) -> Tensor:
        """Rows as they are, and kernel values as they are, if they are precomputed."""
        return torch.from_numpy(np.require(kept, requirements=["C", "W"]))

    def moments(self, queries: Tensor) -> tuple[Tensor, ...]:
        """Two tensors for each member."""
        return tuple(part for one in self.members for part in one.moments(queries))

    def probabilities(self, moments: tuple[Tensor, ...], temperature: float) -> Tensor:
        if len(self.members) == 1:
            mean, spread = moments
            return self.heaviest.probabilities(mean, spread, temperature, self.n_classes)
        parts = (
            member.probabilities(mean, spread, member.plan.temperature, self.n_classes)
            for member, mean, spread in zip(self.members, moments[::2], moments[1::2], strict=True)
        )
        return self._tempered(parts, temperature)

    def _tempered(self, parts: Iterable[Tensor], temperature: float) -> Tensor:
        p = torch.softmax(log_probability(self._average(parts)) / temperature, 1)
        return with_noise(p.mT, self.label_noise).mT

    def latents(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Those of the mixture of chains, and of members.

        Members' latents are divided by their temperatures first, without which they are not comparable.
        """
        found = [member.latents(queries, self.n_classes) for member in self.members]
        if len(found) == 1:
            return found[0]
        temperatures = [member.plan.temperature for member in self.members]
        means = [mean / temperature for (mean, _), temperature in zip(found, temperatures, strict=True)]
        average = self._average(means)
        spreads = [
            variance / temperature**2 + (mean - average).square()
            for mean, (_, variance), temperature in zip(means, found, temperatures, strict=True)
        ]
        return average, self._average(spreads)

    def outlier_scores(self, queries: Tensor) -> Tensor:
        """The average of the members'."""
        return self._average([one.outlier_scores(queries, self.n_classes) for one in self.members])

    def entropies(self, queries: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """What members disagree about is epistemic, too."""
        found = [
            member.average_and_entropy(queries, temperature * own, self.n_classes, self.label_noise)
            for member, own in zip(self.members, self._own_temperatures(1.0), strict=True)
        ]
        average, aleatoric = (self._average(parts) for parts in zip(*found, strict=True))
        return entropy(average, 0), aleatoric

    def left_out(self, rows: LabelledRows, place: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """Probabilities (M, C) and outlier scores (M,) of learnt rows at places (M,), each without itself."""
        found = [
            member.left_out(rows, place, self.n_classes, own)
            for member, own in zip(self.members, self._own_temperatures(temperature), strict=True)
        ]
        p, scores = zip(*found, strict=True)
        return p[0] if len(p) == 1 else self._tempered(p, temperature), self._average(scores)

    def probabilities_without(
        self,
        queries: Tensor,
        leaving: Sequence[Leaving | None],  # of each member
        place: Tensor,  # (E,) int64, among the rows that were learnt from
        share: Tensor,  # (E,), of the row's weight that leaves
        temperature: float,
    ) -> Tensor:
        """Of queries without each of some labelled rows, (Q, E, C)."""
        found = [
            member.probabilities_without(queries, without, place, share, own, self.n_classes)
            for member, without, own in zip(self.members, leaving, self._own_temperatures(temperature), strict=True)
        ]
        if len(found) == 1:
            return found[0]
        return self._tempered((p.flatten(0, 1) for p in found), temperature).view_as(found[0])

    def _own_temperatures(self, temperature: float) -> list[float]:
        """What divides the latents of each member; the given one divides those of the only one."""
        single = len(self.members) == 1
        return [temperature] if single else [member.plan.temperature for member in self.members]

    def _average(self, parts: Iterable[Tensor]) -> Tensor:
        return averaged(self.members, parts)

    @property
    def globals(self) -> tuple[GlobalMember, ...]:
        """Those that see all their rows at once, the heaviest first."""
        return tuple(member for member in self.members if isinstance(member, GlobalMember))

    def for_rows(self, n_rows: int) -> tuple[Member, ...]:
        """The members that an average of so many rows may have, their weights brought to 1.

        Fewer than `FEW_ROWS` have chosen many, which more rows would pay for at every update. Of equally heavy ones
        those that stay are taken from all over the list, in which those of a kind stand together. Local ones stay.
        """
        most = MOST_OF_SOME if n_rows < SOME_ROWS else most_members(n_rows)
        weights = np.array([member.plan.weight for member in self.globals])
        if n_rows < FEW_ROWS or len(weights) <= most:
            return self.members
        least = np.sort(weights)[-most]
        heavier, equal = np.flatnonzero(weights > least), np.flatnonzero(weights == least)
        spread = np.linspace(0, len(equal) - 1, most - len(heavier)).round().astype(int)
        places = {*heavier.tolist(), *equal[spread].tolist()}
        gone = {id(one) for place, one in enumerate(self.globals) if place not in places}
        members = [one for one in self.members if id(one) not in gone]
        total = sum(member.plan.weight for member in members)
        return tuple(one.weighing(one.plan.weight / total) for one in members)


def averaged(members: Sequence[Member], parts: Iterable[Tensor]) -> Tensor:
    """By the members' weights."""
    weighted = [member.plan.weight * part for member, part in zip(members, parts, strict=True)]
    return torch.stack(weighted).sum(0) if len(weighted) > 1 else weighted[0]

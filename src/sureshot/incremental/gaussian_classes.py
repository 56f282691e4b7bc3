"""The strategy `GaussianClasses`: of every class its mean and count, of all classes two covariances.

What the first session's classes say about how classes differ and how rows of a class spread (`two_covariances`, learnt
by `simulated_sessions`) stays; a later session adds rows to sums. So it costs O(D) for each row, the order of arrival
makes no difference, and no other class's density moves. Measured on sentence embeddings it is well ahead of the trees
of Gaussian processes (`tree_sessions`); the most probable of very many classes are found by groups (`class_beam`).

Where rows are features of a network that has learnt classes of the first session, some rows are kept whole, to
compare later classes with those (`first_or_later`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property

import torch
from torch import Tensor

from sureshot.computing.blocks import AT_ONCE, blocks
from sureshot.data.labelled import places_within_classes
from sureshot.incremental.class_beam import DEFAULT_BEAM, ClassBeam
from sureshot.incremental.first_or_later import FirstOrLater
from sureshot.incremental.simulated_sessions import learn_by_sessions, learn_with_unseen, worth_of
from sureshot.incremental.strategy import ClassRows, FirstSession, Leading, SessionModel, Strategy, most_probable
from sureshot.incremental.two_covariances import ClassSums, Discriminants, PredictiveDensities, TwoCovariances
from sureshot.tree.build import build_tree
from sureshot.tree.class_tree import ClassTree

ROWS_KEPT = 10
"""Rows of a class that are kept whole where a network was trained on others of the first session."""

_TREE_STARTS = 4


@dataclass(frozen=True)
class GaussianClassesModel(SessionModel):
    """Classes with their densities; see `SessionModel`."""

    covariances: TwoCovariances
    classes: ClassSums
    densities: PredictiveDensities
    discriminants: Discriminants
    of_network: bool  # whether rows are features of a network that has learnt some of the first session's
    kinds: FirstOrLater | None = None  # where left-out rows say how to decide between them

    usual_beam = DEFAULT_BEAM
    classes_for_a_branch = 48

    @classmethod
    def of(cls, covariances: TwoCovariances, kept: ClassRows, of_network: bool = False) -> GaussianClassesModel:
        """From rows; only their sums count, but for those of a network."""
        classes = ClassSums.of_rows(kept.x, kept.y, kept.n_classes, kept.weight)
        densities = covariances.densities(classes)
        found = cls(covariances, classes, densities, covariances.discriminants(densities, densities), of_network)
        return replace(found, kinds=_kinds(found, kept)) if of_network else found

    @property
    def n_classes(self) -> int:  # type: ignore[override]
        return len(self.classes.counts)

    @property
    def shared(self) -> Mapping[str, Tensor]:
        """The covariances, and a one if rows are features of a network."""
        found = {part.name: getattr(self.covariances, part.name) for part in fields(self.covariances)}
        return found | ({"of_network": torch.ones_like(self.covariances.temperature)} if self.of_network else {})

    @cached_property
    def tree(self) -> ClassTree:
        """Of the classes' means in the learned coordinates, built when first asked for."""
        return build_tree(self.densities.mean / self.covariances.within.sqrt(), n_starts=_TREE_STARTS)

    @property
    def log_evidence(self) -> float:
        """NaN, sums do not say how likely the rows were."""
        return math.nan

    @property
    def entries_per_query(self) -> int:
        return self.n_classes + len(self.covariances.within)

    def densities_at(self, x: Tensor) -> Tensor:
        """Log densities of queries over that of the first class, by the temperature, (Q, C)."""
        return self.discriminants.at(self.covariances.coordinates(x)) / self.covariances.temperature

    def over_prior(self, x: Tensor) -> Tensor:
        """Log densities of queries over that of a class without rows, by the temperature, (Q, C)."""
        return self.densities_at(x) + self._first_over_prior(x)

    def _first_over_prior(self, x: Tensor) -> Tensor:
        return self.covariances.first_over_prior(self.densities, x).unsqueeze(-1)

    def log_probabilities(self, x: Tensor) -> Tensor:
        """Classes are equally probable beforehand, but for what `kinds` says."""
        if self.kinds is None:
            return torch.log_softmax(self.densities_at(x), -1)
        return self.kinds.log_probabilities(self.over_prior(x))

    def class_latents(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """See `SessionModel.class_latents`.

        The log density of a query around a class's mean m over that around the centre, ``(z' m - m' m / 2) / w`` by the
        temperature, and less where a row is far from every class; its moments are those of a mean that is known from so
        many rows only. With `kinds` these are the latents of which log probabilities are made, up to a number for each
        query: together they are as dense as the classes are.
        """
        z, within = self.covariances.coordinates(x), self.covariances.within
        mean, spread = self.densities.mean, self.densities.mean_variance
        straight, relative = mean / within, spread / within.square()
        first = z @ straight.mT - 0.5 * ((mean.square() + spread) / within).sum(-1)
        linear, alone = (mean * relative).mT, ((mean.square() + spread / 2) * relative).sum(-1)
        second = z.square() @ relative.mT - 2 * z @ linear + alone
        share = self.discriminants.steepness(z) / self.covariances.temperature
        mean, variance = share * first, share.square() * second.clamp_min(0)
        if self.kinds is None:
            return mean, variance
        level = self.over_prior(x).logsumexp(-1, keepdim=True) - mean.logsumexp(-1, keepdim=True)
        return self.kinds.log_probabilities(mean + level), self.kinds.sharpness.square() * variance

    def latents(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Those of the classes."""
        mean, variance = self.class_latents(x)
        return mean.mT, variance.mT

    def class_logits(self, latents: Tensor) -> Tensor:
        """The latents themselves."""
        return latents

    def outlier_scores(self, x: Tensor) -> Tensor:
        """See `SessionModel.outlier_scores`.

        Log density under a class of which nothing is known, over that under the class that suits best.
        """
        seen = self.classes.counts > 0
        best = self.densities_at(x)[:, seen].amax(-1)
        return -(best + self.covariances.first_over_prior(self.densities, x))

    def leading(self, x: Tensor, k: int, beam: int | None, temperature: float = 1.0) -> Leading:
        """Probabilities are normalised over the classes that the beam has reached."""
        if beam is None:
            return most_probable(torch.log_softmax(self.log_probabilities(x) / temperature, -1), k)
        z = self.covariances.coordinates(x)
        scores, numbers = self._beam.candidates(z, self._beam.enough(beam, k))
        logs = scores / self.covariances.temperature
        if self.kinds is not None:
            logs = self.kinds.log_probabilities(logs + self._first_over_prior(x), numbers)
        logs = torch.log_softmax(logs / temperature, -1)
        found = logs.topk(k, dim=-1)
        return Leading(found.values, numbers.gather(-1, found.indices))

    @cached_property
    def _beam(self) -> ClassBeam:
        return ClassBeam.of(self.covariances, self.densities, self.discriminants)


@dataclass(frozen=True)
class GaussianClasses(Strategy):
    """See the module's docstring."""

    def groups(self, rows: ClassRows, before: SessionModel | None) -> Tensor:
        """A class is one group.

        Of a class that a network's features tell from others `ROWS_KEPT` rows are kept whole, of those that the
        network has not learnt; which, their values say, so that it is the same in any order and division.
        """
        of_network = before.of_network if isinstance(before, GaussianClassesModel) else rows.unseen is not None
        if not of_network:
            return rows.y
        single = rows.weight == 1
        if rows.unseen is not None:
            single &= rows.unseen
        direction = torch.randn(rows.x.shape[1], generator=torch.Generator().manual_seed(0), dtype=rows.x.dtype)
        order = torch.where(single, rows.x @ direction.to(rows.x), torch.inf).argsort()
        stays = single & (places_within_classes(rows.y, order) < ROWS_KEPT)
        return torch.where(stays, rows.n_classes + torch.arange(len(rows.y), device=rows.y.device), rows.y)

    def first_session(self, rows: ClassRows, kept: ClassRows, seed: int) -> FirstSession:
        x, y = rows.x, rows.y  # each once: copies of a row say nothing of how rows spread
        present, generator = y.unique(return_inverse=True)[1], torch.Generator().manual_seed(seed)
        if rows.unseen is None:
            found = learn_by_sessions(x, present, generator)
            return FirstSession(GaussianClassesModel.of(found, kept), rows.weight)
        covariances, worth = learn_with_unseen(x, present, rows.unseen, generator)
        learnt = rows.weight.new_zeros(rows.n_classes).index_add(0, y, rows.weight * ~rows.unseen)[y]
        share = torch.where(rows.unseen, 1.0, worth_of(learnt, worth) / learnt)
        weight = rows.weight * share
        return FirstSession(GaussianClassesModel.of(covariances, replace(rows, weight=weight), of_network=True), weight)

    def later_session(
        self, shared: Mapping[str, Tensor], kept: ClassRows, seed: int, before: SessionModel | None
    ) -> GaussianClassesModel:
        covariances = {name: part for name, part in shared.items() if name != "of_network"}
        return GaussianClassesModel.of(TwoCovariances(**covariances), kept, "of_network" in shared)


def _kinds(model: GaussianClassesModel, kept: ClassRows) -> FirstOrLater | None:
    """From the rows that are kept whole, each left out of its class."""
    single = (kept.weight == 1) & (model.classes.counts[kept.y] > 1)
    x, y = kept.x[single], kept.y[single]
    parts = blocks(len(y), kept.n_classes, AT_ONCE)
    scores = [_left_out(model, x[part], y[part]) for part in parts]
    return FirstOrLater.learnt(torch.cat(scores), y, kept.sessions > 0) if scores else None


def _left_out(model: GaussianClassesModel, x: Tensor, y: Tensor) -> Tensor:
    """`GaussianClassesModel.over_prior` at rows of classes (N,), each left out of its own."""
    covariances, classes, each = model.covariances, model.classes, torch.arange(len(y), device=y.device)
    first_over_prior = covariances.first_over_prior(model.densities, x)
    logs = model.densities_at(x) + first_over_prior.unsqueeze(-1)
    without = covariances.densities(ClassSums(classes.sums[y] - x, classes.counts[y] - 1))
    own = covariances.discriminants(without, model.densities).of(each.unsqueeze(1))
    at_own = own.at(covariances.coordinates(x).unsqueeze(1)).flatten() / covariances.temperature
    logs[each, y] = at_own + first_over_prior
    return logs

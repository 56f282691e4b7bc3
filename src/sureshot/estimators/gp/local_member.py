"""A member that sees of each query its nearest labelled rows only: a local regression on labels, and a link.

A row more or less is one more or fewer among those that may be near; nothing else has to be found again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sureshot.approximations.nearest_neighbours import NearestNeighbours, NearestRows
from sureshot.computing.layout import aligned
from sureshot.estimators.classes.temperature import with_noise
from sureshot.estimators.classes.uncertainty import average_and_entropy
from sureshot.estimators.gp.leaving import Leaving
from sureshot.estimators.gp.member import Member, doubts
from sureshot.estimators.gp.plan import Plan
from sureshot.estimators.gp.tuning.objective import label_link
from sureshot.estimators.rows.clock import Past
from sureshot.estimators.rows.labelled_rows import LabelledRows, part_of
from sureshot.estimators.rows.preprocessing import kernel_inputs
from sureshot.gaussian.local_regression import local_regression, local_regression_without
from sureshot.kernels import Expression, Scale
from sureshot.likelihoods.local_link import LabelLink


@dataclass(frozen=True)
class LocalMember(Member):
    """The regressions' targets are labels less the frequencies of the classes.

    Neighbours are found, and regressed on, by the processor; answers go to the device of the plan.
    """

    neighbours: NearestNeighbours
    link: LabelLink

    @classmethod
    def of(cls, plan: Plan, rows: LabelledRows, n_classes: int) -> LocalMember:
        """Of labelled rows with the weights that they are learnt with."""
        return cls._seeing(plan, _nearest(plan, rows), rows, n_classes)

    @classmethod
    def _seeing(cls, plan: Plan, nearest: NearestRows, rows: LabelledRows, n_classes: int) -> LocalMember:
        assert plan.local is not None
        y, weight = aligned(rows.y), aligned(rows.weight)
        noise, kernel = plan.model.noise / weight, _in_units(plan.kernel)
        found = NearestNeighbours(kernel, nearest, noise, plan.local.n_neighbours)
        return cls(plan, found, label_link(y, weight, n_classes))

    def with_rows(self, rows: LabelledRows, places: np.ndarray | None, n_classes: int) -> LocalMember:
        """Of these rows, where `places` of those that it has and of those that came are known: see `TrainingSet`."""
        known = self.neighbours.rows
        if places is None or len(places) < len(rows.y) or rows.y.size < len(known.keys):
            return LocalMember.of(self.plan, rows, n_classes)
        came = np.unique(places[len(known.keys) :])
        keys = known.keys.new_empty(len(rows.y), known.keys.shape[1])
        keys[torch.from_numpy(places[: len(known.keys)])] = known.keys
        keys[torch.from_numpy(came)] = _nearest(self.plan, part_of(rows, came)).keys
        return LocalMember._seeing(self.plan, NearestRows(keys), rows, n_classes)

    @property
    def kernel(self) -> Expression:
        return self.plan.kernel

    def moments(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        logits = self._logits(*self._regressed(self._inputs(queries))).mT.unsqueeze(0)
        return logits, torch.zeros_like(logits)

    def probabilities(self, mean: Tensor, spread: Tensor, temperature: float, n_classes: int) -> Tensor:
        return torch.softmax(mean[0].mT / temperature, 1)

    def latents(self, queries: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
        mean, variance = self._latents(*self._regressed(self._inputs(queries)))
        return mean, variance.unsqueeze(-1).expand_as(mean)

    def outlier_scores(self, queries: Tensor, n_classes: int) -> Tensor:
        mean, variance = self._regressed(self._inputs(queries))
        return doubts(mean.amax(1), variance)

    def average_and_entropy(
        self, queries: Tensor, temperature: float, n_classes: int, noise: float
    ) -> tuple[Tensor, Tensor]:
        mean, variance = self._latents(*self._regressed(self._inputs(queries)))

        def probabilities(latents: Tensor) -> Tensor:
            return with_noise(torch.softmax(latents / temperature, -2), noise)

        return average_and_entropy(mean.mT[None], variance.expand_as(mean.mT)[None], probabilities)

    def left_out(self, rows: LabelledRows, place: Tensor, n_classes: int, temperature: float) -> tuple[Tensor, Tensor]:
        mean, variance = self.regressed_without_themselves(rows, place)
        return torch.softmax(self._logits(mean, variance) / temperature, 1), doubts(mean.amax(1), variance)

    def probabilities_left_out(self, rows: LabelledRows, place: Tensor) -> Tensor:
        """Class probabilities (M, C) of labelled rows at places (M,), each without itself."""
        return torch.softmax(self._logits(*self.regressed_without_themselves(rows, place)), 1)

    def regressed_without_themselves(self, rows: LabelledRows, place: Tensor) -> tuple[Tensor, Tensor]:
        """Means (M, C) and variances (M,) of labelled rows at places (M,)."""
        share = aligned(rows.left_out_shares)[place]
        known, past = self.neighbours.rows.x, self.past(rows)
        if past is None:
            return self._regressed(known[place], place, share)
        return self._regressed(past.asked(known, place), place, share, past)

    def past(self, rows: LabelledRows) -> Past | None:
        """What each of its rows is predicted from, where time matters."""
        local, scaling = self.plan.local, self.plan.scaling
        if local is None or local.batch is None or scaling.time is None:
            return None
        times = rows.x[:, scaling.kept[scaling.time]]
        return Past.of(times, rows.lots, local.batch, scaling.time, local.counted)

    def leaving(self, rows: LabelledRows, n_classes: int) -> Leaving | None:
        return None

    def probabilities_without(
        self, queries: Tensor, without: Leaving | None, place: Tensor, share: Tensor, temperature: float, n_classes: int
    ) -> Tensor:
        """Rows that are no neighbours change nothing; in the place of a neighbour no other comes in."""
        place, share, n_rows, found = place.cpu(), share.cpu(), len(self.neighbours.noise), []
        for _, near, problem in self.neighbours.around(self._inputs(queries), entries=n_classes):
            targets = self.link.targets(near)
            logits = self._logits(*_moments(local_regression(problem, targets)))
            every = logits.unsqueeze(1).repeat(1, len(place), 1)
            slots = torch.arange(near.shape[1]).expand_as(near)
            slot = torch.full((len(near), n_rows), -1).scatter_(1, near, slots)[:, place]
            query, entry = (slot >= 0).nonzero(as_tuple=True)
            changed = local_regression_without(problem, targets, query, slot[query, entry], share[entry])
            every[query, entry] = self._logits(*_moments(changed))
            found.append(torch.softmax(every / temperature, -1))
        return torch.cat(found).to(self.plan.device)

    def _inputs(self, queries: Tensor) -> Tensor:
        return _inputs(self.plan, queries.numpy())

    @torch.no_grad()
    def _regressed(
        self, queries: Tensor, own: Tensor | None = None, share: Tensor | None = None, past: Past | None = None
    ) -> tuple[Tensor, Tensor]:
        """Means (Q, C) and variances (Q,)."""
        hides = None if past is None else past.hides
        around = self.neighbours.around(queries, own, share, len(self.link.frequency), hides)
        found = [_moments(local_regression(problem, self.link.targets(place))) for _, place, problem in around]
        mean, variance = zip(*found, strict=True)
        return torch.cat(mean).to(self.plan.device), torch.cat(variance).to(self.plan.device)

    def _logits(self, mean: Tensor, variance: Tensor) -> Tensor:
        assert self.plan.local is not None
        return self.link.logits(self.plan.local.gain, self.plan.local.doubt, mean, variance)

    def _latents(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        assert self.plan.local is not None
        return self.link.latents(self.plan.local.gain, self.plan.local.doubt, mean, variance)


def _inputs(plan: Plan, kept: np.ndarray) -> Tensor:
    """Rows as they are kept, in units of length-scales."""
    return kernel_inputs(kept, plan.scaling, torch.device("cpu")) / _leaf(plan.kernel).lengthscale


def _nearest(plan: Plan, rows: LabelledRows) -> NearestRows:
    return NearestRows.of(_inputs(plan, rows.x), aligned(rows.lots))


def _in_units(kernel: Scale) -> Expression:
    leaf = _leaf(kernel)
    return leaf.replace(lengthscale=torch.ones_like(leaf.lengthscale))


def _leaf(kernel: Scale) -> Any:
    """The leaf of a local member's kernel, for the processor."""
    return kernel.base_kernel.to("cpu")


def _moments(found: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Mean and variance, by mean and what is explained of the prior variance."""
    return found[0], (1 - found[1]).clamp_min(0)

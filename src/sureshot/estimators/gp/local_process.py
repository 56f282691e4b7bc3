"""A Gaussian process that sees of each query its nearest labelled rows only. It knows no classes.

A row more or less is one more or fewer among those that may be near; nothing else has to be found again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sureshot.approximations.nearest_neighbours import NearestNeighbours, NearestRows
from sureshot.computing.layout import aligned
from sureshot.estimators.gp.plan import Plan
from sureshot.estimators.rows.clock import Past
from sureshot.estimators.rows.labelled_rows import LabelledRows, part_of
from sureshot.estimators.rows.preprocessing import kernel_inputs
from sureshot.gaussian.local_regression import local_regression, local_regression_without
from sureshot.kernels import Expression, Scale
from sureshot.likelihoods.local_link import LocalLink

Moments = tuple[Tensor, Tensor]
"""Means (Q, P) of the regression's targets, less their prior means, and variances (Q,) of latents of variance 1."""


class Without(NamedTuple):
    """What a block of queries is told without some labelled rows."""

    given: Moments  # all rows
    query: Tensor  # (M,) int64, of the block, and
    entry: Tensor  # (M,) int64, the row that leaves, where that changes anything
    changed: Moments  # (M, P) and (M,)


@dataclass(frozen=True)
class LocalProcess:
    """Neighbours are found, and regressed on, by the processor; answers go to the device of the plan."""

    plan: Plan
    neighbours: NearestNeighbours
    link: LocalLink  # whose targets the rows have

    @classmethod
    def of(cls, plan: Plan, rows: LabelledRows, link: LocalLink) -> LocalProcess:
        """Of labelled rows with the weights that they are learnt with."""
        return cls._seeing(plan, _nearest(plan, rows), rows, link)

    @classmethod
    def _seeing(cls, plan: Plan, nearest: NearestRows, rows: LabelledRows, link: LocalLink) -> LocalProcess:
        assert plan.local is not None
        noise, kernel = plan.model.noise / aligned(rows.weight), _in_units(plan.kernel)
        return cls(plan, NearestNeighbours(kernel, nearest, noise, plan.local.n_neighbours), link)

    def with_rows(self, rows: LabelledRows, places: np.ndarray | None, link: LocalLink) -> LocalProcess:
        """Of these rows, where `places` of those that it has and of those that came are known: see `TrainingSet`."""
        known = self.neighbours.rows
        if places is None or len(places) < len(rows.y) or rows.y.size < len(known.keys):
            return LocalProcess.of(self.plan, rows, link)
        came = np.unique(places[len(known.keys) :])
        keys = known.keys.new_empty(len(rows.y), known.keys.shape[1])
        keys[torch.from_numpy(places[: len(known.keys)])] = known.keys
        keys[torch.from_numpy(came)] = _nearest(self.plan, part_of(rows, came)).keys
        return LocalProcess._seeing(self.plan, NearestRows(keys), rows, link)

    def inputs(self, queries: Tensor) -> Tensor:
        """Rows (Q, D) as they are kept, in units of length-scales."""
        return _inputs(self.plan, queries.numpy())

    def moments(self, queries: Tensor) -> Moments:
        """Of rows (Q, D) as they are kept."""
        return self._regressed(self.inputs(queries))

    def moments_without_themselves(self, rows: LabelledRows, place: Tensor) -> Moments:
        """Of labelled rows at places (M,)."""
        share = aligned(rows.left_out_shares)[place]
        known, past = self.neighbours.rows.x, self.past(rows)
        if past is None:
            return self._regressed(known[place], place, share)
        return self._regressed(past.asked(known, place), place, share, past)

    def without(self, queries: Tensor, place: Tensor, share: Tensor) -> Iterator[Without]:
        """Rows (Q, D) in blocks, each without each of the labelled rows at places (E,), of which a share (E,) leaves.

        Rows that are no neighbours change nothing; in the place of a neighbour no other comes in.
        """
        place, share, n_rows = place.cpu(), share.cpu(), len(self.neighbours.noise)
        for _, near, problem in self.neighbours.around(self.inputs(queries), entries=self.link.width):
            targets = self.link.targets(near)
            slots = torch.arange(near.shape[1]).expand_as(near)
            slot = torch.full((len(near), n_rows), -1).scatter_(1, near, slots)[:, place]
            query, entry = (slot >= 0).nonzero(as_tuple=True)
            changed = local_regression_without(problem, targets, query, slot[query, entry], share[entry])
            given = unexplained_moments(local_regression(problem, targets))
            yield Without(given, query, entry, unexplained_moments(changed))

    def past(self, rows: LabelledRows) -> Past | None:
        """What each of its rows is predicted from, where time matters."""
        local, scaling = self.plan.local, self.plan.scaling
        if local is None or local.batch is None or scaling.time is None:
            return None
        times = rows.x[:, scaling.kept[scaling.time]]
        return Past.of(times, rows.lots, local.batch, scaling.time, local.counted)

    @torch.no_grad()
    def _regressed(
        self, queries: Tensor, own: Tensor | None = None, share: Tensor | None = None, past: Past | None = None
    ) -> Moments:
        hides = None if past is None else past.hides
        around = self.neighbours.around(queries, own, share, self.link.width, hides)
        found = [unexplained_moments(local_regression(near, self.link.targets(place))) for _, place, near in around]
        mean, variance = zip(*found, strict=True)
        return torch.cat(mean).to(self.plan.device), torch.cat(variance).to(self.plan.device)


def unexplained_moments(found: Sequence[Tensor]) -> Moments:
    """By mean and what is explained of the prior variance."""
    return found[0], (1 - found[1]).clamp_min(0)


def _inputs(plan: Plan, kept: np.ndarray) -> Tensor:
    return kernel_inputs(kept, plan.scaling, torch.device("cpu")) / _leaf(plan.kernel).lengthscale


def _nearest(plan: Plan, rows: LabelledRows) -> NearestRows:
    return NearestRows.of(_inputs(plan, rows.x), aligned(rows.lots))


def _in_units(kernel: Scale) -> Expression:
    leaf = _leaf(kernel)
    return leaf.replace(lengthscale=torch.ones_like(leaf.lengthscale))


def _leaf(kernel: Scale) -> Any:
    """The leaf of a local member's kernel, for the processor."""
    return kernel.base_kernel.to("cpu")

"""What `GPRegressor` has learnt: one Gaussian process, or several that are averaged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sureshot.computing.threads import threads_for
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.gp.number_member import NumberMember, NumberMoments, seen_by
from sureshot.estimators.gp.plan import relevance_of
from sureshot.estimators.gp.row_noise import RowNoise, Widths
from sureshot.estimators.gp.solved_member import evidence_of
from sureshot.estimators.numbers.mixture import NormalMixture
from sureshot.estimators.numbers.number_fitted import MOST_JUDGES, NumberFitted, NumberPredictor, Pulling, judges
from sureshot.estimators.numbers.prediction import Prediction
from sureshot.estimators.numbers.target_scale import TargetScale
from sureshot.estimators.rows.labelled_rows import LabelledRows
from sureshot.kernels import Expression


class NumberEnsembleMember(NamedTuple):
    """What a user is told of a member."""

    weight: float
    kernel: Expression
    noise: float  # deviation of a number around the function, in deviations of the target on its scale
    ranks: bool  # whether the kernel sees normal scores of the columns' ranks
    relevance: bool  # whether columns have length-scales of their own
    n_neighbours: int | None = None  # rows that it sees of each query; None: all that it has


@dataclass(frozen=True)
class NumberEnsemble(NumberPredictor):
    """Members and their weights."""

    members: tuple[NumberMember, ...]  # the heaviest first
    row_noise: RowNoise | None = None

    @property
    def weight(self) -> np.ndarray:
        return np.array([member.plan.weight for member in self.members])

    def inputs(self, kept: np.ndarray) -> Tensor:
        """Rows as they are."""
        return torch.from_numpy(np.require(kept, requirements=["C", "W"]))

    def moments(self, queries: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        mean, *variances = stacked([member.moments(queries) for member in self.members])
        widths = mean.new_ones(len(mean), mean.shape[2])
        if self.row_noise is not None:
            widths = torch.from_numpy(self.row_noise.factors(queries)).to(mean)
        return mean, variances[0], variances[1], widths


def stacked(found: list[NumberMoments]) -> tuple[Tensor, Tensor, Tensor]:
    """Of each member: means (Q, M, P), and variances (Q, M) of numbers and of latents."""
    return (
        torch.stack([one.mean for one in found], 1),
        torch.stack([one.total for one in found], 1),
        torch.stack([one.variance for one in found], 1),
    )


def left_out_moments(
    members: Sequence[NumberMember], rows: LabelledRows, target: TargetScale, place: Tensor
) -> list[NumberMoments]:
    """What each member says of rows at places (K,), each without itself."""
    with threads_for(len(rows.y)):
        return [member.left_out(seen_by(member.plan, rows, target), rows, place) for member in members]


def told_without(
    members: Sequence[NumberMember], rows: LabelledRows, target: TargetScale, place: Tensor
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same as sure as left-out rows allow: means (K, M, P), and variances (K, M) of numbers and of latents."""
    found = left_out_moments(members, rows, target, place)
    sure = [member.tempered(moments) for member, moments in zip(members, found, strict=True)]
    mean, variance, latent = (part.cpu().numpy() for part in stacked(sure))
    return mean, variance, latent


@dataclass(frozen=True)
class GPNumbersFitted(NumberFitted):
    """What a `GPRegressor` has learnt."""

    predictor: NumberEnsemble
    trusted: np.ndarray | None = field(default=None, kw_only=True)  # (N,), shares of rows' weights; None: all of them
    squared_errors: np.ndarray | None = field(default=None, kw_only=True)  # (N, P), see `RowNoise`; None: one width

    @classmethod
    def of(
        cls, training: TrainingSet, members: Sequence[NumberMember], target: TargetScale, **others: Any
    ) -> GPNumbersFitted:
        """Of the rows of a training set."""
        return cls(
            columns=training.columns,
            reader=training.reader,
            rows=training.rows,
            log_evidence=evidence_of(members),
            predictor=NumberEnsemble(tuple(members)),
            target=target,
            one_target=training.one_target,
            **others,
        )

    def with_members(self, members: Sequence[NumberMember], **others: Any) -> GPNumbersFitted:
        """By other members, of other rows or other shares of their weights."""
        predictor = replace(self.predictor, members=tuple(members))
        return replace(self, predictor=predictor, log_evidence=evidence_of(members), **others)

    @property
    def members(self) -> tuple[NumberMember, ...]:
        """The heaviest first."""
        return self.predictor.members

    @property
    def kernel(self) -> Expression:
        """Of the heaviest member, with its scales."""
        return self.members[0].plan.kernel

    @property
    def summary(self) -> tuple[NumberEnsembleMember, ...]:
        """The members as a user is told of them."""
        return tuple(
            NumberEnsembleMember(
                plan.weight,
                plan.kernel,
                plan.temperature * math.sqrt(plan.model.noise * (1.0 if plan.local is None else plan.local.gain)),
                plan.scaling.ranks is not None,
                plan.scaling.relevance is not None,
                None if plan.local is None else plan.local.n_neighbours,
            )
            for plan in (member.plan for member in self.members)
        )

    @property
    def relevance(self) -> np.ndarray:
        """Factors of the columns as the user knows them, the average of the members'; 0 where none looks at one."""
        if not self.reader.has_columns:
            return np.ones(self.columns.n_features)
        return relevance_of([member.plan for member in self.members], self.reader, self.rows.x.shape[1])

    @property
    def weighted(self) -> LabelledRows:
        """The rows with the weights that they are learnt with."""
        return trusting(self.rows, self.trusted)

    @property
    def widths(self) -> Widths | None:
        """By which noise depends on the row, if it does."""
        return None if self.predictor.row_noise is None else self.predictor.row_noise.widths

    def with_widths(self, widths: Widths, squared: np.ndarray) -> GPNumbersFitted:
        """With noise that depends on the row, by squared errors (N, P), NaN where they are not known."""
        noise = RowNoise.of(widths, self.rows, squared)
        return replace(self, predictor=replace(self.predictor, row_noise=noise), squared_errors=squared)

    def with_degrees(self, degrees: float) -> GPNumbersFitted:
        """With other tails, which change nothing of what members say of left-out rows."""
        found = replace(self, degrees=degrees)
        found.__dict__.update(without=self.without, widths_without=self.widths_without)
        return found

    @cached_property
    def without(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What members say of the judges, each left out; see `told_without`."""
        return told_without(self.members, self.weighted, self.target, judges(self.rows))

    @cached_property
    def widths_without(self) -> np.ndarray:
        """What the judges multiply deviations by, each left out, (K, P)."""
        place, noise = judges(self.rows).numpy(), self.predictor.row_noise
        return np.ones((len(place), self.rows.y.shape[1])) if noise is None else noise.factors_without(self.rows, place)

    @property
    def errors_without(self) -> np.ndarray:
        """How far off the judges' numbers are, each left out, (K, P), in deviations of the members' average."""
        mean, variance, _ = self.without
        return self._averaged(mean, variance).errors(self.target(self.rows.y[judges(self.rows).numpy()]))

    @cached_property
    def every_error(self) -> np.ndarray:
        """The same of all rows (N, P)."""
        n_rows = len(self.rows.y)
        if n_rows <= MOST_JUDGES:
            return self.errors_without
        mean, variance, _ = told_without(self.members, self.weighted, self.target, torch.arange(n_rows))
        return self._averaged(mean, variance).errors(self.target(self.rows.y))

    def errors(self, rows: LabelledRows) -> np.ndarray:
        """How far off the numbers of other rows are, (n, P), in deviations."""
        with torch.no_grad():
            moments = [part.cpu().numpy() for part in self.predictor.moments(self.predictor.inputs(rows.x))]
        mean, variance, _, widths = moments
        return self._averaged(mean, variance).errors(self.target(rows.y)) / widths

    def _averaged(self, mean: np.ndarray, variance: np.ndarray) -> NormalMixture:
        """Of members with these means (n, M, P) and variances (n, M)."""
        return NormalMixture(self.predictor.weight, np.moveaxis(mean, 1, 0), np.sqrt(variance).T[..., None])

    def pulling(self) -> Pulling:
        rows = self.weighted
        prepared = [(member, seen_by(member.plan, rows, self.target)) for member in self.members]

        def pulls(queries: Tensor, place: Tensor, share: Tensor) -> Tensor:
            found = [one.plan.weight * one.pulls(seen, rows, queries, place, share).cpu() for one, seen in prepared]
            return torch.stack(found).sum(0)

        return pulls

    def covariance_within(self, queries: Tensor) -> np.ndarray:
        weighted = zip(self.predictor.weight, self.members, strict=True)
        found: np.ndarray = sum(weight * one.covariance(queries).cpu().numpy() for weight, one in weighted)
        return found

    @cached_property
    def left_out(self) -> tuple[np.ndarray, Prediction]:
        return self.rows.y[judges(self.rows).numpy()], self.prediction(*self.without, self.widths_without)

    @cached_property
    def left_out_densities(self) -> np.ndarray:
        """Log densities (K,) of left-out rows, in nats, in units of the numbers."""
        y, found = self.left_out
        densities: np.ndarray = found.log_density(y).sum(axis=1)
        return densities

    @cached_property
    def score(self) -> float:
        """Their mean."""
        if len(self.rows.y) < 2:
            return math.nan
        evidence = self.rows.evidence[judges(self.rows).numpy()]
        return float(evidence @ self.left_out_densities / evidence.sum())


def trusting(rows: LabelledRows, trusted: np.ndarray | None) -> LabelledRows:
    """Rows with shares (n,) of their weights."""
    return rows if trusted is None else replace(rows, weight=rows.weight * trusted, copies=rows.weight)

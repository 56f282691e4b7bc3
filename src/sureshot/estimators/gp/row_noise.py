"""Noise that depends on the row: how far off left-out numbers were, as a function of the rows, by nearest rows.

A local regression of the logarithms of squared left-out errors, ``log(z^2 + c)``, says of any row what is usual near
it, g. Deviations are multiplied by ``exp((a + b g) / 2)``, with a level and a slope by which left-out errors are most
probable; they stay as they are unless that is clearly more probable than one width for all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from sureshot.estimators.gp.local_fitting import local_plans
from sureshot.estimators.gp.number_member import LocalNumberMember, seen_by
from sureshot.estimators.gp.plan import Plan
from sureshot.estimators.gp.settings import Settings
from sureshot.estimators.gp.tuning.log_density import LogDensity
from sureshot.estimators.numbers.support import supports
from sureshot.estimators.numbers.tails import is_ahead
from sureshot.estimators.numbers.target_scale import TargetScale
from sureshot.estimators.rows.labelled_rows import LabelledRows, part_of
from sureshot.estimators.rows.preprocessing import Scaling

_LEAST = 0.05  # added to squared errors: a number that is met by chance says little
_STEEPEST = 2.0
_KEPT_APART = 1e-9


@dataclass(frozen=True)
class Widths:
    """By which the noise of a row follows from what is usual near it, for P targets."""

    plan: Plan  # of the regression
    level: np.ndarray  # (P,)
    slope: np.ndarray  # (P,)

    def check_parts(self) -> None:
        """ValueError for parts that make no widths."""
        if self.plan.local is None or self.level.shape != self.slope.shape:
            raise ValueError("malformed noise of rows")


@dataclass(frozen=True)
class RowNoise:
    """What deviations are multiplied by."""

    widths: Widths
    member: LocalNumberMember
    rows: LabelledRows  # whose targets are logarithms of squared errors
    seen: np.ndarray  # (N,) bool, which of all rows these are
    scale: TargetScale

    @classmethod
    def of(cls, widths: Widths, rows: LabelledRows, errors: np.ndarray) -> RowNoise:
        """By rows and their squared errors (N, P) in deviations; NaN of rows whose errors are not known."""
        seen, some, scale = _logarithms(rows, errors)
        member = LocalNumberMember.of(widths.plan, seen_by(widths.plan, some, scale), some)
        return cls(widths, member, some, seen, scale)

    def factors(self, queries: Tensor) -> np.ndarray:
        """Of rows (Q, D) as they are kept, (Q, P)."""
        return self._factors(self.member.latents(queries).mean)

    def factors_without(self, rows: LabelledRows, place: np.ndarray) -> np.ndarray:
        """Of rows at places (M,) of all, each without itself, (M, P)."""
        found = np.empty((len(place), len(self.widths.level)))
        seen = self.seen[place]
        if not seen.all():
            found[~seen] = self.factors(torch.from_numpy(rows.x[place[~seen]]))
        if seen.any():
            found[seen] = self._factors(self._left_out((np.cumsum(self.seen) - 1)[place[seen]]))
        return found

    def usual_without(self) -> np.ndarray:
        """Logarithms (K, P) of squared errors that are usual near its rows, each left out."""
        return self._usual(self._left_out(np.arange(len(self.rows.y))))

    def _left_out(self, place: np.ndarray) -> Tensor:
        support = seen_by(self.widths.plan, self.rows, self.scale)
        return self.member.left_out(support, self.rows, torch.from_numpy(place)).mean

    def _usual(self, mean: Tensor) -> np.ndarray:
        return self.scale.back(mean.cpu().numpy())

    def _factors(self, mean: Tensor) -> np.ndarray:
        factors: np.ndarray = np.exp(0.5 * (self.widths.level + self.widths.slope * self._usual(mean)))
        return factors


def row_noise(settings: Settings, scaling: Scaling, rows: LabelledRows, errors: np.ndarray) -> Widths | None:
    """By rows and their left-out errors (N, P) in deviations, NaN where they are not known; None: one width for all."""
    squared, ones = errors**2, np.ones(errors.shape[1])
    known = RowNoise.of(Widths(_plan(settings, scaling, rows, squared), 0 * ones, ones), rows, squared)
    usual, own = known.usual_without(), squared[known.seen]
    level, slope = (np.array(part) for part in zip(*map(_fit, usual.T, own.T), strict=True))
    gain = (_losses(own, np.log(own.mean(axis=0) + _KEPT_APART)) - _losses(own, level + slope * usual)).sum(axis=1)
    if not is_ahead(gain):
        return None
    return replace(known.widths, level=level, slope=slope)


def _plan(settings: Settings, scaling: Scaling, rows: LabelledRows, squared: np.ndarray) -> Plan:
    _, some, scale = _logarithms(rows, squared)

    one = replace(settings, kernel="auto", ensemble=False)
    (plan,) = local_plans(one, some, supports(scale), LogDensity("plug_in"), scaling, None)
    return plan


def _logarithms(rows: LabelledRows, squared: np.ndarray) -> tuple[np.ndarray, LabelledRows, TargetScale]:
    """Which squared errors (N, P) are known, (N,); those rows with the logarithms for targets, and their scale."""
    seen = ~np.isnan(squared).any(axis=1)
    some = replace(part_of(rows, seen), y=np.log(squared[seen] + _LEAST))
    return seen, some, TargetScale.of(some.y, some.weight)


def _fit(usual: np.ndarray, squared: np.ndarray) -> tuple[float, float]:
    """Level and slope (2,) by maximum likelihood; the level is in closed form."""

    def level(slope: float) -> float:
        return math.log(float(np.mean(squared * np.exp(-slope * usual))) + _KEPT_APART)

    def loss(slope: float) -> float:
        return float(_losses(squared, level(slope) + slope * usual).mean())

    slope = float(minimize_scalar(loss, bounds=(0.0, _STEEPEST), method="bounded").x)
    return level(slope), slope


def _losses(squared: np.ndarray, log_variance: np.ndarray) -> np.ndarray:
    """Of normals with these variances, in nats, but for a constant."""
    found: np.ndarray = 0.5 * (log_variance + squared * np.exp(-log_variance))
    return found

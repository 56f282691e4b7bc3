"""From raw columns to the inputs a kernel sees: drop constant columns, standardise where it helps.

Rows of any finite size are taken, 1e200 included. A row so far out that squares and products of its entries would
leave the range of float64 is moved along its own direction to where they do not; there it is as unlike all other rows
as before.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from sureshot.computing.layout import aligned
from sureshot.data.checks import listed
from sureshot.estimators.rows.ranks import Ranks
from sureshot.estimators.rows.spectral_scaling import SpectralScaling
from sureshot.kernels import is_unit_norm
from sureshot.warned import warn

logger = logging.getLogger(__name__)

LARGEST_INPUT = 1e50
"""Largest entry of a kernel input: its fourth power, the variance of a quadratic kernel, is a number still."""

RARE = 0.7
OUTER = 20  # one row in so many at either end does not say how widely a column is spread
OF_NORMAL = 3.29  # deviations that the range of the others has in normal rows
FARTHEST = 5.0  # deviations beyond it that a cell may lie
FEWEST = 15  # rows of which the outermost may be left out
WILD = 1e6  # times the range of the inner half of the rows beyond it: a code for a gap, or a unit that is another
COMMENSURATE_COLUMNS = 8


@dataclass(frozen=True)
class Scaling:
    """A fixed map of the columns: affine, then what `Ranks` has learnt of standardised columns, then factors.

    Of embeddings, which stay as they are, some directions may count more (`SpectralScaling`).
    """

    kept: np.ndarray  # (D_kept,) int64, the columns that vary
    mean: np.ndarray  # (D_kept,), subtracted
    scale: np.ndarray  # (D_kept,), then divided by
    ranks: Ranks | None = None
    relevance: np.ndarray | None = None  # (D_kept,), mean square 1
    limits: np.ndarray | None = None  # (2, D_kept), least and greatest value of raw inputs: see `limits_of`
    deviations: np.ndarray | None = None  # (D_kept,), standard ones, where `scale` is more: see `with_rare_values`
    spectral: SpectralScaling | None = None
    time: int | None = None  # of the kept columns that of the time, which goes on: it has no limits, and no ranks

    def check_parts(self) -> None:
        """ValueError for parts that do not fit together."""
        shape = self.kept.shape
        like = (self.mean, self.scale, self.relevance, self.deviations)
        if len(shape) != 1 or any(part is not None and part.shape != shape for part in like):
            raise ValueError("malformed scaling")
        if (self.kept < 0).any() or not (self.scale > 0).all():
            raise ValueError("malformed scaling")
        if (self.relevance is not None and (self.relevance < 0).any()) or (
            self.deviations is not None and not (self.deviations > 0).all()
        ):
            raise ValueError("malformed scaling")
        if self.limits is not None and (
            self.limits.shape != (2, *shape) or not (self.limits[0] <= self.limits[1]).all()
        ):
            raise ValueError("malformed limits of columns")
        if self.ranks is not None and len(self.ranks.knots) != len(self.kept):
            raise ValueError("ranks of other columns")
        if self.spectral is not None and len(self.spectral.basis) != len(self.kept):
            raise ValueError("directions of other columns")
        if self.time is not None and not 0 <= self.time < len(self.kept):
            raise ValueError("the time is none of the columns")

    def check_columns(self, n_columns: int) -> None:
        """ValueError if it is of other columns than so many."""
        if len(self.kept) and self.kept.max() >= n_columns:
            raise ValueError("the scaling does not fit the columns")

    @property
    def of_distances(self) -> Scaling:
        """The map by which rows are near or far: what lies beyond limits is, and so is a rare value."""
        return replace(self, scale=self.scale if self.deviations is None else self.deviations, limits=None)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Map raw inputs (n, D) to kernel inputs (n, D_kept)."""
        kept = x[:, self.kept] if self.limits is None else x[:, self.kept].clip(*self.limits)
        with np.errstate(over="ignore"):
            scaled = within_range((kept - self.mean) / self.scale)
        mapped = scaled if self.ranks is None else self.ranks(scaled)
        if self.time is not None:
            mapped[:, self.time] = (x[:, self.kept[self.time]] - self.mean[self.time]) / self.scale[self.time]
        mapped = mapped if self.spectral is None else self.spectral(mapped)
        return mapped if self.relevance is None else mapped * self.relevance

    def with_time(self, place: int, times: np.ndarray) -> Scaling:
        """The map of columns of which that at a place tells the time, in units of its standard deviation."""
        others = self.kept != place
        kept = np.append(self.kept[others], place)
        with np.errstate(over="ignore"):
            mean, scale = np.append(self.mean[others], times.mean()), np.append(self.scale[others], times.std() or 1.0)
        limits = None if self.limits is None else np.column_stack([self.limits[:, others], [-np.inf, np.inf]])
        return replace(self, kept=kept, mean=mean, scale=scale, limits=limits, time=len(kept) - 1)

    def weighted(self, weights: np.ndarray) -> Scaling:
        """The map followed by a factor for each column."""
        return replace(self, scale=self.scale / weights)


def kernel_inputs(kept: np.ndarray, scaling: Scaling | None, device: torch.device) -> torch.Tensor:
    """What a kernel sees of rows (n, D) in the form in which they are kept."""
    return aligned(kept if scaling is None else scaling(kept), device)


def fit_scaling(x: np.ndarray, weight: np.ndarray, standardize: bool | str) -> Scaling:
    """Learn the map from rows (n, D), of which one of weight 2 counts as two.

    "auto" standardises unless every row has unit length (embeddings, whose geometry is their meaning). Cells that are
    extreme, such as -3.4e38 for a gap, are taken for less: by their deviation all others are equal.
    """
    n_columns = x.shape[1]
    if standardize is False or (standardize == "auto" and is_unit_norm(torch.from_numpy(x))):
        return Scaling(np.arange(n_columns), np.zeros(n_columns), np.ones(n_columns))
    limits = _limits_of_wild(x, weight)
    if limits is not None:
        scaling = _standardising(x.clip(*limits), weight)
        return replace(scaling, limits=limits[:, scaling.kept])
    return _standardising(x, weight)


def _standardising(x: np.ndarray, weight: np.ndarray) -> Scaling:
    n_columns = x.shape[1]
    # In units of a power of two for each column, which costs no digit, so that squares stay within range.
    unit = np.exp2(np.frexp(np.abs(x).max(axis=0))[1] - 1.0)
    mean = np.average(x / unit, axis=0, weights=weight)
    scale = np.sqrt(np.average((x / unit - mean) ** 2, axis=0, weights=weight)) * unit
    mean = mean * unit
    varies = scale > 1e-12 * np.maximum(np.abs(mean), np.finfo(np.float64).tiny)
    if not varies.any():  # all rows are equal: keep the columns and predict from the prior
        return Scaling(np.arange(n_columns), mean, np.ones(n_columns))
    kept = np.flatnonzero(varies)
    return Scaling(kept, mean[kept], scale[kept])


def share_a_unit(column_scale: torch.Tensor) -> bool:
    """Whether columns may share a unit: many of them, and nine in ten within a factor of 100 of the largest."""
    if len(column_scale) < COMMENSURATE_COLUMNS:
        return False
    return bool(column_scale.quantile(0.1) * 100 > column_scale.max())


def mention_constant(scaling: Scaling, x: np.ndarray, names: Sequence[str] | None) -> None:
    """Warn that only some columns of rows (n, D) vary, those of the map.

    One warning; where columns share a unit, like pixels, of which some are blank in all images, a line of the log.
    """
    n_columns = x.shape[1]
    if len(scaling.kept) == n_columns:
        if len(x) > 1 and (x == x[0]).all():
            logger.warning("no column varies: all rows look alike, and so do all predictions")
        return
    constant = np.setdiff1d(np.arange(n_columns), scaling.kept)
    called = "" if names is None else f": {listed([names[place] for place in constant])}"
    message = f"ignored {len(constant)} constant columns of {n_columns}{called}"
    if share_a_unit(torch.from_numpy(scaling.scale)):
        logger.info(message)
    else:
        warn(message)


def scaling_for_sessions(x: np.ndarray, weight: np.ndarray) -> Scaling:
    """The map by rows (n, D) of a first session, made fit for rows of others, with limits unless all have length one.

    In a column that is constant so far they are as many deviations from its value, of what it is divided by.
    """
    if is_unit_norm(torch.from_numpy(x)):
        return fit_scaling(x, weight, False)
    limits = limits_of(x, weight)
    x = x.clip(*limits)
    plain = fit_scaling(x, weight, True)
    scaling = with_rare_values(plain, x, weight)
    deviations = scaling.scale.copy()
    deviations[plain.kept] = plain.scale
    beyond = FARTHEST * scaling.scale
    limits = np.where(np.isfinite(limits), limits, [x[0] - beyond, x[0] + beyond])
    return replace(scaling, limits=np.nan_to_num(limits), deviations=deviations)


def limits_of(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Least and greatest value (2, D) that cells of columns like those of rows (n, D) may have; others are extreme.

    Five deviations beyond the inner nine tenths of the rows, or where these are equal, or rows are few, beyond all of
    them. Infinite for a column that is constant so far.
    """
    tail = max(weight.sum() / OUTER, weight.max()) if len(x) >= FEWEST else 0.0
    lower, upper = _inner(x, weight, tail)
    alike = lower >= upper
    lower, upper = np.where(alike, x.min(0), lower), np.where(alike, x.max(0), upper)
    with np.errstate(over="ignore"):
        beyond = FARTHEST / OF_NORMAL * (upper - lower)
        beyond = np.where(beyond > 0, beyond, np.inf)
        return np.stack([lower - beyond, upper + beyond])


def wider_limits(limits: np.ndarray, x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Limits (2, D) as `limits_of` has them, for the rows (n, D) of later classes, which may lie elsewhere.

    One cell beyond them is extreme; where most of the rows of a class are, two at least, it is the class that lies
    there, and half as much again as the limits leave room for is within reach of its median. Cells `WILD` beyond stay
    that.
    """
    lower, upper = limits
    room = np.minimum(upper / 2 - lower / 2, np.finfo(float).max / (4 * WILD))
    farthest = lower / 2 - WILD * room, upper / 2 + WILD * room  # halves, which are numbers always
    found = limits
    for label in np.unique(y[((x < lower) | (x > upper)).any(1)]):
        own = y == label
        if own.sum() < 2 and weight[own].sum() < 2:
            continue
        least, most = _inner(x[own], weight[own], 0.49 * weight[own].sum())
        below, above = (most < lower) & (most / 2 >= farthest[0]), (least > upper) & (least / 2 <= farthest[1])
        least, most = np.where(below, least - room, np.inf), np.where(above, most + room, -np.inf)
        found = np.stack([np.minimum(found[0], least), np.maximum(found[1], most)])
    return found


def _inner(x: np.ndarray, weight: np.ndarray, tail: float) -> tuple[np.ndarray, np.ndarray]:
    """Least and greatest values (D,) of columns of rows (n, D), when a weight of so much is left out at either end."""
    if (weight == weight[0]).all():  # sorting takes a fraction of the time of finding an order
        ordered, reached = np.sort(x, axis=0), np.broadcast_to(weight.cumsum()[:, None], x.shape)
    else:
        order = x.argsort(0, kind="stable")
        ordered, reached = np.take_along_axis(x, order, 0), weight[order].cumsum(0)
    lower = np.take_along_axis(ordered, (reached > tail).argmax(0)[None], 0)[0]
    return lower, np.take_along_axis(ordered, (reached >= weight.sum() - tail).argmax(0)[None], 0)[0]


def _limits_of_wild(x: np.ndarray, weight: np.ndarray) -> np.ndarray | None:
    """Least and greatest values (2, D) that are not `WILD` among those of rows (n, D); None where no cell is."""
    lower, upper = _inner(x, weight, weight.sum() / 4)
    with np.errstate(over="ignore", invalid="ignore"):
        beyond = WILD * (upper - lower)
        limits = np.stack([lower - beyond, upper + beyond])
        limits = np.where((beyond > 0) & np.isfinite(limits), limits, [[-np.finfo(float).max], [np.finfo(float).max]])
    is_wild = ((x < limits[0]) | (x > limits[1])).any(0)
    return limits if is_wild.any() else None


def mention_wild(scaling: Scaling, x: np.ndarray, names: Sequence[str] | None) -> None:
    """Log the columns of rows (n, D) that have extreme cells."""
    if scaling.limits is None:
        return
    kept = x[:, scaling.kept]
    found = scaling.kept[((kept < scaling.limits[0]) | (kept > scaling.limits[1])).any(0)]
    if not len(found):
        return
    logger.warning(
        "cells of columns %s lie a million times farther out than half of the rows, as codes for gaps do: they are "
        "taken for less; make them gaps, or drop these rows",
        columns_called(found, names),
    )


def columns_called(places: np.ndarray, names: Sequence[str] | None) -> str:
    """Columns of the rows by name, or by number where they have none."""
    if names is None:
        return f"{listed(places.tolist())} (counted from 0)"
    return listed([names[place] for place in places])


def with_rare_values(scaling: Scaling, x: np.ndarray, weight: np.ndarray) -> Scaling:
    """The map for rows (n, D) of some classes, made fit for rows of others.

    A column that has one value in more than `RARE` of the rows is divided by its range: its deviation says how rare the
    other values are, not how large, and rows of classes to come, to which they are common, would lie a hundred
    deviations away. A column that
    is constant so far may be what separates later classes: it is kept, divided by the median range of the others.
    """
    if not scaling.mean.any() and (scaling.scale == 1).all():  # rows of unit length, used as they are
        return scaling
    with np.errstate(over="ignore"):
        extent = np.minimum(x.max(0) - x.min(0), np.finfo(np.float64).max)
    varies = np.isin(np.arange(x.shape[1]), scaling.kept)
    most = [np.bincount(np.unique(column, return_inverse=True)[1], weight).max() for column in x.T]
    rare = np.array(most) > RARE * weight.sum()
    mean, scale = x[0].copy(), np.full(x.shape[1], np.median(extent[varies]))
    mean[varies] = scaling.mean
    scale[varies] = np.where(rare[varies], np.maximum(scaling.scale, extent[varies]), scaling.scale)
    scale[scale <= 0] = 1.0
    return Scaling(np.arange(x.shape[1]), mean, scale)


def within_range(x: np.ndarray, farthest: float = LARGEST_INPUT) -> np.ndarray:
    """Rows (n, D) of which no entry is larger than `farthest`: those that have one are shrunk as a whole."""
    largest = np.abs(x).max(axis=1, initial=0.0)
    outside = largest > farthest
    if not outside.any():
        return x
    limited = x.copy()
    limit = np.finfo(x.dtype).max
    limited[outside] = np.clip(x[outside], -limit, limit) / np.minimum(largest[outside], limit)[:, None] * farthest
    return limited

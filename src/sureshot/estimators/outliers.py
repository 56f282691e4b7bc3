"""How little a row is like any that has been learnt: one score for every estimator.

The model's own score does not suffice: under a linear kernel latents are the surer the farther off a row is. Distance
alone does not know which columns separate classes. So two numbers are added, in deviations of what labelled rows have:

* how far a row is from the labelled rows (`Distance`), minus the logarithm of a kernel density estimate, which grows
  with the squared distance in every direction. The kernels' width is the one that says best where left-out rows are,
  doubled, as a known class has more to show than its labelled rows. Columns are standardised; where they may share a
  unit they are brought to one common scale as well, and both distances count alike;
* what the model says (`ClassPredictor.outlier_scores`), which counts no lower than for the labelled row that it likes
  best: no model can call known what is far away.

Rows count once each, whatever their weight: one that has been seen is no surprise. The study is
docs/results/unknowns.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sureshot.computing.blocks import blocks
from sureshot.computing.layout import aligned
from sureshot.estimators.rows.labelled_rows import merge_rows
from sureshot.estimators.rows.preprocessing import Scaling, fit_scaling, share_a_unit
from sureshot.kernels import is_unit_norm
from sureshot.kernels.distances import squared_distances

MOST_LEFT_OUT = 500
"""Rows that are left out to choose a width and to see what labelled rows have."""

_WIDEST, _N_WIDTHS = 8.0, 19  # of the mean squared distance between nearest rows; each next one by the root of 2 less
_WIDER = 2.0
_LONE = -1e3  # log density of a left-out row that nothing is near to: it says nothing about the width
_LEAST_SPREAD = 0.05
_WILD = 1e6
_OF_NORMAL = (np.pi / 2) ** 0.5  # standard deviation over mean absolute deviation


@dataclass(frozen=True)
class Spread:
    """What is usual: numbers minus their median, in deviations."""

    centre: float
    deviation: float

    @classmethod
    def of(cls, numbers: np.ndarray, unit: float) -> Spread:
        """By mean absolute deviations, and no less than a twentieth of the median or of the unit."""
        centre = float(np.median(numbers))
        deviation = _OF_NORMAL * float(_not_wild(np.abs(numbers - centre)).mean())
        return cls(centre, max(deviation, _LEAST_SPREAD * abs(centre), _LEAST_SPREAD * unit))

    def __call__(self, numbers: np.ndarray) -> np.ndarray:
        """In deviations from the centre."""
        return (numbers - self.centre) / self.deviation


@dataclass(frozen=True)
class Distance:
    """From all labelled rows, ``-h log sum_i exp(-|x - x_i|^2 / 2 h)``: softly half the square of the nearest."""

    scaling: Scaling
    rows: Tensor  # (N, D), scaled
    width: float  # h
    usual: Spread  # of rows left out
    directions: bool  # whether only those of rows matter, of which one of zeros has none

    @classmethod
    def of(cls, x: np.ndarray, scaling: Scaling, directions: bool, wider: float = _WIDER) -> Distance:
        """From distinct rows (N, D)."""
        rows = _scaled(scaling, x, directions)
        if len(rows) == 1:
            return cls(scaling, rows, 1.0, Spread(0.0, 1.0), directions)
        left_out = np.unique(np.linspace(0, len(rows) - 1, MOST_LEFT_OUT).astype(np.int64))
        squared = squared_distances(rows, rows[left_out])
        squared[left_out, np.arange(len(left_out))] = torch.inf
        width = wider * _width(squared, min(rows.shape))
        return cls(scaling, rows, width, Spread.of(_soft_minimum(squared, width).numpy(), width), directions)

    def __call__(self, x: np.ndarray, left_out: np.ndarray | None = None) -> np.ndarray:
        """Of rows (Q, D), in deviations of what left-out rows have, (Q,).

        Those that are `left_out` (Q,) bool are labelled rows, and measured from the others.
        """
        parts = []
        for block in blocks(len(x), len(self.rows)):
            squared = squared_distances(self.rows, _scaled(self.scaling, x[block], self.directions))
            if left_out is not None:
                away = torch.from_numpy(left_out[block]).nonzero().squeeze(-1)
                squared[squared[:, away].argmin(0), away] = torch.inf
            parts.append(_soft_minimum(squared, self.width))
        return self.usual(torch.cat(parts).numpy())


@dataclass(frozen=True)
class OutlierScore:
    """See the module's docstring."""

    distances: tuple[Distance, ...]
    usual: Spread  # of the model's scores of labelled rows
    least: float

    @classmethod
    def of(cls, x: np.ndarray, scalings: tuple[Scaling, ...], of_model: np.ndarray, directions: bool) -> OutlierScore:
        """From distinct rows (N, D), maps under which distances count, and the model's scores of some of the rows."""
        distances = tuple(Distance.of(x, scaling, directions) for scaling in scalings)
        return cls(distances, Spread.of(of_model, 1.0), float(of_model.min()))

    def __call__(self, x: np.ndarray, of_model: np.ndarray, left_out: np.ndarray | None = None) -> np.ndarray:
        """Of rows (Q, D) of which the model says (Q,); of labelled rows see `Distance`."""
        far = sum(distance(x, left_out) for distance in self.distances) / len(self.distances)
        found: np.ndarray = far + self.usual(np.maximum(of_model, self.least))
        return found

    def measured_from(self, x: np.ndarray, scalings: tuple[Scaling, ...]) -> OutlierScore:
        """The same with distances from other rows (N, D), under their maps of columns."""
        pairs = zip(self.distances, scalings, strict=False)  # the common scale may be there once only
        moved = tuple(
            replace(distance, scaling=maps, rows=_scaled(maps, x, distance.directions)) for distance, maps in pairs
        )
        return replace(self, distances=moved)


def scalings_for(x: np.ndarray) -> tuple[Scaling, ...]:
    """The maps of columns under which distances of rows (N, D) count; all columns, constant ones too.

    A column that has been constant so far is scaled as columns are in the median.
    """
    n_columns = x.shape[1]
    if is_unit_norm(torch.from_numpy(x)):
        return (as_they_are(n_columns),)
    varying = fit_scaling(x, np.ones(len(x)), True)
    mean, scale = x[0].copy(), np.full(n_columns, np.median(varying.scale))
    mean[varying.kept], scale[varying.kept] = varying.mean, varying.scale
    return with_common_scale(Scaling(np.arange(n_columns), mean, scale), varying.scale)


def with_common_scale(
    standard: Scaling,
    deviations: np.ndarray,  # (V,), of the columns that vary
) -> tuple[Scaling, ...]:
    """A map, and where columns may share a unit the one that brings them to one scale as well."""
    if not share_a_unit(torch.from_numpy(deviations)):
        return (standard,)
    largest = deviations.max()
    common = largest * np.sqrt(np.mean((deviations / largest) ** 2))
    if np.allclose(standard.scale, common, rtol=1e-9, atol=0):  # as of columns that came standardised
        return (standard,)
    return standard, replace(standard, scale=np.full(len(standard.scale), common))


def as_they_are(n_columns: int) -> Scaling:
    """The map that changes nothing."""
    return Scaling(np.arange(n_columns), np.zeros(n_columns), np.ones(n_columns))


def _scaled(scaling: Scaling, x: np.ndarray, directions: bool) -> Tensor:
    """Rows (N, D) under a map; beside directions one of zeros is one more, at a right angle to all."""
    scaled = scaling(x)
    return aligned(np.column_stack([scaled, (x == 0).all(1)]) if directions else scaled)


def _soft_minimum(squared: Tensor, width: float) -> Tensor:
    """Of half the squares (N, Q) along the rows, (Q,)."""
    return -width * torch.logsumexp(squared / (-2 * width), 0)


def _not_wild(numbers: np.ndarray) -> np.ndarray:
    """Those that are no `_WILD` times what three in four are: rows with an extreme cell do not describe others."""
    limit = _WILD * float(np.quantile(numbers, 0.75))
    return numbers[numbers <= limit] if limit > 0 else numbers


def _width(squared: Tensor, dimension: int) -> float:
    """That maximises the log density of left-out rows, whose squared distances from the others are given, (N, M).

    Half the width squares every row's kernel, which takes a fraction of the time of an exponential.
    """
    least = squared.amin(0)
    nearest = float(_not_wild(least.numpy()).mean())
    if not nearest > 0:
        return 1.0
    widths = nearest * _WIDEST / np.sqrt(2.0) ** np.arange(_N_WIDTHS)
    values = np.empty(_N_WIDTHS)
    for first in (0, 1):
        kernels = ((least - squared) / (2 * widths[first])).exp_()
        for k in range(first, _N_WIDTHS, 2):
            density = (kernels.sum(0).log() - least / (2 * widths[k])).clamp_min(_LONE).mean()
            values[k] = float(density) - dimension / 2 * np.log(widths[k])
            kernels.square_()
    return float(widths[values.argmax()])


def learnt_score(fitted: Any, own: Callable[[Tensor], Tensor]) -> OutlierScore:
    """Of a `Fitted` whose predictor has scores (Q,) of its `own` for queries (Q, D)."""
    predictor, ones = fitted.predictor, np.ones(len(fitted.rows.x))
    x = merge_rows(fitted.rows.x, 0 * ones, ones).x
    some = x[np.unique(np.linspace(0, len(x) - 1, MOST_LEFT_OUT).astype(np.int64))]
    with torch.no_grad():
        blocks = predictor.inputs(some).split(max(1, predictor.queries_at_once))
        of_model = torch.cat([own(block) for block in blocks]).cpu().numpy()
    return OutlierScore.of(x, fitted.scalings(x), of_model, fitted.has_directions)

"""Which labelled rows drove a number: how much lower the answer would be without each of them.

Everything else stays: kernels, scales, noise, and how far other rows are trusted. Where numbers are learnt on a bent
scale, what means do there is carried to the user's units by the slope of the answer, so to first order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from sureshot.computing.blocks import AT_ONCE
from sureshot.estimators.entries import Entries
from sureshot.estimators.numbers.number_fitted import NumberFitted

_STEP = 1e-4  # of means on the scale on which numbers are learnt


@dataclass(frozen=True)
class DrivingRows:
    """Labelled rows: equal ones are left out together, as one, but rows with ids each by itself."""

    pulls: np.ndarray  # (..., k), what the answer falls by, in units of y, if the row is left out; negative: it rises
    y: np.ndarray  # (..., k)
    row_ids: np.ndarray  # (..., k), None for rows without an id
    inputs: np.ndarray  # (..., k, D), the rows as the model keeps them


@dataclass(frozen=True)
class NumberInfluence:
    """Which labelled rows drove each of n answers."""

    predictions: np.ndarray  # (n,), the means that are explained
    drivers: DrivingRows  # (n, k), the strongest pull first, up or down
    together: DrivingRows  # (N,), all rows, the sizes of their pulls summed over the answers; the largest first


def influence_on(fitted: NumberFitted, kept: np.ndarray, n_rows: int, target: int) -> NumberInfluence:
    """On rows (n, D) as the reader keeps them, by blocks that bound memory."""
    rows, inputs = Entries.of(fitted), fitted.predictor.inputs(kept)
    pulling, total, found = fitted.pulling(), np.zeros(len(rows.y)), []
    at_once = max(1, AT_ONCE // (len(rows.y) * (1 + len(fitted.target.mean))))
    with torch.no_grad():
        for block in inputs.split(min(at_once, fitted.predictor.queries_at_once)):
            mean, *spread = (part.cpu().numpy() for part in fitted.predictor.moments(block))
            above, below = (fitted.prediction(mean + step, *spread).mean for step in (_STEP, -_STEP))
            slope = ((above - below) / (2 * _STEP))[:, target, None]
            pulls = slope * pulling(block, rows.place, rows.share)[..., target].cpu().numpy()
            total += np.abs(pulls).sum(0)
            order = np.argsort(-np.abs(pulls), axis=1, kind="stable")[:, :n_rows]
            predicted = fitted.prediction(mean, *spread).mean[:, target]
            found.append((predicted, np.take_along_axis(pulls, order, 1), order))
    predictions, pulls, order = map(np.concatenate, zip(*found, strict=True))
    everywhere = np.argsort(-total, kind="stable")
    return NumberInfluence(
        predictions, _named(rows, pulls, order, target), _named(rows, total[everywhere], everywhere, target)
    )


def _named(rows: Entries, pulls: np.ndarray, which: np.ndarray, target: int) -> DrivingRows:
    return DrivingRows(pulls, rows.y[which][..., target], rows.name[which], rows.x[which])

"""Scales on which numbers may be learnt, by the log density of left-out numbers in the user's units."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from sureshot.computing.threads import one_thread
from sureshot.estimators.gp.options import named_family
from sureshot.estimators.gp.tuning.family_search import Search
from sureshot.estimators.gp.tuning.log_density import LogDensity
from sureshot.estimators.numbers.support import NumberSupport
from sureshot.estimators.numbers.tails import is_ahead
from sureshot.estimators.numbers.target_scale import TargetScale
from sureshot.estimators.rows.labelled_rows import LabelledRows, part_of

COMPARED = 400  # rows
KERNEL = "matern32"


def scales_to_try(
    asked: str,  # "auto", or the name of a transform
    rows: LabelledRows,
    support_of: Callable[[LabelledRows, TargetScale], NumberSupport],
    seed: int,
) -> list[TargetScale]:
    """The scale that is asked for; or numbers as they are, and the best other if a part of the rows prefers it.

    One kernel of a few rows tells whether another scale is worth a fit of its own, but not which fit is better: what is
    a bent scale for the one may be a rough function for the other.
    """
    y, weight = rows.y, rows.weight
    if asked == "log" and (y <= 0).any():
        raise ValueError(f"target_transform='log' needs positive numbers; y has {y.min():g}. 'yeo_johnson' takes any.")
    if asked != "auto":
        return [TargetScale.of(y, weight, asked)]
    plain = TargetScale.of(y, weight)
    if len(y) > COMPARED:
        rows = part_of(rows, np.sort(np.random.default_rng(seed).choice(len(y), COMPARED, replace=False)))
    if not support_of(rows, plain).can_select_kernels or not support_of(rows, plain).varies:
        return [plain]
    bent = [TargetScale.of(y, weight, name) for name in ("yeo_johnson", *(() if (y <= 0).any() else ("log",)))]
    with one_thread():
        known, *found = (_log_densities(rows, scale, support_of) for scale in (plain, *bent))
    gains = [densities - known for densities in found]
    best = max(range(len(bent)), key=lambda k: float(gains[k].mean()))
    return [plain, bent[best]] if is_ahead(gains[best]) else [plain]


def _log_densities(
    rows: LabelledRows, scale: TargetScale, support_of: Callable[[LabelledRows, TargetScale], NumberSupport]
) -> np.ndarray:
    """Of left-out numbers (n,), in nats per unit of the user's."""
    support = support_of(rows, scale)
    search = Search(support, 0, named_family(KERNEL, support), LogDensity("plug_in"))
    with torch.no_grad():
        found = search.best_regression().pointwise
    densities: np.ndarray = found.cpu().numpy() + scale.log_slope(rows.y).sum(axis=1)
    return densities

"""Which labelled rows drove an answer.

The posterior mean of a Gaussian process is linear in its labelled rows: what the latent of the most probable class is
above that of the second is a sum of one share for each row (`Fitted.row_shares`) and a rest, that of the prior means.
A row's share is the kernel between it and the query times the row's dual coefficient: positive if the row spoke for the
first class. It says what the row contributes to this model, not what a model without the row would say.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from sureshot.estimators.fitted import Fitted, NoInfluence
from sureshot.estimators.row_ids import RowsAsTheyCame
from sureshot.gaussian.memory import AT_ONCE


@dataclass(frozen=True)
class Influence:
    """The k labelled rows that drove each of n answers, the largest share first; equal rows count as one.

    Rows with ids have shares of their own, also where they are equal.
    """

    classes: np.ndarray  # (n, 2), the most probable class and the second
    difference: np.ndarray  # (n,), of their latents' means, as `predict_latent` has them
    rest: np.ndarray  # (n,), what no row brought: the difference of the prior means
    shares: np.ndarray  # (n, k), signed; those of all rows and the rest sum to the difference
    labels: np.ndarray  # (n, k)
    row_ids: np.ndarray  # (n, k), None for rows without an id
    inputs: np.ndarray  # (n, k, D), the rows as the model keeps them


def influence_on(fitted: Fitted, kept: np.ndarray, n_rows: int) -> Influence:
    """For queries (n, width) in the form in which rows are kept, of which a block is looked at a time."""
    if len(fitted.classes) < 2:
        raise NoInfluence(f"influence compares two classes; the model knows {fitted.classes.tolist()[0]!r} only.")
    rows = fitted.distinct_rows
    x, y, name, place, portion = _entries(fitted)
    inputs = fitted.inputs(kept)
    at_once = max(1, min(fitted.queries_at_once, AT_ONCE // max(len(rows.y), len(y))))
    found = []
    with torch.no_grad():
        for block in inputs.split(at_once):
            p = fitted.answers(fitted.moments(block), fitted.temperature)
            best = p.argsort(dim=1, descending=True, stable=True)[:, :2]
            means = fitted.latents(block)[0].gather(1, best)
            difference = (means[:, 0] - means[:, 1]).cpu().numpy()
            by_row = fitted.row_shares(block, best[:, 0], best[:, 1]).cpu().numpy()
            shares = by_row[:, place] * portion
            largest = np.argsort(-np.abs(shares), axis=1, kind="stable")[:, :n_rows]
            found.append(
                (
                    fitted.classes[best.cpu().numpy()],
                    difference,
                    difference - by_row.sum(1),
                    np.take_along_axis(shares, largest, 1),
                    fitted.classes[y[largest]],
                    name[largest],
                    x[largest],
                )
            )
    return Influence(*map(np.concatenate, zip(*found, strict=True)))


def _entries(fitted: Fitted) -> tuple[np.ndarray, ...]:
    """Inputs, class numbers, ids or None, the merged row and the portion of it, of what came under one id or none."""
    rows, ids = fitted.distinct_rows, fitted.row_ids
    came = RowsAsTheyCame.apart(rows, ids)
    if ids is None:
        place, name = np.arange(len(rows.y)), np.full(len(rows.y), None, dtype=object)
    else:
        place = np.concatenate([np.flatnonzero(ids.unnamed > 0), ids.row])
        name = np.array([None] * len(came.unnamed.y) + ids.names.tolist(), dtype=object)
    weight = np.concatenate([came.unnamed.weight, came.named.weight])
    return rows.x[place], rows.y[place], name, place, weight / rows.weight[place]

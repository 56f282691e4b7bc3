"""Labelled rows that can leave a model: what came under one id or none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sureshot.estimators.fitted import Fitted
from sureshot.estimators.rows.row_ids import RowsAsTheyCame


@dataclass(frozen=True)
class Entries:
    """E of them."""

    x: np.ndarray  # (E, D)
    y: np.ndarray  # (E,) numbers of classes, or (E, P)
    name: np.ndarray  # (E,), id or None
    place: Tensor  # (E,) int64, of the merged row among those of `Fitted.distinct_rows`
    share: Tensor  # (E,), of that row's weight

    @classmethod
    def of(cls, fitted: Fitted) -> Entries:
        rows, ids = fitted.distinct_rows, fitted.row_ids
        came = RowsAsTheyCame.apart(rows, ids)
        if ids is None:
            place, name = np.arange(len(rows.y)), np.full(len(rows.y), None, dtype=object)
        else:
            place = np.concatenate([np.flatnonzero(ids.unnamed > 0), ids.row])
            name = np.array([None] * len(came.unnamed.y) + ids.names.tolist(), dtype=object)
        weight = np.concatenate([came.unnamed.weight, came.named.weight])
        share = np.minimum(weight / rows.weight[place], 1.0)
        return cls(rows.x[place], rows.y[place], name, torch.from_numpy(place), torch.from_numpy(share))

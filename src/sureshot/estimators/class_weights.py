"""Weights of whole classes, derived from all the rows there are."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.class_weight import compute_class_weight

from sureshot.estimators.validation import LabelledRows


def weigh_classes(
    rows: LabelledRows,  # with the weights that they came with
    class_weight: Any,  # a dict by label, "balanced" or None
    classes: np.ndarray,  # (C,)
) -> LabelledRows:
    """The rows with the weights of their classes multiplied in; rows of a class of weight zero are left out.

    "balanced" gives every class that has rows the same total weight and keeps the sum of all weights. It counts a row
    of weight 2 as two rows.
    """
    if class_weight is None:
        return rows
    if isinstance(class_weight, str) and class_weight == "balanced":
        totals = np.bincount(rows.y, rows.weight, minlength=len(classes))
        of_class = rows.weight.sum() / (np.count_nonzero(totals) * np.where(totals > 0, totals, 1.0))
    else:
        of_class = compute_class_weight(class_weight, classes=classes, y=classes[rows.y])
    if not (np.isfinite(of_class).all() and (of_class >= 0).all()):
        raise ValueError(f"class_weight must hold finite numbers that are not negative; got {class_weight!r}.")
    weight = rows.weight * of_class[rows.y]
    counted = weight > 0
    if not counted.any():
        raise ValueError(f"class_weight leaves no row: every class that has rows has weight 0 in {class_weight!r}.")
    return LabelledRows(rows.x[counted], rows.y[counted], weight[counted])

"""Weights of classes, which multiply those of their rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from sureshot.estimators.rows.labelled_rows import LabelledRows
from sureshot.estimators.rows.validation import shorten
from sureshot.inference import SCHEMES
from sureshot.kernels import is_unit_norm

BESIDE_SINGLE_ROWS = 3.0
"""Rows as which a class of embeddings counts at most where half of the classes have one: with more it would attract all
that is unlike the single rows (docs/decisions/uneven-classes.md)."""
ONE_TELLS = 0.8
"""The share of a class's rows that a single one of them recognises, from which on a single row represents its class:
single rows then count as many."""
MOST_COMPARED = 200  # rows of a class


def weigh_classes(
    rows: LabelledRows,  # with the weights that they came with
    class_weight: Any,  # a dict by label, "auto", "balanced" or None
    classes: np.ndarray,  # (C,)
    inference: str,  # weights stay whole where it samples
) -> LabelledRows:
    """The rows with the weights of their classes multiplied in; rows of a class of weight zero are left out.

    "balanced" gives every class that has rows the same total weight and keeps the sum of all weights. It counts a row
    of weight 2 as two rows. "auto" does something only for embeddings of which half of the classes have one row: all
    classes then count as the largest, or none as more than `BESIDE_SINGLE_ROWS`.
    """
    if class_weight is None:
        return rows
    totals = np.bincount(rows.y, rows.weight, minlength=len(classes))
    if isinstance(class_weight, str) and class_weight == "auto":
        if (inference != "auto" and SCHEMES[inference].samples) or not _outweighs_single_rows(rows, totals):
            return rows
        if _told_by_one(rows, totals) >= ONE_TELLS:
            of_class = totals.max() / np.where(totals > 0, totals, 1.0)
        else:
            of_class = BESIDE_SINGLE_ROWS / totals.clip(BESIDE_SINGLE_ROWS)
    elif isinstance(class_weight, str) and class_weight == "balanced":
        of_class = rows.weight.sum() / (np.count_nonzero(totals) * np.where(totals > 0, totals, 1.0))
    else:
        of_class = _stated_weights(class_weight, classes)
    if not (np.isfinite(of_class).all() and (of_class >= 0).all()):
        raise ValueError(f"class_weight must hold finite numbers that are not negative; got {class_weight!r}.")
    weight = rows.weight * of_class[rows.y]
    counted = weight > 0
    if not counted.any():
        raise ValueError(f"class_weight leaves no row: every class that has rows has weight 0 in {class_weight!r}.")
    return LabelledRows(rows.x[counted], rows.y[counted], weight[counted], rows.weight[counted])


def _outweighs_single_rows(
    rows: LabelledRows,
    totals: np.ndarray,  # (C,), weights of the classes
) -> bool:
    """Whether rows are embeddings, half of whose classes have one, and another has many."""
    single = totals[totals > 0] <= 1
    many = totals.max() > BESIDE_SINGLE_ROWS
    return bool(many and 2 * single.sum() >= len(single) and is_unit_norm(torch.from_numpy(rows.x)))


def _told_by_one(
    rows: LabelledRows,  # embeddings
    totals: np.ndarray,  # (C,), weights of the classes
) -> float:
    """Which share of the rows of large classes any other row of their class is nearer to than all single rows are."""
    singles = rows.x[totals[rows.y] <= 1]
    shares = []
    for label in np.flatnonzero(totals > BESIDE_SINGLE_ROWS):
        own = rows.x[rows.y == label]
        own = own[np.unique(np.linspace(0, len(own) - 1, MOST_COMPARED).astype(np.int64))]
        nearer = own @ own.T > (own @ singles.T).max(1, keepdims=True)
        if len(own) > 1:
            shares.append((nearer.sum() - nearer.diagonal().sum()) / (len(own) * (len(own) - 1)))
    return float(np.mean(shares)) if shares else 0.0


def _stated_weights(
    class_weight: Mapping[Any, Any],  # by label
    classes: np.ndarray,  # (C,)
) -> np.ndarray:
    """The weight of each class (C,), 1 where none is stated.

    Weights of labels that are no classes are for classes to come, and an error where a class has no weight: then a
    label is misspelt.
    """
    labels = classes.tolist()
    unknown = [label for label in class_weight if label not in labels]
    unweighted = [label for label in labels if label not in class_weight]
    if unknown and unweighted:
        raise ValueError(
            f"class_weight has weights for {shorten(list(map(repr, unknown)))}, which y does not have, and none for "
            f"{shorten(list(map(repr, unweighted)))}: name the labels as y does, 1 for those that keep their weight."
        )
    try:
        return np.array([float(class_weight.get(label, 1.0)) for label in labels])
    except (ValueError, TypeError) as error:
        raise ValueError(f"class_weight must hold numbers; got {class_weight!r}.") from error

"""What every metric asks of its input, in one place.

A metric takes the class probabilities of n points, (n, C), and what was true: either column numbers 0..C-1,
or the labels themselves together with ``classes``, the label of each column (as in ``estimator.classes_``).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

SUM_TOLERANCE = 1e-3
"""How far a row may be from one: float32 softmax over thousands of classes stays well within it."""


def check_probabilities(probabilities: ArrayLike) -> NDArray[np.float64]:
    """Class probabilities as a float64 array (n, C) inside [0, 1].

    Refused is what is not a non-empty matrix of finite numbers in [0, 1] whose rows sum to one.
    """
    values = real_matrix(
        "probabilities", probabilities, " For two classes pass both columns: np.column_stack([1 - p, p])."
    )
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values).all(axis=1))[0])
        raise ValueError(f"probabilities: expected finite numbers, row {row} holds NaN or infinity.")
    low, high = float(values.min()), float(values.max())
    if low < -SUM_TOLERANCE or high > 1.0 + SUM_TOLERANCE:
        raise ValueError(
            f"probabilities: expected values from 0 to 1, got values from {low:.4g} to {high:.4g}. "
            "Log-probabilities or logits must be turned into probabilities first."
        )
    sums = values.sum(axis=1)
    worst = int(np.argmax(np.abs(sums - 1.0)))
    if abs(sums[worst] - 1.0) > SUM_TOLERANCE:
        raise ValueError(f"probabilities: expected rows that sum to 1, row {worst} sums to {sums[worst]:.6g}.")
    return values.clip(0.0, 1.0)


def real_matrix(name: str, given: ArrayLike, advice: str = "") -> NDArray[np.float64]:
    """A non-empty matrix (n, C) of real numbers."""
    values = np.asarray(given)
    if values.ndim != 2 or values.size == 0:
        raise ValueError(
            f"{name}: expected a non-empty matrix (n points, C classes), got shape {values.shape}.{advice}"
        )
    return real_numbers(name, values)


def real_numbers(name: str, values: NDArray) -> NDArray[np.float64]:
    """An array in double precision; refused is what holds no real numbers."""
    if values.dtype.kind not in "fiub":
        raise ValueError(f"{name}: expected real numbers, got an array of type {values.dtype}.")
    return values.astype(np.float64)


def true_columns(
    y: ArrayLike,  # (n,), column numbers, or labels if ``classes`` is given
    n_points: int,
    n_classes: int,
    classes: ArrayLike | None,  # (C,), the label of each column
) -> NDArray[np.int64]:
    """Column number of the true class of each point, (n,)."""
    labels = np.asarray(y)
    if labels.shape != (n_points,):
        raise ValueError(f"y: expected {n_points} labels, one for each row, got shape {labels.shape}.")
    if classes is not None:
        return _columns_of(labels, np.asarray(classes), n_classes)
    if labels.dtype.kind not in "iu":
        raise ValueError(
            f"y: expected integer column numbers 0..{n_classes - 1}, got type {labels.dtype}. "
            "Pass classes= (such as estimator.classes_) to give labels instead."
        )
    if labels.min() < 0 or labels.max() >= n_classes:
        raise ValueError(
            f"y: expected column numbers 0..{n_classes - 1}, got {labels.min()} to {labels.max()}. "
            "Pass classes= (such as estimator.classes_) if these are labels."
        )
    return labels.astype(np.int64)


def check_prediction(
    probabilities: ArrayLike, y: ArrayLike, classes: ArrayLike | None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Both of the above: probabilities (n, C) and true columns (n,)."""
    values = check_probabilities(probabilities)
    return values, true_columns(y, values.shape[0], values.shape[1], classes)


def _columns_of(labels: NDArray, classes: NDArray, n_classes: int) -> NDArray[np.int64]:
    if classes.shape != (n_classes,):
        raise ValueError(f"classes: expected {n_classes} labels, one for each column, got shape {classes.shape}.")
    column = {label: position for position, label in enumerate(classes.tolist())}
    if len(column) != n_classes:
        raise ValueError("classes: expected distinct labels, got repeated ones.")
    listed = labels.tolist()
    unknown = sorted({repr(label) for label in listed if label not in column})
    if unknown:
        shown = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
        raise ValueError(
            f"y: {len(unknown)} label(s) have no column in the probabilities: {shown}. "
            "Leave out the rows of unknown classes, and score them with auroc_unknown."
        )
    return np.array([column[label] for label in listed], dtype=np.int64)

"""What becomes of inputs, labels and weights before an estimator computes: they are checked, merged, weighed by class.

Messages name the argument, what was expected, what came and what to try. Rows that repeat (same inputs, same label)
are merged into one row with their summed weight, and rows of weight zero are dropped, so that integer weights equal
repeated rows exactly. Merged rows are kept in a canonical order: the fitted model does not depend on the order in
which rows arrive.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, column_or_1d, validate_data

MAX_NAMES = 5


@dataclass(frozen=True)
class LabelledRows:
    """Distinct labelled rows with their weights."""

    x: np.ndarray  # (n, D) float64
    y: np.ndarray  # (n,) int64, positions in the estimator's ``classes_``
    weight: np.ndarray  # (n,) float64, positive


@dataclass(frozen=True)
class Columns:
    """The columns of inputs, as the user knows them."""

    n_features: int
    names: np.ndarray | None  # of a DataFrame


def validated(name: str, X: Any, columns: Columns | None, **options: Any) -> tuple[np.ndarray, Columns]:
    """`sklearn.utils.validation.validate_data` for an estimator of that name, which it leaves alone.

    Scikit-learn notes the columns on the estimator before anything is known to succeed; here on a stand-in.
    """
    stand_in = type(name, (BaseEstimator,), {})()
    if columns is not None:
        stand_in.n_features_in_ = columns.n_features
        if columns.names is not None:
            stand_in.feature_names_in_ = columns.names
    checked = validate_data(stand_in, X, reset=columns is None, **options)
    names = getattr(stand_in, "feature_names_in_", None)
    return checked, Columns(stand_in.n_features_in_, names) if columns is None else columns


def check_inputs(
    name: str,  # of the estimator, for messages
    X: Any,
    columns: Columns | None,  # those that were learnt from; None on fitting
) -> tuple[np.ndarray, Columns]:
    """Inputs (n, D) as a finite float64 matrix, and its columns, or an error that says which column is wrong.

    Sparse input is a TypeError.
    """
    if isinstance(X, torch.Tensor):
        X = X.detach().cpu().numpy()
    if isinstance(X, pd.DataFrame):
        _check_columns_numeric(X)
    checked, found = validated(name, X, columns, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=1)
    _check_finite(checked, X)
    return checked, found


def check_targets(y: Any, n_rows: int) -> np.ndarray:
    """Labels as a one-dimensional array without missing values."""
    if isinstance(y, torch.Tensor):
        y = y.detach().cpu().numpy()
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None: give one label for each row of X.")
    labels = column_or_1d(y, warn=True)
    if len(labels) != n_rows:
        raise ValueError(
            f"X and y have inconsistent numbers of rows: X has {n_rows}, y has {len(labels)}. Give one label a row."
        )
    if labels.dtype.kind == "O" and any(value is None or value != value for value in labels):
        raise ValueError("y contains missing labels: drop those rows or give them a label.")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError("Input y contains NaN or infinity: drop those rows or give them a label.")
    if labels.dtype.kind == "O" and len({type(value) for value in labels}) > 1:
        kinds = sorted({type(value).__name__ for value in labels})
        if not all(isinstance(value, str) for value in labels) and "str" in kinds:
            raise TypeError(f"y mixes label types {kinds}: use one type, for example y.astype(str).")
    with warnings.catch_warnings():  # few rows for each class are what the estimators are for
        warnings.filterwarnings("ignore", message="The number of unique classes is greater than 50%")
        check_classification_targets(labels)
    if labels.dtype.kind == "O" and not isinstance(labels[0], str):
        labels = np.array(labels.tolist())
    return labels


def check_weights(sample_weight: Any, x: np.ndarray) -> np.ndarray:
    """Weights as finite, non-negative floats with at least one positive."""
    weight = _check_sample_weight(sample_weight, x, dtype=np.float64)
    if (weight < 0).any():
        raise ValueError(
            f"sample_weight must not be negative; the smallest is {weight.min():g}. Drop those rows or use 0."
        )
    return weight


def merge_rows(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> LabelledRows:
    """Drop rows of weight zero, merge equal labelled rows, sort canonically."""
    kept = weight > 0
    x, y, weight = x[kept] + 0.0, y[kept], weight[kept]  # + 0.0 turns -0.0 into 0.0
    keyed = np.ascontiguousarray(np.column_stack([x, y.astype(np.float64)]))
    as_bytes = keyed.view(np.dtype((np.void, keyed.dtype.itemsize * keyed.shape[1]))).ravel()
    _, first, inverse = np.unique(as_bytes, return_index=True, return_inverse=True)
    merged = np.bincount(inverse.ravel(), weights=weight, minlength=len(first))
    return LabelledRows(x[first], y[first].astype(np.int64), merged)


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


def _check_columns_numeric(frame: pd.DataFrame) -> None:
    bad = [
        str(name)
        for name, dtype in zip(frame.columns, frame.dtypes, strict=True)
        if not (pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_bool_dtype(dtype))
    ]
    if bad:
        raise ValueError(
            f"X has non-numeric columns {_shorten(bad)}: encode them first, for example with "
            "make_column_transformer((OneHotEncoder(), columns), remainder='passthrough') in a pipeline."
        )


def _check_finite(x: np.ndarray, original: Any) -> None:
    for problem, mask in (("NaN", np.isnan(x)), ("infinity", np.isinf(x))):
        if not mask.any():
            continue
        columns = np.flatnonzero(mask.any(axis=0))
        names = [str(original.columns[int(j)]) if isinstance(original, pd.DataFrame) else str(j) for j in columns]
        advice = (
            "impute them in a pipeline, for example make_pipeline(SimpleImputer(), estimator)"
            if problem == "NaN"
            else "clip or drop those values"
        )
        raise ValueError(
            f"Input X contains {problem} in {int(mask.any(axis=1).sum())} rows, columns {_shorten(names)}: {advice}."
        )


def _shorten(names: list[str]) -> str:
    shown = ", ".join(names[:MAX_NAMES])
    return f"[{shown}]" if len(names) <= MAX_NAMES else f"[{shown}, and {len(names) - MAX_NAMES} more]"

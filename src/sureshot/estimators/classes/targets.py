"""Labels as users pass them, checked."""

from __future__ import annotations

import numbers
import reprlib
import warnings
from datetime import date, timedelta
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from sureshot.estimators.rows.validation import as_array


def check_targets(y: Any, n_rows: int) -> np.ndarray:
    """Labels as a one-dimensional array without missing values."""
    if isinstance(y, torch.Tensor):
        y = as_array(y)
    if isinstance(y, np.ma.MaskedArray) and np.any(np.ma.getmaskarray(y)):
        raise ValueError("y contains missing labels (it is masked): drop those rows or give them a label.")
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None: give one label for each row of X.")
    labels = plain_labels(column_or_1d(plain_labels(y), warn=True))
    if len(labels) != n_rows:
        raise ValueError(
            f"X and y have inconsistent numbers of rows: X has {n_rows}, y has {len(labels)}. Give one label a row."
        )
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError("Input y contains NaN or infinity: drop those rows or give them a label.")
    if labels.dtype.kind == "O" and len({type(value) for value in labels}) > 1:
        kinds = sorted({type(value).__name__ for value in labels})
        if not all(isinstance(value, str) for value in labels) and "str" in kinds:
            raise TypeError(f"y mixes label types {kinds}: use one type, for example y.astype(str).")
    if labels.dtype.kind == "O" and len(odd := [label for label in labels.tolist() if not _can_be_label(label)]):
        raise ValueError(
            f"y holds {reprlib.repr(odd[0])} ({type(odd[0]).__name__}), but labels are text, truth values or numbers "
            "of at most 64 bits: name the classes by text, as in [str(label) for label in y]."
        )
    if labels.dtype.kind in "mM" or any(isinstance(label, date | timedelta) for label in labels[:1]):
        raise TypeError("y has dates or times: labels are text, numbers or truth values; use y.astype(str).")
    with warnings.catch_warnings():  # few rows for each class are what the estimators are for
        warnings.filterwarnings("ignore", message="The number of unique classes is greater than 50%")
        check_classification_targets(labels)
    return labels


def plain_labels(y: Any) -> Any:
    """Labels of pandas' own types, or objects, as NumPy's: whole numbers stay whole, truth values stay such.

    ValueError if any is missing. What has no type to tell stays as it is.
    """
    dtype = getattr(y, "dtype", None)
    if isinstance(dtype, np.dtypes.StringDType):
        return np.asarray(y).astype(object).astype(str)
    if isinstance(y, list | tuple) and any(isinstance(label, str) for label in y):
        y = np.array(y, dtype=object)  # without a type that would make text of what is missing
        dtype = y.dtype
    if not isinstance(y, pd.Series | pd.Index | pd.api.extensions.ExtensionArray) and dtype != np.dtype(object):
        return y
    if np.any(pd.isna(y)):
        raise ValueError("y contains missing labels: drop those rows or give them a label.")
    if (isinstance(dtype, np.dtype) and dtype.kind != "O") or isinstance(dtype, pd.CategoricalDtype):
        return np.asarray(y)
    cells = np.asarray(y, dtype=object)
    if cells.ndim != 1 or not len(cells) or any(isinstance(cell, str) for cell in cells):
        return cells
    found = np.array(cells.tolist())
    return found if found.shape == cells.shape else cells


def _can_be_label(label: Any) -> bool:
    """Dates and times have an error of their own."""
    whole = isinstance(label, numbers.Integral) and not -(2**63) <= int(label) < 2**64
    return isinstance(label, str | bytes | numbers.Real | date | timedelta) and not whole

"""Numbers as users pass them, checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch

from sureshot.estimators.rows.validation import as_array

LARGEST = 1e150
"""Larger numbers have no squares."""


def check_numbers(y: Any, n_rows: int, n_targets: int | None = None) -> np.ndarray:
    """Targets as numbers (n, P), those of one dimension as one column; as many a row as are known, if any are."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None: give one number for each row of X.")
    if isinstance(y, torch.Tensor):
        y = as_array(y)
    if isinstance(y, np.ma.MaskedArray) and np.any(np.ma.getmaskarray(y)):
        raise ValueError("y contains missing numbers (it is masked): drop those rows.")
    if isinstance(y, pd.DataFrame | pd.Series) and bool(np.any(pd.isna(y))):
        raise ValueError("y contains missing numbers: drop those rows.")
    found = np.asarray(y)
    if found.dtype.kind == "b":
        raise ValueError("y holds truth values, which are classes: take GPClassifier, or y.astype(float).")
    if found.dtype.kind in "mM":
        raise ValueError("y holds dates or times: give numbers, such as days since the first.")
    if found.dtype.kind == "c":
        raise ValueError("Complex data not supported: y must be real numbers.")
    try:
        numbers = found.astype(np.float64)
    except (TypeError, ValueError):
        shown = next((cell for cell in found.ravel().tolist() if not isinstance(cell, int | float)), "text")
        raise ValueError(
            f"y must hold numbers; got {shown!r}. GPClassifier learns classes; numbers written as text need "
            "y.astype(float)."
        ) from None
    if numbers.ndim not in (1, 2) or (numbers.ndim == 2 and not numbers.shape[1]):
        raise ValueError(f"y must have a number, or a row of numbers, for each row of X; got shape {numbers.shape}.")
    if len(numbers) != n_rows:
        raise ValueError(
            f"X and y have inconsistent numbers of rows: X has {n_rows}, y has {len(numbers)}. Give one number a row."
        )
    if not np.isfinite(numbers).all():
        raise ValueError("Input y contains NaN or infinity: drop those rows.")
    if (np.abs(numbers) > LARGEST).any():
        raise ValueError(f"y holds {np.abs(numbers).max():.3g}, whose square is no number: divide y by {LARGEST:g}.")
    found = numbers.reshape(n_rows, -1)
    if n_targets is not None and found.shape[1] != n_targets:
        raise ValueError(f"y must have {n_targets} numbers a row, as in fit; got {found.shape[1]}.")
    return found

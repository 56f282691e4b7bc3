"""NumPy arrays and tensors of any kind as what a labelled set holds: inputs, and a class number for each row."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from sureshot.data.checks import check_class_labels
from sureshot.data.root import DataError


def to_inputs(x: ArrayLike | Tensor) -> Tensor:
    """Rows as a tensor: bytes stay bytes, other real numbers become float32.

    An array is copied. A tensor stays on its device.
    """
    rows = x.detach() if isinstance(x, Tensor) else _array(x, "x")
    real = rows.dtype.kind in "fiub" if isinstance(rows, np.ndarray) else not rows.is_complex()
    if not real or len(rows.shape) == 0 or len(rows) == 0:
        raise DataError(
            f"x of shape {tuple(rows.shape)} and dtype {rows.dtype}, expected real numbers (N, D), (N, length, D) or "
            "(N, channels, H, W)"
        )
    if isinstance(rows, Tensor):
        return rows if rows.dtype == torch.uint8 else rows.float()
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, which a labelled set refuses
        return torch.from_numpy(np.array(rows, dtype=np.uint8 if rows.dtype == np.uint8 else np.float32))


def number_classes(
    y: ArrayLike | Tensor,  # (N,), text, whole numbers or booleans
    n_rows: int,  # N, at least 1
) -> tuple[np.ndarray, tuple[str, ...]]:  # (N,) int64, K names
    """Class numbers 0..K-1 of any labels, in the sorted order of the labels, and the K labels as text.

    Missing labels are refused, and numbers with fractions.
    """
    labels = _array(y.detach().cpu() if isinstance(y, Tensor) else y, "y")
    if labels.shape != (n_rows,):
        advice = "; for one-hot rows use y.argmax(1)" if labels.ndim == 2 and labels.shape[1] > 1 else ""
        raise DataError(f"{n_rows} rows of x but y of shape {labels.shape}, expected one label for each row{advice}")
    # Whole numbers in an array of Python objects are numbers still: 2 comes before 10.
    found = check_class_labels("labelled set", pd.Series(labels).infer_objects(), "y", as_text=False)
    values, numbers = np.unique(found, return_inverse=True)
    return numbers.astype(np.int64), tuple(str(value) for value in values)


def _array(values: ArrayLike | Tensor, name: str) -> np.ndarray:
    try:
        return np.asarray(values)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} of type {type(values).__name__} is no array ({error})") from None

"""Rows as users pass them, checked and read together with their targets and weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from sureshot.estimators.rows.readers import Reader, TableReader
from sureshot.estimators.rows.validation import Columns, check_weights


@dataclass(frozen=True)
class LabelledData:
    """Checked rows, targets and weights, before equal rows are merged."""

    reader: Reader  # which has learnt what it takes to read further ones
    checked: np.ndarray  # (n, width)
    kept: np.ndarray  # (m, width), without those of weight zero
    targets: np.ndarray  # (m,) labels, or (m, P) numbers
    weight: np.ndarray  # (m,), positive
    columns: Columns
    counted: np.ndarray  # (n,) bool, the rows that are kept
    weightless: bool  # whether a label of y has weight zero in all its rows


def read_labelled(
    reader: Reader,
    name: str,
    columns: Columns | None,
    X: Any,
    y: Any,
    sample_weight: Any,
    check_targets: Callable[[Any, int], np.ndarray],  # given y and how many rows there are
) -> LabelledData:
    """Check rows with their targets and weights; rows of weight zero are left out.

    Without known columns these are the rows of a first fit.
    """
    reader = reader.taught(X, sample_weight) if columns is None else reader
    checked, found = reader.check(name, X, columns)
    targets = check_targets(y, len(checked))
    weight = check_weights(sample_weight, checked)
    counted = weight > 0
    reader = reader.timed(X, checked.shape[1]) if columns is None else reader
    if columns is not None and isinstance(X, pd.DataFrame) and isinstance(reader, TableReader):
        reader.check_filled(X, counted)
    kept = reader.keep(checked, fitting=True)[counted]
    weightless = targets.ndim == 1 and len(np.unique(targets)) > len(np.unique(targets[counted]))
    return LabelledData(
        reader.after(len(checked)), checked, kept, targets[counted], weight[counted], found, counted, weightless
    )

"""Inputs and weights, checked before an estimator computes.

Messages name the argument, what was expected, what came and what to try. Rows of weight zero are dropped.
"""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, validate_data

from sureshot.data.checks import listed
from sureshot.data.mixed_columns import name_to_json

MAX_NAMES = 5
MOST_WEIGHT = 1e15  # of a row; from 1e16 on, others lose their digits beside it


@dataclass(frozen=True)
class Columns:
    """The columns of inputs, as the user knows them."""

    n_features: int
    names: np.ndarray | None  # of a DataFrame, if they are text
    others: tuple[Any, ...] | None = None  # of a DataFrame, if some are no text, see `name_to_json`

    def check_parts(self) -> None:
        """ValueError for names that are not one for each column."""
        for names in (self.names, self.others):
            if names is not None and len(names) != self.n_features:
                raise ValueError("the names do not fit the columns")


def validated(name: str, X: Any, columns: Columns | None, **options: Any) -> tuple[np.ndarray, Columns]:
    """`sklearn.utils.validation.validate_data` for an estimator of that name, which it leaves alone.

    Scikit-learn notes the columns on the estimator before anything is known to succeed; here on a stand-in. It compares
    names that are text; here all are, as a table of numbers in another order would be answered without a word.
    """
    others = _other_names(X)
    if columns is not None and columns.others is not None and others is not None:
        _check_other_names(list(columns.others), list(others))
    stand_in = type(name, (BaseEstimator,), {})()
    if columns is not None:
        stand_in.n_features_in_ = columns.n_features
        if columns.names is not None:
            stand_in.feature_names_in_ = columns.names
    checked = validate_data(stand_in, X, reset=columns is None, **options)
    names = getattr(stand_in, "feature_names_in_", None)
    return checked, Columns(stand_in.n_features_in_, names, others) if columns is None else columns


def _other_names(X: Any) -> tuple[Any, ...] | None:
    """Names of a DataFrame's columns, where some are no text."""
    if not isinstance(X, pd.DataFrame) or all(isinstance(name, str) for name in X.columns):
        return None
    return tuple(map(name_to_json, X.columns))


def _check_other_names(known: list[Any], came: list[Any]) -> None:
    """ValueError where as many columns have other names, or another order."""
    if len(known) == len(came) and known != came:
        what = "in another order" if sorted(map(str, known)) == sorted(map(str, came)) else "of other names"
        raise ValueError(
            f"X has columns {what} than those that were learnt from: expected {listed(known)}, got {listed(came)}."
        )


def as_array(x: torch.Tensor) -> np.ndarray:
    """The tensor in memory, numbers of half precision as float32, since numpy lacks some of these types."""
    x = x.detach().cpu()
    return (x.float() if x.is_floating_point() and x.itemsize < 4 else x).numpy()


def check_inputs(
    name: str,  # of the estimator, for messages
    X: Any,
    columns: Columns | None,  # those that were learnt from; None on fitting
    *,
    only_numbers: bool = False,  # whether a DataFrame with text or gaps would not be understood either
) -> tuple[np.ndarray, Columns]:
    """Inputs (n, D) as a finite float64 matrix, and its columns, or an error that says which column is wrong.

    Sparse input is a TypeError.
    """
    if isinstance(X, torch.Tensor):
        X = as_array(X)
    if isinstance(X, np.ma.MaskedArray):
        X = np.ma.filled(X.astype(np.float64), np.nan)
    if isinstance(X, pd.DataFrame):
        _check_columns_numeric(X, only_numbers)
    elif hasattr(X, "__array__") and np.asarray(X).dtype.kind in "mM":
        raise TypeError(
            "X holds dates or times: pass a DataFrame, whose columns of dates are understood, or numbers, for example "
            "days since the first date."
        )
    try:
        checked, found = validated(name, X, columns, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=1)
    except ValueError as error:
        if (text := _first_text(X)) is None:
            raise
        taken = f"pass a DataFrame{of_pandas(X)}, whose columns of text are taken for categories, "
        raise ValueError(
            f"X must hold numbers, but {text} is text: {'' if only_numbers else taken}encode it, for example with a "
            "OneHotEncoder in a pipeline, or drop that column."
        ) from error
    _check_finite(checked, X, only_numbers)
    return checked, found


def check_weights(sample_weight: Any, x: np.ndarray | pd.DataFrame) -> np.ndarray:
    """Weights of rows as finite, non-negative floats with at least one positive."""
    if isinstance(sample_weight, torch.Tensor):
        sample_weight = as_array(sample_weight)
    if isinstance(sample_weight, np.ma.MaskedArray):
        sample_weight = np.ma.filled(sample_weight.astype(np.float64), np.nan)
    if sample_weight is not None:
        try:
            values = np.asarray(sample_weight, dtype=np.float64)
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"sample_weight must be None or a number for each row of X; got {reprlib.repr(sample_weight)}."
            ) from error
        sample_weight = values if values.ndim else float(values)
    weight = _check_sample_weight(sample_weight, x, dtype=np.float64)
    if (weight < 0).any():
        raise ValueError(
            f"sample_weight must not be negative; the smallest is {weight.min():g}. Drop those rows or use 0."
        )
    if (weight > MOST_WEIGHT).any():
        raise ValueError(
            f"sample_weight is too large: it is how many rows each stands for, {MOST_WEIGHT:g} at most; the "
            f"largest is {weight.max():g}. Divide all weights by the same number."
        )
    return weight


def check_unseen(unseen: Any, n_rows: int) -> np.ndarray:
    """A mask of rows that a network was not trained on, (n,) bool."""
    if isinstance(unseen, torch.Tensor):
        unseen = as_array(unseen)
    mask = np.asarray(unseen)
    if mask.dtype != bool or mask.ndim != 1:
        raise ValueError(
            f"unseen must hold True or False for each row of X; got {reprlib.repr(unseen)}. Of row numbers make a "
            "mask: unseen = numpy.isin(numpy.arange(len(X)), numbers)."
        )
    if len(mask) != n_rows:
        raise ValueError(f"unseen must hold True or False for each row of X: X has {n_rows} rows, unseen {len(mask)}.")
    return mask


def _check_columns_numeric(frame: pd.DataFrame, only_numbers: bool) -> None:
    if not frame.shape[1]:
        raise ValueError(
            f"X has no columns to learn from: 0 feature(s) (shape={frame.shape}), and one at least is needed."
        )
    pairs = zip(frame.columns, frame.dtypes, strict=True)
    if complex_ones := [str(name) for name, dtype in pairs if pd.api.types.is_complex_dtype(dtype)]:
        raise ValueError(
            f"Complex data not supported: columns {shorten(complex_ones)} hold complex numbers; make two columns of "
            "each, of the real and of the imaginary parts."
        )
    bad = [
        str(name)
        for name, dtype in zip(frame.columns, frame.dtypes, strict=True)
        if not (pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_bool_dtype(dtype))
    ]
    if bad:
        raise ValueError(
            f"X has non-numeric columns {shorten(bad)} where only numbers can be used: "
            + (
                "correct the cells, or encode the columns first."
                if only_numbers
                else "those that were learnt from were numbers. Correct the cells, or state the kinds of the columns "
                "on fitting (columns=...)."
            )
        )


def of_pandas(X: Any) -> str:
    """How to make a DataFrame of a table that is another library's."""
    return " of pandas (X.to_pandas())" if hasattr(X, "to_pandas") else ""


def _first_text(X: Any) -> str | None:
    """The first cell of a table (n, D) that is text and stands for no number, and where it is."""
    try:
        cells = np.asarray(X, dtype=object)
    except ValueError:  # rows of different lengths
        return None
    for place, cell in np.ndenumerate(cells) if cells.ndim == 2 else ():
        if isinstance(cell, str | bytes):
            try:
                float(cell)
            except ValueError:
                return f"{str(cell)[:40]!r} in row {place[0]}, column {place[1]}"
    return None


def _check_finite(x: np.ndarray, original: Any, only_numbers: bool) -> None:
    for problem, mask in (("NaN", np.isnan(x)), ("infinity", np.isinf(x))):
        if not mask.any():
            continue
        columns = np.flatnonzero(mask.any(axis=0))
        framed = isinstance(original, pd.DataFrame)
        names = [str(original.columns[int(j)]) if framed else str(j) for j in columns]
        advice = "clip or drop those values"
        if problem == "NaN":
            advice = "impute them in a pipeline, for example make_pipeline(SimpleImputer(), estimator), or "
            if only_numbers:
                advice += "drop those rows"
            elif framed:
                advice += f"fit on a DataFrame whose kinds are stated (columns={{'{names[0]}': 'number'}})"
            else:
                advice += "fit on a DataFrame, which may have gaps"
        raise ValueError(
            f"Input X contains {problem} in {int(mask.any(axis=1).sum())} rows, columns {shorten(names)}: {advice}."
        )


def shorten(names: list[str]) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(names[:MAX_NAMES])
    return f"[{shown}]" if len(names) <= MAX_NAMES else f"[{shown}, and {len(names) - MAX_NAMES} more]"

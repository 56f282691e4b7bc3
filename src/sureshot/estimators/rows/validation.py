"""What becomes of inputs, labels and weights before an estimator computes: they are checked, merged, weighed by class.

Messages name the argument, what was expected, what came and what to try. Rows of weight zero are dropped (in
`readers`), and rows that repeat (same inputs, same label) are merged into one row with their summed weight, so that
integer weights equal repeated rows exactly. Merged rows are kept in a canonical order: the fitted model does not depend
on the order in which rows arrive.
"""

from __future__ import annotations

import numbers
import reprlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, column_or_1d, validate_data

from sureshot.data.checks import listed
from sureshot.estimators.rows.mixed_columns import name_to_json
from sureshot.kernels import is_unit_norm

MAX_NAMES = 5
MOST_WEIGHT = 1e15  # of a row; from 1e16 on, others lose their digits beside it
BESIDE_SINGLE_ROWS = 3.0
"""Rows as which a class of embeddings counts at most where half of the classes have one, which says little of these.

One with twenty labels would draw to it all that is like none of the single ones, and be sure of it: groups of twenty
intents had a log loss of 1.9, and .9 with this limit. Where classes have a second row that gain is small, and with more
the limit takes away what the rows say."""
ONE_TELLS = 0.8
"""The share of a class's rows that any one of them tells from single rows from which on one row says enough.

Then single rows count as many: three intents with fifty labels beside three with one had a log loss of .49 with the
limit, .41 without, and .21 so. One of an intent tells .9 of them, one of a group of four intents .4."""
MOST_COMPARED = 200  # rows of a class


@dataclass(frozen=True)
class LabelledRows:
    """Distinct labelled rows with their weights."""

    x: np.ndarray  # (n, D) float64
    y: np.ndarray  # (n,) int64, positions in the estimator's ``classes_``
    weight: np.ndarray  # (n,) float64, positive
    # (n,) float64, the weights without those of classes, if these are multiplied in
    copies: np.ndarray | None = field(default=None, metadata={"stored": False})

    def check_parts(self) -> None:
        """ValueError for what are no labelled rows."""
        x, y, weight = self.x, self.y, self.weight
        if x.dtype != np.float64 or x.ndim != 2 or y.dtype != np.int64 or weight.dtype != np.float64:
            raise ValueError("labelled rows of other types")
        if not len(x) == len(y) == len(weight) or y.ndim != 1 or weight.ndim != 1 or not (weight > 0).all():
            raise ValueError("labelled rows that do not fit their labels and weights")

    @property
    def of_one(self) -> np.ndarray:
        """The share (n,) of its weight that one of the rows has which a row stands for."""
        found: np.ndarray = 1 / np.maximum(self.weight if self.copies is None else self.copies, 1)
        return found

    @cached_property
    def left_out_shares(self) -> np.ndarray:
        """Of its weight, (n,), that is left out of a row when the others are asked what they say of it.

        All of it, as copies tell nothing new where they are the same row sent again, drawn again or weighted, and
        settings that know every copy again would be chosen. But where equal rows have different labels, as in a table
        of few values, only one of the copies: without all of them the row would be told by nothing but the labels that
        contradict it.
        """
        of_one = self.of_one
        if (of_one == 1).all():
            return of_one
        place = equal_rows(self.x)
        contradicted = np.bincount(place)[place] > 1  # by an equal row of another label
        found: np.ndarray = np.where(contradicted, of_one, 1.0)
        return found

    @property
    def evidence(self) -> np.ndarray:
        """As how many observations (n,) rows count when they are left out: once, where that is with all their copies.

        Forty rows of weight 100 are no four thousand answers, which would outweigh all that is usual.
        """
        found: np.ndarray = self.weight * self.of_one / self.left_out_shares
        return found


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
            f"sample_weight is too large: it says of how many rows each stands for, {MOST_WEIGHT:g} at most; the "
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


def merge_rows(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> LabelledRows:
    """Merge equal labelled rows of positive weight, sort canonically."""
    return merged_rows(LabelledRows(x, y, weight))[0]


def merged_rows(rows: LabelledRows) -> tuple[LabelledRows, np.ndarray]:
    """As `merge_rows`, and where each row has gone, (n,) int64."""
    x = rows.x + 0.0  # turns -0.0 into 0.0
    keyed = _as_bytes(np.column_stack([x, rows.y.astype(np.float64)]))
    _, first, inverse = np.unique(keyed, return_index=True, return_inverse=True)
    place = inverse.ravel()
    merged = np.bincount(place, weights=rows.weight, minlength=len(first))
    return LabelledRows(x[first], rows.y[first].astype(np.int64), merged), place


def equal_rows(x: np.ndarray) -> np.ndarray:
    """Numbers (N,) of rows, equal for equal rows."""
    found: np.ndarray = np.unique(_as_bytes(x + 0.0), return_inverse=True)[1].ravel()
    return found


def places_among(known: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Where rows (n, D) are among known ones (m, D), (n,) int64; -1 where they are not."""
    number = equal_rows(np.concatenate([known, x]))
    place = np.full(number.max(initial=-1) + 1, -1)
    place[number[: len(known)]] = np.arange(len(known))
    found: np.ndarray = place[number[len(known) :]]
    return found


def _as_bytes(x: np.ndarray) -> np.ndarray:
    """Rows (N, D) as one value each."""
    x = np.ascontiguousarray(x)
    return x.view(np.dtype((np.void, x.dtype.itemsize * x.shape[1]))).ravel()


def joined_rows(old: LabelledRows, new: LabelledRows) -> LabelledRows:
    """One after the other."""
    pairs = ((old.x, new.x), (old.y, new.y), (old.weight, new.weight))
    x, y, weight = (np.concatenate(pair) for pair in pairs)
    return LabelledRows(x, y, weight)


def same_rows(rows: LabelledRows, others: LabelledRows) -> bool:
    """Whether merged rows are the same."""
    return all(
        np.array_equal(mine, other)
        for mine, other in ((rows.y, others.y), (rows.weight, others.weight), (rows.x, others.x))
    )


def weigh_classes(
    rows: LabelledRows,  # with the weights that they came with
    class_weight: Any,  # a dict by label, "auto", "balanced" or None
    classes: np.ndarray,  # (C,)
    inference: str,  # weights stay whole where it samples
) -> LabelledRows:
    """The rows with the weights of their classes multiplied in; rows of a class of weight zero are left out.

    "balanced" gives every class that has rows the same total weight and keeps the sum of all weights. It counts a row
    of weight 2 as two rows. "auto" leaves them as they are, but of embeddings, half of whose classes
    have one row, all classes count as the largest, or none as more than `BESIDE_SINGLE_ROWS`.
    """
    if class_weight is None:
        return rows
    totals = np.bincount(rows.y, rows.weight, minlength=len(classes))
    if isinstance(class_weight, str) and class_weight == "auto":
        if inference == "gibbs" or not _outweighs_single_rows(rows, totals):
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
            f"class_weight has weights for {_shorten(list(map(repr, unknown)))}, which y does not have, and none for "
            f"{_shorten(list(map(repr, unweighted)))}: name the labels as y does, 1 for those that keep their weight."
        )
    try:
        return np.array([float(class_weight.get(label, 1.0)) for label in labels])
    except (ValueError, TypeError) as error:
        raise ValueError(f"class_weight must hold numbers; got {class_weight!r}.") from error


def _check_columns_numeric(frame: pd.DataFrame, only_numbers: bool) -> None:
    if not frame.shape[1]:
        raise ValueError(
            f"X has no columns to learn from: 0 feature(s) (shape={frame.shape}), and one at least is needed."
        )
    pairs = zip(frame.columns, frame.dtypes, strict=True)
    if complex_ones := [str(name) for name, dtype in pairs if pd.api.types.is_complex_dtype(dtype)]:
        raise ValueError(
            f"Complex data not supported: columns {_shorten(complex_ones)} hold complex numbers; make two columns of "
            "each, of the real and of the imaginary parts."
        )
    bad = [
        str(name)
        for name, dtype in zip(frame.columns, frame.dtypes, strict=True)
        if not (pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_bool_dtype(dtype))
    ]
    if bad:
        raise ValueError(
            f"X has non-numeric columns {_shorten(bad)} where only numbers can be used: "
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
            f"Input X contains {problem} in {int(mask.any(axis=1).sum())} rows, columns {_shorten(names)}: {advice}."
        )


def _shorten(names: list[str]) -> str:
    shown = ", ".join(names[:MAX_NAMES])
    return f"[{shown}]" if len(names) <= MAX_NAMES else f"[{shown}, and {len(names) - MAX_NAMES} more]"

"""From what a user passes as X to the rows that an estimator keeps.

A reader checks, and brings rows into the form in which labelled ones are kept: numbers stay as they are, text, dates
and gaps of a DataFrame become numbers (`mixed_columns`), images become embeddings (`encoder`), the rows of a
kernel matrix their positions in it (`precomputed`). What that takes is learnt from the rows of the first fit.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse

from sureshot.data.cells import DATE, IGNORE, NUMBER, TEXT, CellError, as_numbers, gaps_of
from sureshot.data.checks import listed
from sureshot.data.column_kinds import median_of
from sureshot.data.mixed_columns import ColumnEncoder, check_kinds, has_mixed_columns
from sureshot.data.remembered import Remembered
from sureshot.estimators.rows.clock import ARRIVAL, Clock, check_times, clock_for
from sureshot.estimators.rows.sparse_rows import ADVICE, SpannedRows, checked_sparse
from sureshot.estimators.rows.validation import Columns, check_inputs, check_weights, of_pandas, validated
from sureshot.warned import warn


class Reader(ABC):
    """Reads rows; a value."""

    encoder: ColumnEncoder | None = None
    """What makes numbers of a DataFrame's columns, where they are not numbers already."""
    reading: Remembered | None = None
    """How the file was read from which the first rows came."""
    clock: Clock | None = None
    """What tells the time of rows, where it matters."""
    doubt: float = 0.0
    """Variance of numbers, as they are learnt, that rows which have taught it to read do not show."""
    unseen_errors: np.ndarray | None = None
    """How far off numbers were of rows that have not, (P, K), each increasing, in deviations with this doubt."""

    @property
    def has_columns(self) -> bool:
        """Whether rows are kept in columns that mean something one by one."""
        return True

    @property
    def arrival(self) -> int | None:
        """The column that numbers rows as they arrive, the last, which no user knows; None: there is none."""
        return self.clock.place if self.clock is not None and self.clock.counted else None

    def names_of(self, columns: Columns) -> tuple[str, ...] | None:
        """Names of the columns in which rows are kept, where these have any."""
        return None

    def as_learnt(self, kept: np.ndarray) -> np.ndarray:
        """Rows as they are kept, in the form in which they would be learnt."""
        return kept

    def taught(self, X: Any, sample_weight: Any) -> Reader:
        """The reader of all later rows, from those of a first fit; itself, where there is nothing to learn."""
        return self

    def timed(self, X: Any, n_columns: int) -> Reader:
        """The reader with what tells the time of a first fit's rows, which have so many columns."""
        return self

    def after(self, n_rows: int) -> Reader:
        """The reader when so many rows have come."""
        return self

    @abstractmethod
    def check(self, name: str, X: Any, columns: Columns | None) -> tuple[np.ndarray, Columns]:
        """Rows (n, width) and their columns, or an error that says what is wrong; as `validation.check_inputs`."""

    @abstractmethod
    def keep(self, checked: np.ndarray, fitting: bool) -> np.ndarray:
        """Checked rows in the form in which labelled ones are kept."""


@dataclass(frozen=True)
class TableReader(Reader):
    """Numeric columns as they are; those of a DataFrame that has others, or gaps, as numbers; sparse rows as dense."""

    encoder: ColumnEncoder | None = None  # None: numbers only
    medians: tuple[float, ...] | None = None  # of a DataFrame's numbers without gaps: what later gaps are
    kinds: Mapping[Any, str] = field(default_factory=dict, metadata={"stored": False})  # of columns, as stated
    # "linear", "cosine" or "auto": by which sparse rows may be compared; None: by none
    kernel: str | None = field(default=None, metadata={"stored": False})
    spanned: SpannedRows | None = None  # of sparse rows
    reading: Remembered | None = None
    time: Any = field(default=None, metadata={"stored": False})  # as stated, see `clock_for`
    clock: Clock | None = None

    def width(self, n_features: int) -> int:
        """The number of columns in which rows are kept; ValueError if they do not fit so many."""
        learnt = [] if self.encoder is None else [len(self.encoder.columns)]
        learnt += [] if self.medians is None else [len(self.medians)]
        learnt += [] if self.spanned is None else [self.spanned.n_columns]
        if any(number != n_features for number in learnt):
            raise ValueError("what was learnt of the columns does not fit them")
        if self.spanned is not None:
            return self.spanned.width
        width = n_features if self.encoder is None else len(self.encoder.names)
        if self.clock is not None and self.clock.place >= width + self.clock.counted:
            raise ValueError("the clock is none of the columns")
        return width + (self.arrival is not None)

    @classmethod
    def of(cls, columns: Any, kernel: str | None = None, time: Any = None) -> TableReader:
        """With kinds of columns and the time as an estimator's arguments, and the kernel that compares sparse rows."""
        return cls(kinds=check_kinds(columns), kernel=kernel, time=time)

    def taught(self, X: Any, sample_weight: Any) -> Reader:
        """With what X needs: a DataFrame an encoder, sparse rows what they span. Rows of weight zero teach nothing."""
        X = with_plain_columns(X)
        if scipy.sparse.issparse(X):
            return self._taught_sparse(X, sample_weight)
        if not isinstance(X, pd.DataFrame):
            if self.kinds:
                raise ValueError(
                    f"columns states kinds of a DataFrame's columns, but X is a {type(X).__module__.split('.')[0]} "
                    f"{type(X).__name__}: pass a DataFrame{of_pandas(X)}."
                )
            return self
        return replace(self, reading=Remembered.of(X))._taught_frame(X, sample_weight)

    def _taught_frame(self, X: pd.DataFrame, sample_weight: Any) -> TableReader:
        mixed = bool(self.kinds) or has_mixed_columns(X)
        if not len(X):
            if not mixed:
                return self
            raise ValueError(f"Found array with 0 sample(s) (shape={X.shape}) while a minimum of 1 is required.")
        weight = check_weights(sample_weight, X)
        rows, weight = X[weight > 0], weight[weight > 0]
        if mixed:
            return replace(self, encoder=ColumnEncoder.learnt(rows, self.kinds, weight))
        if any(pd.api.types.is_complex_dtype(dtype) for dtype in rows.dtypes):
            return self  # which `check` refuses
        values = rows.to_numpy(dtype=np.float64)
        return replace(self, medians=tuple(median_of(column, weight) for column in values.T))

    def _taught_sparse(self, X: Any, sample_weight: Any) -> Reader:
        if self.kernel is None:
            raise TypeError(f"X is sparse, and only rows with all their columns can be used here. {ADVICE}")
        spanned = SpannedRows.of("GPClassifier", X, sample_weight)
        if self.kernel == "auto" and not spanned.unit:
            raise TypeError(
                "X is sparse, and its rows have not all length 1, so nothing says how to compare them: scale them "
                "(sklearn.preprocessing.normalize), or for GPClassifier state kernel='cosine' for directions, of texts "
                "say, or kernel='linear'."
            )
        return replace(self, spanned=spanned)

    def timed(self, X: Any, n_columns: int) -> Reader:
        if self.time is None:
            return self
        if self.spanned is not None:
            raise ValueError(f"time={self.time!r} does not go with sparse rows: pass a table.")
        tells = None if self.encoder is None else self.encoder.first_of(NUMBER, DATE)
        return replace(self, clock=clock_for(self.time, X, n_columns, tells))

    def after(self, n_rows: int) -> Reader:
        return self if self.clock is None else replace(self, clock=self.clock.after(n_rows))

    def check(self, name: str, X: Any, columns: Columns | None) -> tuple[np.ndarray, Columns]:
        X = with_plain_columns(X)
        if self.time is not None:
            check_times(self.time, X)
        if self.spanned is not None:
            checked, found = checked_sparse(name, X, columns)
            return self.spanned(checked), found
        if self.encoder is None:
            return check_inputs(name, X if columns is None else self._without_gaps(X, columns), columns)
        if not isinstance(X, pd.DataFrame):
            raise ValueError(
                f"X must be a DataFrame, as this {name} was fitted on one whose columns are not all numbers without "
                f"gaps; got {type(X).__name__}. Its columns are those of feature_names_in_."
            )
        X = self.encoder.with_ignored(X)
        _, found = validated(name, X, columns, skip_check_array=True)
        if not len(X):
            raise ValueError(f"Found array with 0 sample(s) while a minimum of 1 is required by {name}.")
        encoded = self.encoder(X)
        if columns is not None and (emptied := self.encoder.with_many_gaps(X)):
            warn(
                f"many cells are missing in columns {listed(emptied)}, where hardly any was when they were learnt "
                "from: they are taken for the median of the labelled rows",
            )
        return encoded, found

    def check_filled(self, X: pd.DataFrame, counted: np.ndarray) -> None:
        """ValueError for a row without a cell, of those that count (n,): medians would teach what nobody saw.

        A text without a word is one.
        """
        kinds = {} if self.encoder is None else self.encoder.kinds
        if TEXT in kinds.values():
            return
        ignored = [name for name, kind in kinds.items() if kind == IGNORE]
        filled = [~gaps_of(X.iloc[:, place]) for place, name in enumerate(X.columns) if name not in ignored]
        empty = np.flatnonzero(counted & ~np.any(filled, axis=0)) if filled else np.zeros(0, dtype=np.int64)
        if len(empty):
            raise ValueError(
                f"{len(empty)} of {len(X)} labelled rows have no cell that is filled, the first is row {empty[0]}, "
                "counted from 0, so there is nothing to learn from them: leave them out."
            )

    def _without_gaps(self, X: Any, columns: Columns) -> Any:
        """A DataFrame of the learnt columns with medians in place of gaps, and a warning; anything else as it is."""
        known = None if columns.names is None else columns.names.tolist()
        if self.medians is None or not isinstance(X, pd.DataFrame) or known not in (None, X.columns.tolist()):
            return X
        X = _with_plain_numbers(X)
        gaps = X.isna().to_numpy()
        if not gaps.any() or X.shape[1] != len(self.medians):
            return X
        filled, places = X.copy(deep=False), np.flatnonzero(gaps.any(axis=0))
        for place in places.tolist():
            values = as_numbers(X.iloc[:, place])
            filled.isetitem(place, np.where(gaps[:, place], self.medians[place], values))
        warn(
            f"gaps in {int(gaps.any(axis=1).sum())} of {len(X)} rows, columns {listed(X.columns[places].tolist())}, "
            "which had none when they were learnt from, are taken for the median of the labelled rows",
        )
        return filled

    def keep(self, checked: np.ndarray, fitting: bool) -> np.ndarray:
        rows = self.as_learnt(checked) if fitting else checked
        return rows if self.clock is None else self.clock.numbered(rows, fitting)

    def names_of(self, columns: Columns) -> tuple[str, ...] | None:
        if self.encoder is not None:
            names = self.encoder.names
        elif columns.names is None or not self.has_columns:
            return None
        else:
            names = tuple(map(str, columns.names))
        return names if self.arrival is None else (*names, ARRIVAL)

    @property
    def has_columns(self) -> bool:
        """Coordinates of sparse rows are none."""
        return self.spanned is None

    def as_learnt(self, kept: np.ndarray) -> np.ndarray:
        return kept if self.spanned is None else self.spanned.known(kept)


def _with_plain_numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """Where columns of objects hold nothing but numbers, as those of a single row do, the frame with these."""
    places = [place for place, dtype in enumerate(frame.dtypes) if dtype == np.dtype(object)]
    columns = {
        place: frame.iloc[:, place]
        for place in places
        if all(
            isinstance(cell, numbers.Real | Decimal) or cell is None or cell is pd.NA for cell in frame.iloc[:, place]
        )
    }
    return _with_columns(frame, {place: as_numbers(column) for place, column in columns.items()})


def _with_columns(frame: pd.DataFrame, columns: Mapping[int, np.ndarray]) -> pd.DataFrame:
    """The frame with others in the place of some columns; itself if there are none."""
    if not columns:
        return frame
    found = frame.copy(deep=False)
    for place, column in columns.items():
        found.isetitem(place, column)
    return found


def with_plain_columns(X: Any) -> Any:
    """A DataFrame whose sparse columns are dense, and Arrow's of other things than numbers and text objects; else X.

    `CellError` for two columns of the same name.
    """
    if not isinstance(X, pd.DataFrame):
        return X
    twice = X.columns[X.columns.duplicated()]
    if len(twice):
        raise CellError(f"more than one column is called {listed(list(twice))}; rename them")
    found: dict[int, np.ndarray] = {}
    for place, kind in enumerate(X.dtypes):
        if isinstance(kind, pd.SparseDtype):
            found[place] = X.iloc[:, place].to_numpy()
        elif isinstance(kind, pd.ArrowDtype) and not any(is_known(kind) for is_known in _KNOWN):
            found[place] = X.iloc[:, place].to_numpy(dtype=object)
    return _with_columns(X, found)


_KNOWN = (
    *(pd.api.types.is_numeric_dtype, pd.api.types.is_bool_dtype),
    *(pd.api.types.is_datetime64_any_dtype, pd.api.types.is_string_dtype),
)


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

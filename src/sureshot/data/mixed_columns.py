"""The columns of a DataFrame as numbers: text, categories, booleans, dates, times and gaps.

What becomes of each is in `column_kinds`. An encoder is a value without random state and is written as JSON, so it is
part of model files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from sureshot.data.cells import (
    CATEGORY,
    DATE,
    DAY_FIRST,
    FEWEST_MEASURED,
    IGNORE,
    KINDS,
    MONTH_FIRST,
    NUMBER,
    TEXT,
    CellError,
    UnreadCell,
    as_days,
    gaps_of,
    in_other_order,
    is_object,
    kind_of,
    order_of,
)
from sureshot.data.checks import listed, near
from sureshot.data.column_kinds import (
    ASKED,
    EMPTY,
    SCATTERED,
    UNIQUE,
    CategoryColumn,
    Column,
    DateColumn,
    IgnoredColumn,
    NumberColumn,
    TextColumn,
)
from sureshot.data.written_numbers import WayOfWriting, are_codes, what_is_lost
from sureshot.warned import warn

MOST_TOKENS = 5
"""Texts that may all stand for gaps; a column of more is of another kind."""
MANY_GAPS = 0.1  # of the cells of a column that had hardly any: it has gone missing, or has another name or unit


def has_mixed_columns(frame: pd.DataFrame) -> bool:
    """Whether a column is not plainly numeric, or has gaps."""
    kinds = pd.api.types
    plain = all(kinds.is_numeric_dtype(dtype) or kinds.is_bool_dtype(dtype) for dtype in frame.dtypes)
    return not plain or bool(frame.isna().to_numpy().any())


def check_kinds(columns: Any) -> dict[Any, str]:
    """Kinds of columns by name, none for "auto"."""
    if isinstance(columns, str) and columns == "auto":
        return {}
    if not isinstance(columns, Mapping):
        raise ValueError(
            f"columns must be 'auto' or a dict from names of columns to kinds ({', '.join(KINDS)}); got {columns!r}."
        )
    for name, kind in columns.items():
        if not isinstance(kind, str) or kind not in (*KINDS, "auto"):
            raise ValueError(
                f"columns: the kind of {name!r} must be one of {', '.join(KINDS)}, auto; got {kind!r}"
                f"{near(str(kind), KINDS)}."
            )
    return {name: kind for name, kind in columns.items() if kind != "auto"}


@dataclass(frozen=True)
class ColumnEncoder:
    """A map from DataFrames to numbers, learnt from the rows of a first fit."""

    columns: tuple[Column, ...]

    @classmethod
    def learnt(
        cls,
        frame: pd.DataFrame,
        kinds: Mapping[Any, str],  # stated, by name
        weight: np.ndarray,  # (n,), positive
    ) -> ColumnEncoder:
        """From labelled rows; `CellError` for a column that cannot be read, a warning for those that are left out.

        Weights that are shares of a row make rows no fewer: levels and gaps are counted as if the mean weight were 1.
        """
        weight = weight / min(1.0, float(weight.mean()))
        labels = list(frame.columns)
        for name in kinds:
            if name not in labels:
                near_names = near(str(name), [str(label) for label in labels])
                raise CellError(f"columns: X has no column {name!r}{near_names}; columns: {listed(labels)}")
        found = cls(_all_learnt([frame[label].rename(label) for label in labels], kinds, weight))
        left_out = [f"{names} ({why})" for why in (UNIQUE, SCATTERED, EMPTY) if (names := found._left_out(why))]
        if not found.names:
            what = f": {'; '.join(left_out)}" if left_out else ""
            raise CellError(f"no column is left to learn from{what}; a kind can be stated, such as 'text'")
        if left_out:
            text = f"nothing is learnt from {'; '.join(left_out)}; a kind can be stated, such as 'text' or 'ignore'"
            warn(text)
        return found

    def __call__(self, frame: pd.DataFrame) -> np.ndarray:
        """Numbers (n, D) of the frame's columns, which are those of the first fit in their order."""
        parts = [column.encode(frame.iloc[:, place]) for place, column in enumerate(self.columns)]
        return np.concatenate(parts, axis=1).astype(np.float64)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns that it makes, length D."""
        return tuple(name for column in self.columns for name in column.encoded)

    @property
    def sources(self) -> np.ndarray:
        """From which column of the frame each of these is, (D,)."""
        return np.repeat(np.arange(len(self.columns)), [len(column.encoded) for column in self.columns])

    def first_of(self, *kinds: str) -> list[tuple[Any, int]]:
        """The frame's columns of these kinds, with the first of the columns made of each."""
        starts = np.searchsorted(self.sources, range(len(self.columns)))
        return [(one.name, int(at)) for one, at in zip(self.columns, starts, strict=True) if one.kind in kinds]

    @property
    def kinds(self) -> dict[Any, str]:
        """By name of the frame's column."""
        return {column.name: column.kind for column in self.columns}

    @property
    def as_written(self) -> list[Any]:
        """Names of columns whose cells are taken as they are written, 01 and 1 apart."""
        return [column.name for column in self.columns if column.kind in (CATEGORY, DATE, TEXT)]

    @property
    def written(self) -> dict[Any, WayOfWriting]:
        """How numbers were written, of columns where points or commas can mean two things."""
        return {
            column.name: WayOfWriting(column.decimal, column.grouped)
            for column in self.columns
            if isinstance(column, NumberColumn) and (column.decimal == "," or column.grouped)
        }

    def with_ignored(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The frame with columns that nothing is learnt from, where it lacks them."""
        present = set(frame.columns)
        lacking = [column.name for column in self.columns if column.kind == IGNORE and column.name not in present]
        if not lacking:
            return frame
        known = [column.name for column in self.columns]
        others = [name for name in frame.columns if name not in set(known)]
        return frame.reindex(columns=[name for name in known if name in present or name in lacking] + others)

    def with_many_gaps(self, frame: pd.DataFrame) -> list[Any]:
        """Names of columns of numbers or dates with more than `MANY_GAPS` of gaps, which had hardly any."""
        return [
            column.name
            for place, column in enumerate(self.columns)
            if isinstance(column, NumberColumn | DateColumn)
            and not column.marked
            and gaps_of(frame.iloc[:, place]).mean() > MANY_GAPS
        ]

    def by_source(self, values: np.ndarray) -> np.ndarray:
        """Root mean squares over the columns that each of the frame's became, 0 for those that were left out."""
        count = np.bincount(self.sources, minlength=len(self.columns))
        squares = np.bincount(self.sources, values**2, minlength=len(self.columns))
        return np.sqrt(squares / np.maximum(count, 1))

    def __str__(self) -> str:
        """What was done, in a line."""
        named_kinds = {CATEGORY: "categories", DATE: "dates", TEXT: "pieces of words", IGNORE: "left out"}
        parts = []
        for kind, title in named_kinds.items():
            names = [_with_order(column) for column in self.columns if column.kind == kind]
            if names:
                parts.append(f"{title}: {listed(names)}")
        marked = [c.name for c in self.columns if isinstance(c, NumberColumn | DateColumn) and c.marked]
        if marked:
            parts.append(f"gaps are the median, and marked: {listed(marked)}")
        n_numbers = sum(column.kind == NUMBER for column in self.columns)
        return "; ".join([f"{n_numbers} of {len(self.columns)} columns are numbers", *parts])

    def to_json(self) -> list[dict[str, Any]]:
        """Plain values."""
        return [
            {"kind": column.kind, **_plain(asdict(column)), "name": name_to_json(column.name)}
            for column in self.columns
        ]

    @classmethod
    def from_json(cls, stored: Any) -> ColumnEncoder:
        """What `to_json` wrote; ValueError for anything else."""
        try:
            found = cls(tuple(_from_json(values) for values in stored))
            hash(found)  # a field that is a dict is none of ours
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError("malformed columns") from error
        return found

    def _left_out(self, why: str) -> str:
        return listed([one.name for one in self.columns if isinstance(one, IgnoredColumn) and one.why == why])


_COLUMNS: dict[str, type[Any]] = {
    c.kind: c for c in (NumberColumn, CategoryColumn, DateColumn, TextColumn, IgnoredColumn)
}


def _all_learnt(columns: list[pd.Series], kinds: Mapping[Any, str], weight: np.ndarray) -> tuple[Column, ...]:
    """Of all columns; one error for all that have cells which cannot be read."""
    found: list[Column] = []
    unread: list[UnreadCell] = []
    for column in columns:
        stated = kinds.get(column.name)
        try:
            kind, way = kind_of(column, stated)
            found.append(_of_kind(column, kind, way, stated, weight))
        except UnreadCell as error:
            unread.append(error)
    if unread:
        raise UnreadColumns(unread)
    return tuple(found)


class UnreadColumns(CellError):
    """Cells that cannot be read, of some columns."""

    def __init__(self, unread: list[UnreadCell]) -> None:
        super().__init__(_advised(unread))
        self.unread = unread

    def __reduce__(self) -> tuple[type[UnreadColumns], tuple[list[UnreadCell]]]:
        return UnreadColumns, (self.unread,)


def _advised(unread: list[UnreadCell]) -> str:
    """What cannot be read, and what to do: of texts that come again gaps are the likely meaning."""
    reasons = "; ".join(str(error) for error in unread)
    tokens = dict.fromkeys(text.strip() for error in unread for text, count in error.texts.items() if count > 1)
    kinds = ", ".join(f"{error.name!r}: 'category'" for error in unread)
    gaps = f", take it for a gap (read_table(..., missing={list(tokens)}))" if 0 < len(tokens) <= MOST_TOKENS else ""
    return f"{reasons}{gaps}, or take the column as another kind (columns={{{kinds}}})"


def _warn_of_numbers(column: pd.Series) -> None:
    """Of categories that are numbers but for one text, which may stand for a gap."""
    texts = column.to_numpy(dtype=object)[~gaps_of(column)] if is_object(column) else np.zeros(0, dtype=object)
    distinct = pd.unique(texts)
    if len(distinct) <= FEWEST_MEASURED or are_codes([str(text).strip() for text in distinct]):
        return
    odd = [text for text in distinct if isinstance(text, str) and not any(map(str.isdigit, text))]
    if (
        len(odd) != 1
        or kind_of(pd.Series([text for text in distinct if text is not odd[0]], dtype=object))[0] != NUMBER
    ):
        return
    warn(
        f"column {column.name!r} is taken for categories, as {odd[0]!r} in {int((texts == odd[0]).sum())} rows is no "
        f"number and all others are: read_table(..., missing={[odd[0]]}) takes it for a gap"
    )


def _warn_of_order(column: pd.Series, form: str) -> None:
    """Say which order of day and month was taken, where all cells allow both."""
    other = in_other_order(form)
    if other is None:
        return
    days = as_days(column, form)
    try:
        swapped = as_days(column, other)
    except CellError:
        return
    apart = np.flatnonzero((swapped != days) & ~np.isnan(days))
    if len(apart):
        month_first = order_of(form) == MONTH_FIRST
        warn(
            f"all dates of column {column.name!r} can be read in two orders, and are taken with the "
            f"{'month' if month_first else 'day'} first ({str(column.iloc[int(apart[0])])[:40]!r} and all others): "
            f"columns={{{column.name!r}: {order_of(other)!r}}} takes the other"
        )


def _of_kind(column: pd.Series, kind: str, way: str, stated: str | None, weight: np.ndarray) -> Column:
    if kind == IGNORE or gaps_of(column).all():
        return IgnoredColumn(column.name, ASKED if stated == IGNORE else EMPTY)
    if kind == TEXT:
        return TextColumn(column.name)
    if kind == CATEGORY:
        if stated is None:
            _warn_of_numbers(column)
        return CategoryColumn.learnt(column, weight, stated is not None)
    if kind == NUMBER and stated is None and is_object(column):
        texts = {cell.strip() for cell in column.to_numpy(dtype=object)[~gaps_of(column)] if isinstance(cell, str)}
        if lost := what_is_lost(sorted(texts)):
            warn(f"in column {column.name!r} {lost}; columns={{{column.name!r}: 'category'}} keeps what is written")
    if kind == DATE and stated not in (DAY_FIRST, MONTH_FIRST):
        _warn_of_order(column, way)
    return (NumberColumn if kind == NUMBER else DateColumn).learnt(column, weight, way)


def _with_order(column: Column) -> str:
    """A column's name, of dates with the order of day and month where that can be in doubt."""
    order = order_of(column.form) if isinstance(column, DateColumn) and in_other_order(column.form) else None
    return str(column.name) if order is None else f"{column.name} ({order.replace('_', ' ')})"


def name_to_json(name: Any) -> Any:
    """A column's name as JSON: that of several levels as a list, and as text what JSON cannot say, such as a date."""
    if isinstance(name, tuple):
        return [name_to_json(part) for part in name]
    plain = name.item() if isinstance(name, np.generic) else name
    can_be_said = plain is None or isinstance(plain, str | int) or (isinstance(plain, float) and math.isfinite(plain))
    return plain if can_be_said else str(name)


def name_from_json(stored: Any) -> Any:
    """The name that `name_to_json` wrote."""
    return tuple(map(name_from_json, stored)) if isinstance(stored, list) else stored


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _from_json(values: Mapping[str, Any]) -> Column:
    column = _COLUMNS[values["kind"]]
    given = {name: name_from_json(value) for name, value in values.items() if name != "kind"}  # lists are tuples
    found: Column = column(**given)
    found.check()
    return found

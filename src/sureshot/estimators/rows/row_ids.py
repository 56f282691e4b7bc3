"""Labelled rows that have ids, so that they can be corrected: replaced, or removed as if they had never been seen.

Equal labelled rows are merged into one with their summed weight (`labelled_rows.merge_rows`), so a `RowIds` says which
merged row an id belongs to and how much weight it brought. Rows that came without an id are the rest of each weight.
A correction takes merged rows apart into what came, leaves out or adds, and merges again: weights are sums of what
came, in an order of their own, so neither the order of arrival nor what was there before leaves a trace.
"""

from __future__ import annotations

import numbers
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from sureshot.data.checks import near
from sureshot.estimators.rows.labelled_rows import LabelledRows, joined_rows, merged_rows, part_of
from sureshot.estimators.rows.validation import MAX_NAMES

_ROUNDING = 1e-9  # of a row's weight from the sum of what it is made of, relative


@dataclass(frozen=True)
class RowIds:
    """The ids of distinct labelled rows, N of them."""

    names: np.ndarray  # (K,) distinct and increasing, text or int64
    row: np.ndarray  # (K,) int64, the labelled row that each belongs to
    weight: np.ndarray  # (K,) positive, what each brought to that row's weight
    unnamed: np.ndarray  # (N,) what rows without an id brought

    def check_parts(self) -> None:
        """ValueError for what are no ids."""
        names, row, weight = self.names, self.row, self.weight
        right = names.dtype.kind in "Ui" and len(names) and len(names) == len(row) == len(weight)
        if not right or row.dtype != np.int64 or row.min() < 0 or row.max() >= len(self.unnamed):
            raise ValueError("malformed ids of rows")
        if not ((names[1:] > names[:-1]).all() and (weight > 0).all() and (self.unnamed >= 0).all()):
            raise ValueError("malformed ids of rows")

    def check_rows(self, rows: LabelledRows) -> None:
        """ValueError if these are not the rows that the ids belong to."""
        together = self.unnamed + np.bincount(self.row, self.weight, minlength=len(self.unnamed))
        if together.shape != rows.weight.shape or (np.abs(together - rows.weight) > _ROUNDING * rows.weight).any():
            raise ValueError("the ids do not fit the rows")


@dataclass(frozen=True)
class RowsAsTheyCame:
    """Labelled rows before they are merged: those without an id, and those with one."""

    unnamed: LabelledRows
    named: LabelledRows  # (K,)
    names: np.ndarray | None  # (K,) of the latter; None: no row has an id

    @classmethod
    def of(cls, rows: LabelledRows, names: np.ndarray | None) -> RowsAsTheyCame:
        """Rows of one call, all with ids or all without."""
        none = part_of(rows, slice(0, 0))
        return cls(rows, none, None) if names is None else cls(none, rows, names)

    @classmethod
    def apart(cls, rows: LabelledRows, ids: RowIds | None) -> RowsAsTheyCame:
        """Merged rows, taken apart."""
        if ids is None:
            return cls.of(rows, None)
        loose = ids.unnamed > 0
        unnamed = LabelledRows(rows.x[loose], rows.y[loose], ids.unnamed[loose])
        return cls(unnamed, LabelledRows(rows.x[ids.row], rows.y[ids.row], ids.weight), ids.names)

    def merged(self) -> tuple[LabelledRows, RowIds | None]:
        """Equal labelled rows as one, with the ids that they have."""
        if self.names is None or not len(self.names):
            rows, _ = merged_rows(self.unnamed)
            return rows, None
        order, n_unnamed = np.argsort(self.names, kind="stable"), len(self.unnamed.y)
        named = part_of(self.named, order)
        rows, place = merged_rows(joined_rows(self.unnamed, named))
        unnamed = np.bincount(place[:n_unnamed], self.unnamed.weight, minlength=len(rows.y))
        return rows, RowIds(self.names[order], place[n_unnamed:], named.weight, unnamed.astype(np.float64))

    def with_rows(
        self,
        others: RowsAsTheyCame,
        replaced: np.ndarray | None,
        arrived: int | None = None,  # the column that says when rows arrived: what is corrected does not come anew
    ) -> RowsAsTheyCame:
        """With others that came later, in place of those of the ids that are replaced."""
        if arrived is not None and self.names is not None and others.names is not None:
            x, (_, place, known_place) = others.named.x.copy(), np.intersect1d(others.names, self.names, True, True)
            x[place, arrived] = self.named.x[known_place, arrived]
            others = replace(others, named=replace(others.named, x=x))
        known = self if replaced is None else self.without(replaced)
        parts = [names for names in (known.names, others.names) if names is not None]
        return RowsAsTheyCame(
            joined_rows(known.unnamed, others.unnamed),
            joined_rows(known.named, others.named),
            np.concatenate(parts) if parts else None,
        )

    def without(self, names: np.ndarray) -> RowsAsTheyCame:
        """Without the rows that have these ids, whichever of them there are."""
        if self.names is None:
            return self
        stays = ~np.isin(self.names, names)
        return RowsAsTheyCame(self.unnamed, part_of(self.named, stays), self.names[stays])

    def latest(self, place: int, window: float) -> RowsAsTheyCame:
        """Those that are no older than the window, by a column that tells the time."""
        oldest = max(rows.x[:, place].max(initial=-np.inf) for rows in (self.unnamed, self.named)) - window
        unnamed, named = (part_of(rows, rows.x[:, place] > oldest) for rows in (self.unnamed, self.named))
        names = None if self.names is None else self.names[self.named.x[:, place] > oldest]
        return RowsAsTheyCame(unnamed, named, names)

    def of_classes(self, stays: np.ndarray) -> RowsAsTheyCame:
        """Those of the classes that stay, (C,) bool, which are numbered anew."""
        number = np.cumsum(stays) - 1

        def left(rows: LabelledRows) -> LabelledRows:
            kept = stays[rows.y]
            return LabelledRows(rows.x[kept], number[rows.y[kept]], rows.weight[kept])

        names = None if self.names is None else self.names[stays[self.named.y]]
        return RowsAsTheyCame(left(self.unnamed), left(self.named), names)


def check_row_ids(row_id: Any, n_rows: int, known: RowIds | None) -> np.ndarray:
    """Ids of the rows of one call, (n,) text or int64, each once."""
    names = _as_names(row_id, "row_id")
    if len(names) != n_rows:
        raise ValueError(f"row_id must hold one id for each row of X: X has {n_rows} rows, row_id {len(names)}.")
    values, counts = np.unique(names, return_counts=True)
    if (counts > 1).any():
        raise ValueError(
            "row_id names rows, each once, but these come more than once in this call: "
            f"{_some(values[counts > 1].tolist())}. Keep one row of each; a later call may bring it again."
        )
    _check_same_kind(names, known)
    return names


def check_known(rows: Any, known: RowIds | None) -> np.ndarray:
    """Ids that are all known, (k,), as `forget` takes them."""
    names = _as_names(rows, "rows")
    if known is None:
        raise ValueError(
            "no row that the model knows has an id, so none can be forgotten: pass row_id= to fit and partial_fit. "
            "Classifiers forget classes without."
        )
    _check_same_kind(names, known)
    unknown = names[~np.isin(names, known.names)].tolist()
    if unknown:
        alike = near(unknown[0], known.names.tolist()) if isinstance(unknown[0], str) else ""
        raise ValueError(
            f"cannot forget rows that the model does not know: {_some(unknown)}{alike}. "
            f"It knows {len(known.names)} ids, for example {_some(known.names.tolist()[:3])}."
        )
    return names


def _as_names(given: Any, argument: str) -> np.ndarray:
    """Ids as a one-dimensional array of text or int64."""
    if isinstance(given, torch.Tensor):
        given = given.detach().cpu().numpy()
    given = list(given) if isinstance(given, set | frozenset) else given
    values = np.atleast_1d(np.asarray(given, dtype=object if isinstance(given, list | tuple | pd.Series) else None))
    if values.ndim != 1:
        raise ValueError(f"{argument} must be a list of ids; got an array of shape {values.shape}.")
    listed = values.tolist()
    missing = [
        place for place, name in enumerate(listed) if name is None or name is pd.NA or name != name or name == ""
    ]
    if missing:
        raise ValueError(f"{argument} lacks the ids of rows {_some(missing)}, counted from 0: give each row one.")
    is_text = [isinstance(name, str) for name in listed]
    if all(is_text):
        return np.asarray(listed, dtype=str)
    if any(is_text):
        raise TypeError(f"{argument} mixes text and other ids: use one kind, as in [str(i) for i in {argument}].")
    is_whole = (isinstance(name, numbers.Integral) and not isinstance(name, bool | np.bool_) for name in listed)
    if all(is_whole) and all(abs(int(name)) < 2**63 for name in listed):
        return np.asarray([int(name) for name in listed], dtype=np.int64)
    raise TypeError(
        f"{argument} must hold text or whole numbers (of 64 bits); got {reprlib.repr(given)}. For example "
        f"[str(i) for i in {argument}]."
    )


def _check_same_kind(names: np.ndarray, known: RowIds | None) -> None:
    if known is None or not len(names) or (names.dtype.kind == "U") == (known.names.dtype.kind == "U"):
        return
    kinds = {True: "text", False: "whole numbers"}
    raise TypeError(
        f"ids changed type: the model knows {kinds[known.names.dtype.kind == 'U']} such as "
        f"{known.names.tolist()[0]!r}, and {kinds[names.dtype.kind == 'U']} came, such as {names.tolist()[0]!r}. "
        "Name the rows as before."
    )


def _some(values: Sequence[Any]) -> str:
    shown = ", ".join(repr(value) for value in values[:MAX_NAMES])
    return shown if len(values) <= MAX_NAMES else f"{shown} and {len(values) - MAX_NAMES} more"

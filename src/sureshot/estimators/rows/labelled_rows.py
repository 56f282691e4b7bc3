"""Labelled rows with weights, equal ones merged.

Rows that repeat (same inputs, same label) are merged into one row with their summed weight, so that integer weights
equal repeated rows exactly. Merged rows are kept in a canonical order: the fitted model does not depend on the order in
which rows arrive.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np


@dataclass(frozen=True)
class LabelledRows:
    """Distinct labelled rows with their weights."""

    x: np.ndarray  # (n, D) float64
    # (n,) int64, class numbers, in the order in which classes came: places in `ClassFitted.classes`; or (n, P) float64
    y: np.ndarray
    weight: np.ndarray  # (n,) float64, positive
    # (n,) float64, the weights without those of classes, if these are multiplied in
    copies: np.ndarray | None = field(default=None, metadata={"stored": False})

    def check_parts(self) -> None:
        """ValueError for what are no labelled rows."""
        x, y, weight = self.x, self.y, self.weight
        if x.dtype != np.float64 or x.ndim != 2 or weight.dtype != np.float64:
            raise ValueError("labelled rows of other types")
        if (y.dtype, y.ndim) not in ((np.int64, 1), (np.float64, 2)) or not np.isfinite(y).all():
            raise ValueError("targets of another type")
        if not len(x) == len(y) == len(weight) or weight.ndim != 1 or not (weight > 0).all():
            raise ValueError("labelled rows that do not fit their labels and weights")

    @cached_property
    def lots(self) -> np.ndarray:
        """A number (n,) from 0 to 1 for each row, as if drawn, that follows from nothing but what is in it."""
        mixed = _mixed(self.x, 0) + (self.y.astype(np.uint64) if self.y.ndim == 1 else _mixed(self.y, 1))
        for shift in (29, 32):  # low bits of sums of products say little
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(0x9E3779B97F4A7C15)
        return (mixed >> np.uint64(11)) / 2.0**53

    @property
    def of_one(self) -> np.ndarray:
        """The share (n,) of its weight that one of the rows has which a row stands for."""
        found: np.ndarray = 1 / np.maximum(self.weight if self.copies is None else self.copies, 1)
        return found

    @cached_property
    def left_out_shares(self) -> np.ndarray:
        """The share of its weight, (n,), that a row is without in its leave-one-out prediction.

        All of it, as copies tell nothing new where they are the same row sent again, drawn again or weighted, and
        settings that know every copy again would be chosen. But where equal rows have different labels, as in a table
        of few values, only one of the copies: without all of them the row would be told by nothing but the labels that
        contradict it. Numbers do not contradict each other.
        """
        of_one = self.of_one
        if (of_one == 1).all() or self.y.ndim == 2:
            return np.ones_like(of_one)
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


def _mixed(cells: np.ndarray, seed: int) -> np.ndarray:
    """A number (n,) uint64 of what is in rows (n, D)."""
    bits = np.ascontiguousarray(cells + 0.0).view(np.uint64)
    factors = np.random.default_rng(seed).integers(2**63, size=cells.shape[1], dtype=np.uint64) | np.uint64(1)
    mixed: np.ndarray = (bits * factors).sum(1, dtype=np.uint64)
    return mixed


def merge_rows(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> LabelledRows:
    """Merge equal labelled rows of positive weight, sort canonically."""
    return merged_rows(LabelledRows(x, y, weight))[0]


def merged_rows(rows: LabelledRows) -> tuple[LabelledRows, np.ndarray]:
    """As `merge_rows`, and where each row has gone, (n,) int64."""
    x = rows.x + 0.0  # turns -0.0 into 0.0
    keyed = _keys(x, rows.y)
    _, first, inverse = np.unique(keyed, return_index=True, return_inverse=True)
    place = inverse.ravel()
    merged = np.bincount(place, weights=rows.weight, minlength=len(first))
    y = rows.y[first]
    return LabelledRows(x[first], y.astype(np.int64) if y.ndim == 1 else y + 0.0, merged), place


def with_rows(known: LabelledRows, new: LabelledRows) -> tuple[LabelledRows, np.ndarray]:
    """As `merged_rows` of known rows and new ones, both merged already: the new ones are put in their places."""
    keys, own = (_keys(rows.x, rows.y) for rows in (known, new))
    at = np.searchsorted(keys, own)
    found = keys[np.minimum(at, len(keys) - 1)] == own
    before = at[~found]
    of_known = np.arange(len(keys)) + np.searchsorted(before, np.arange(len(keys)), side="right")
    of_new = at + np.cumsum(~found) - ~found
    parts = ((known.x, new.x), (known.y, new.y), (known.weight, new.weight))
    x, y, weight = (np.insert(old, before, came[~found], axis=0) for old, came in parts)
    weight[of_new[found]] += new.weight[found]
    return LabelledRows(x, y, weight), np.concatenate([of_known, of_new])


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


def _keys(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """What merged rows are sorted by, (N,)."""
    return _as_bytes(np.column_stack([x, y.astype(np.float64) + 0.0]))


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


def part_of(rows: LabelledRows, which: Any) -> LabelledRows:
    """Some of the rows, by numbers, a slice or a mask."""
    copies = None if rows.copies is None else rows.copies[which]
    return LabelledRows(rows.x[which], rows.y[which], rows.weight[which], copies)


def sample_of(rows: LabelledRows, share: float) -> LabelledRows:
    """Those that a share of all rows draws; whether a row is among them does not hang on the others."""
    return rows if share >= 1 else part_of(rows, rows.lots < share)

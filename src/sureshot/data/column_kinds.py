"""What becomes of a DataFrame's column, by its kind: one class for each.

The kind is found out or stated (`cells.kind_of`); the rest follows from the rows of the first fit:

- a number is itself, a gap the median, and a further column says where gaps were, if a hundredth of the rows had one;
- a category has a column for each of its levels, two levels one for both; a gap is a level. Levels of less than a
  hundredth of the rows, and those beyond the thirty most frequent, are one level, to which unseen ones belong. Without
  such a level an unseen one is what the average row is, as a gap of a number is the median;
- a date is its days since 1970 (UTC), and sine and cosine of day, week and year where the rows span two of them;
- text is how often pieces of its words come, counted in a few columns by hashing; it must be asked for;
- text of which nearly every row has its own (names, ticket numbers) and empty columns are left out.

Columns are learnt from labelled rows by their weights, as everything is; a row of weight 2 counts as two.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import HashingVectorizer

from sureshot.data.cells import (
    CATEGORY,
    DATE,
    DECIMALS,
    FEW,
    FORMATS,
    IGNORE,
    NUMBER,
    TEXT,
    as_days,
    as_numbers,
    as_texts,
    holds_truths,
    in_one_way,
    is_object,
    zones_of,
)
from sureshot.data.checks import listed
from sureshot.data.written_numbers import are_grouped
from sureshot.warned import warn

MOST_LEVELS = 30
RARE, ENOUGH = 0.01, 10
"""Of levels and of gaps: a hundredth of the rows, and ten rows of many, have a column of their own."""
FEWEST_OWN = 8
"""Rows of a text each, none of which comes again, that are taken for names of rows and not for levels."""
PERIODS = {"day": 1.0, "week": 7.0, "year": 365.2425}
"""In days."""
EMPTY, UNIQUE, ASKED = "they are empty", "nearly every row has a text of its own", "as asked"
SCATTERED = "no level has a hundredth of the rows"


@dataclass(frozen=True)
class Column(ABC):
    """What becomes of a column."""

    name: Any  # as the DataFrame has it, which need not be text
    kind: ClassVar[str]

    @property
    @abstractmethod
    def encoded(self) -> tuple[str, ...]:
        """Names of the columns that it becomes."""

    @abstractmethod
    def encode(self, column: pd.Series) -> np.ndarray:
        """These columns (n, K); `CellError` for a cell that is not of this kind."""

    @abstractmethod
    def check(self) -> None:
        """ValueError where a model file has values that cannot be."""


@dataclass(frozen=True)
class NumberColumn(Column):
    """Numbers, in whatever way they are written."""

    median: float  # in place of gaps
    decimal: str  # in text
    marked: bool  # whether another column says where gaps were
    truths: bool = False  # whether all were truth values; then text such as True is 1
    grouped: bool = False  # whether the other sign stood between thousands in text
    kind = NUMBER

    @classmethod
    def learnt(cls, column: pd.Series, weight: np.ndarray, decimal: str) -> Self:
        """From the cells of labelled rows and their weights (n,)."""
        values = as_numbers(column, decimal)
        marked, truths = _mark_gaps(np.isnan(values), weight), holds_truths(column)
        grouped = is_object(column) and are_grouped(column.to_numpy(dtype=object), decimal)
        return cls(column.name, median_of(values, weight), decimal, marked, truths, grouped)

    @property
    def encoded(self) -> tuple[str, ...]:
        return (str(self.name), f"{self.name} is missing")[: 1 + self.marked]

    def encode(self, column: pd.Series) -> np.ndarray:
        values = as_numbers(column, self.decimal, self.truths)
        gaps = np.isnan(values)
        return np.stack([np.where(gaps, self.median, values), gaps][: 1 + self.marked], axis=1)

    def check(self) -> None:
        if not math.isfinite(self.median) or self.decimal not in DECIMALS:
            raise ValueError(f"malformed numbers of column {self.name!r}")


@dataclass(frozen=True)
class CategoryColumn(Column):
    """Levels of text."""

    levels: tuple[str | None, ...]  # with a column of their own; None is a gap
    rare: bool  # whether there is one more, of all others
    shares: tuple[float, ...]  # of the rows, by column
    kind = CATEGORY

    @classmethod
    def learnt(cls, column: pd.Series, weight: np.ndarray, stated: bool) -> CategoryColumn | IgnoredColumn:
        """From the cells of labelled rows and their weights (n,); where each row has its own text, unless stated."""
        codes, found = pd.factorize(as_texts(column), use_na_sentinel=True)
        levels: list[str | None] = [*found.tolist(), None]
        totals = np.bincount(np.where(codes < 0, len(found), codes), weight, minlength=len(levels))
        total = totals.sum()
        present = total - totals[-1]
        own = len(found) == present >= FEWEST_OWN  # a text of its own in every row that has one
        if not stated and (own or (len(found) > FEW and 2 * len(found) > present)):
            return IgnoredColumn(column.name, UNIQUE)
        order = sorted(np.flatnonzero(totals), key=lambda k: (-totals[k], levels[k] is None, levels[k]))
        kept = [k for k in order[:MOST_LEVELS] if totals[k] >= _enough(total)]
        if not any(levels[k] is not None for k in kept):
            return IgnoredColumn(column.name, SCATTERED if len(found) else EMPTY)
        kept = sorted(kept, key=lambda k: (levels[k] is None, levels[k]))
        shares = [float(totals[k] / total) for k in kept]
        rare = len(kept) < len(order)
        return cls(
            column.name,
            tuple(levels[k] for k in kept),
            rare,
            tuple([*shares, 1 - sum(shares)] if rare else shares),
        )

    @property
    def encoded(self) -> tuple[str, ...]:
        names = [f"{self.name} is missing" if level is None else f"{self.name}={level}" for level in self.levels]
        return tuple([*names, f"{self.name}: others"] if self.rare else names)[self._dropped :]

    @property
    def _dropped(self) -> int:
        """One of two columns says it all."""
        return int(len(self.levels) + self.rare == 2)

    def encode(self, column: pd.Series) -> np.ndarray:
        known = {level if level is None else in_one_way(level): place for place, level in enumerate(self.levels)}
        width = len(self.levels) + self.rare
        rows = np.vstack([np.eye(width), self.shares])  # the last: unseen, if there is no place for it
        unseen = width - 1 if self.rare else width
        texts = as_texts(column)
        if len(texts) >= ENOUGH and not any(text in known for text in texts):
            some = [level for level in self.levels if level is not None][:3]
            warn(
                f"no cell of column {self.name!r} is a level that was learnt, such as {listed(some)}: all of its "
                f"{len(texts)} rows are taken for unseen ones",
            )
        return rows[[known.get(text, unseen) for text in texts]][:, self._dropped :]

    def check(self) -> None:
        text = all(level is None or isinstance(level, str) for level in self.levels)
        if not text or not self.levels or len(self.shares) != len(self.levels) + self.rare:
            raise ValueError(f"malformed levels of column {self.name!r}")


@dataclass(frozen=True)
class DateColumn(Column):
    """Dates and times."""

    form: str  # of text, one of `FORMATS`
    median: float  # days since 1970
    cycles: tuple[str, ...]  # of `PERIODS`
    marked: bool  # whether a column says where gaps were
    zoned: bool | None = None  # whether moments had a time zone, where that is known
    kind = DATE

    @classmethod
    def learnt(cls, column: pd.Series, weight: np.ndarray, form: str) -> Self:
        """From the cells of labelled rows and their weights (n,)."""
        days = as_days(column, form)
        known = days[~np.isnan(days)]
        extent = np.ptp(known)
        cycles = [name for name, period in PERIODS.items() if extent >= 2 * period]
        if len(np.unique(known % 1)) == 1:
            cycles = [name for name in cycles if name != "day"]
        elif known.min() >= 0 and known.max() < 1:  # times of day
            cycles = ["day"]
        gaps = _mark_gaps(np.isnan(days), weight)
        zones = zones_of(column)
        if len(zones) > 1:
            warn(f"some moments of column {column.name!r} have a time zone and some have none: these are taken for UTC")
        zoned = True in zones if zones else None
        return cls(column.name, form, median_of(days, weight), tuple(cycles), gaps, zoned)

    @property
    def encoded(self) -> tuple[str, ...]:
        cycles = [f"{self.name}, {part} of the {name}" for name in self.cycles for part in ("sine", "cosine")]
        return (f"{self.name} in days", *cycles, f"{self.name} is missing")[: 1 + len(cycles) + self.marked]

    def encode(self, column: pd.Series) -> np.ndarray:
        days = as_days(column, self.form)
        gaps = np.isnan(days)
        if self.zoned is not None and (not self.zoned) in zones_of(column):
            came, were = ("no time zone", "had one") if self.zoned else ("a time zone", "had none")
            warn(
                f"moments of column {self.name!r} have {came}, where those that were learnt {were}: all are taken as "
                "UTC, so that the same moment may be hours away"
            )
        found = [np.where(gaps, self.median, days)]
        for name in self.cycles:
            angle = 2 * np.pi * np.where(gaps, 0.0, days) / PERIODS[name]
            found += [np.where(gaps, 0.0, part) for part in (np.sin(angle), np.cos(angle))]
        return np.stack([*found, gaps] if self.marked else found, axis=1)

    def check(self) -> None:
        if not math.isfinite(self.median) or self.form not in FORMATS or not set(self.cycles) <= set(PERIODS):
            raise ValueError(f"malformed dates of column {self.name!r}")


@dataclass(frozen=True)
class TextColumn(Column):
    """Two to four letters in a row within words, each counted in a column that is a hash of it; rows of unit length."""

    width: int = 16
    kind = TEXT

    @property
    def encoded(self) -> tuple[str, ...]:
        return tuple(f"{self.name}, pieces of words {k + 1}" for k in range(self.width))

    def encode(self, column: pd.Series) -> np.ndarray:
        pieces = HashingVectorizer(n_features=self.width, analyzer="char_wb", ngram_range=(2, 4), dtype=np.float64)
        found: np.ndarray = pieces.transform([text or "" for text in as_texts(column)]).toarray()
        return found

    def check(self) -> None:
        if not isinstance(self.width, int) or self.width < 1:
            raise ValueError(f"malformed text of column {self.name!r}")


@dataclass(frozen=True)
class IgnoredColumn(Column):
    """Nothing is learnt from it."""

    why: str
    kind = IGNORE

    @property
    def encoded(self) -> tuple[str, ...]:
        return ()

    def encode(self, column: pd.Series) -> np.ndarray:
        return np.empty((len(column), 0))

    def check(self) -> None:
        """Anything goes."""


def _enough(total: float) -> float:
    """Weight from which on a level or the gaps have a column of their own."""
    return min(ENOUGH, math.ceil(RARE * total))


def _mark_gaps(gaps: np.ndarray, weight: np.ndarray) -> bool:
    return bool(gaps.any() and weight[gaps].sum() >= _enough(weight.sum()))


def median_of(values: np.ndarray, weight: np.ndarray) -> float:
    """Of values (n,) that may be NaN; one of weight 2 counts as two."""
    known = ~np.isnan(values)
    order = np.argsort(values[known], kind="stable")
    ordered, below = values[known][order], np.cumsum(weight[known][order])
    half = below[-1] / 2
    low, high = np.searchsorted(below, half, side="left"), np.searchsorted(below, half, side="right")
    return float((ordered[low] + ordered[min(high, len(ordered) - 1)]) / 2)

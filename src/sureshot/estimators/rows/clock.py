"""When rows came: a column of the table, or the order in which they are learnt from.

Where time matters, a row is predicted from rows that came before it, and so it is when settings are chosen and answers
are judged: leaving a row out among rows of its future would reward settings that look ahead.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sureshot.data.cells import gaps_of
from sureshot.data.checks import listed, near

ARRIVAL = "arrival"


@dataclass(frozen=True)
class Clock:
    """Tells the time of rows as they are kept, (n, D): one of their columns."""

    place: int  # of that column
    counted: bool  # whether it numbers rows as they arrive, and comes after the columns that a user knows
    came: int = 0  # rows so far
    later: int = 0  # of these in calls after the first
    calls: int = 0  # after the first

    def check_parts(self) -> None:
        """ValueError for a clock that is none."""
        if self.place < 0 or not 0 <= self.later <= self.came or not 0 <= self.calls <= self.later:
            raise ValueError("malformed clock")

    @property
    def batch(self) -> int:
        """How many rows come at once, all predicted before one of them is learnt from; 0: not known yet."""
        return round(self.later / max(1, self.calls))

    def after(self, n_rows: int) -> Clock:
        """When so many rows have come in a call."""
        later, calls = (self.later + n_rows, self.calls + 1) if self.came else (0, 0)
        return replace(self, came=self.came + n_rows, later=later, calls=calls)

    def numbered(self, rows: np.ndarray, learnt: bool) -> np.ndarray:
        """Rows with their time: those that are asked about come now, as the last did."""
        if not self.counted:
            return rows
        times = self.came + np.arange(len(rows), dtype=np.float64)
        return np.column_stack([rows, times]) if learnt else self.now(np.column_stack([rows, times]))

    def now(self, rows: np.ndarray) -> np.ndarray:
        """Rows that are kept as if they were asked about."""
        if not self.counted:
            return rows
        found = rows.copy()
        found[:, self.place] = max(0, self.came - 1)
        return found


def clock_for(time: Any, X: Any, width: int, first_of: Sequence[tuple[Any, int]] | None) -> Clock:
    """For rows of a first fit, kept in so many columns; `ValueError` where they do not tell the time.

    `first_of` has the columns of numbers and dates of a DataFrame that others are in, with where each is kept.
    """
    names = list(X.columns) if isinstance(X, pd.DataFrame) else list(range(width))
    if isinstance(time, str) and time == ARRIVAL and ARRIVAL not in names:
        return Clock(width, counted=True)
    if not isinstance(time, str | numbers.Integral) or isinstance(time, bool) or time not in names:
        guess = near(time, [name for name in names if isinstance(name, str)]) if isinstance(time, str) else ""
        raise ValueError(
            f"time must be {ARRIVAL!r}, or a column of X by name (of an array by number); got {time!r}{guess}. "
            f"Columns: {listed(names)}."
        )
    known = dict(zip(names, range(width), strict=True) if first_of is None else first_of)
    if time not in known:
        raise ValueError(f"time={time!r}: that column holds neither numbers nor dates, so it tells no time.")
    return Clock(known[time], counted=False)


def check_times(time: Any, X: Any) -> None:
    """ValueError for rows of a DataFrame without a time."""
    if not isinstance(X, pd.DataFrame) or time not in X.columns:
        return
    missing = np.flatnonzero(gaps_of(X[time]))
    if len(missing):
        raise ValueError(
            f"{len(missing)} of {len(X)} rows have no time (column {time!r}), the first is row {missing[0]}, counted "
            "from 0: leave them out, or give them one."
        )


@dataclass(frozen=True)
class Past:
    """Of N rows those that each has come after, and a few less: it may be one of the last of a batch."""

    order: Tensor  # (N,) int64, each row's place in time
    seen: Tensor  # (N,) int64, how many rows it has before it
    latest: Tensor  # (N,) int64, the last of these; its own place where there is none
    column: int  # of the time among those that a kernel sees
    counted: bool  # whether rows are asked about at the time of the last that came before

    @classmethod
    def of(cls, times: np.ndarray, lots: np.ndarray, batch: int, column: int, counted: bool) -> Past:
        """By times (N,), a number (N,) from 0 to 1 for each row, and how many rows come at once.

        As long as this is not known, it may be anything up to a tenth of the rows.
        """
        by_time = np.argsort(times, kind="stable")
        order = np.empty_like(by_time)
        order[by_time] = np.arange(len(times))
        gaps = np.floor(lots * batch if batch else max(1.0, len(times) / 10) ** lots).astype(np.int64)
        seen = np.minimum(np.searchsorted(times[by_time], times), order - gaps).clip(0)
        latest = np.where(seen > 0, by_time[np.maximum(seen - 1, 0)], np.arange(len(times)))
        return cls(torch.from_numpy(order), torch.from_numpy(seen), torch.from_numpy(latest), column, counted)

    def asked(self, x: Tensor, place: Tensor) -> Tensor:
        """Of rows (N, D) as a kernel sees them those at places (B,), when they are asked about."""
        found = x[place]
        if self.counted:
            found[:, self.column] = x[self.latest[place], self.column]
        return found

    def hides(self, own: Tensor, place: Tensor) -> Tensor:
        """Whether rows at places (B, K) had not come before rows at places (B,)."""
        return self.order[place] >= self.seen[own].unsqueeze(-1)


def check_window(window: Any, time: Any) -> float:
    """How long rows are kept, in units of the time."""
    if time is None:
        raise ValueError(f"window={window!r} goes with a time, which says how old rows are: state time='arrival'.")
    if not isinstance(window, numbers.Real) or isinstance(window, bool) or not 0 < float(window) < math.inf:
        raise ValueError(
            f"window must be a positive number, of rows for time={ARRIVAL!r} and otherwise in units of the time's "
            f"column (days for dates); got {window!r}."
        )
    return float(window)

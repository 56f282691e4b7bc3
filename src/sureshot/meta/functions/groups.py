"""Rows of a table that belong together as functions: sales of a shop, growth of a child."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sureshot.data.cells import DATE, NUMBER, as_texts
from sureshot.data.checks import listed, near
from sureshot.data.class_splits import split_by_seed
from sureshot.data.labelled import digest
from sureshot.data.mixed_columns import ColumnEncoder, UnreadColumns, check_kinds
from sureshot.data.root import DataError, Root
from sureshot.data.tables import META_PREFIX, column_names, load_table
from sureshot.meta.functions.source import FunctionData, FunctionRows, FunctionSource

SMALLEST = 1e-100
"""What numbers differ by at least, and one over the largest: their squares are numbers, too."""


class Groups(FunctionSource):
    """Functions that are groups of rows."""

    def __init__(
        self,
        x: Tensor,  # (N, D)
        y: Tensor,  # (N, K)
        group: Tensor,  # (N,) int64, 0..G-1, each at least twice
    ) -> None:
        self.input_width, self.target_width, self.identity = x.shape[1], y.shape[1], digest((x, y, group))
        self._x, self._y, self._by_group, self._counts = x, y, group.argsort(stable=True), torch.bincount(group)
        if int(self._counts.min()) < 2:
            raise DataError("a group of a single row has nothing to learn from and to predict: leave it out")

    def rows(self, n_tasks: int, n_rows: int, generator: torch.Generator, beyond: bool) -> FunctionRows:
        chosen = torch.randint(len(self._counts), (n_tasks,), generator=generator)
        starts, counts = ((self._counts.cumsum(0) - self._counts)[chosen], self._counts[chosen].unsqueeze(1))
        keys = torch.rand(n_tasks, int(counts.max()), generator=generator, dtype=torch.float64)
        order = keys.masked_fill(torch.arange(keys.shape[1]) >= counts, 2.0).argsort(1)[:, :n_rows].minimum(counts - 1)
        at = self._by_group[starts.unsqueeze(1) + order]
        return FunctionRows(self._x[at], self._y[at], counts.clamp_max(n_rows))


def groups(
    root: Root = None,
    *,
    path: str | os.PathLike[str],  # of a table (CSV, Excel, Parquet); a relative one starts at ``root``
    group: str | Sequence[str],  # the column, or columns, that say which rows belong together
    target: str,
    inputs: Sequence[str] | None = None,  # all other columns by default; they may have some of `group` among them
    columns: Mapping[str, str] | None = None,  # kinds of inputs that are not what their cells look like, by name
    fractions: Sequence[float] = (0.6, 0.2, 0.2),  # of the groups, in proportion: to train on, to choose by, to test on
    seed: int = 0,  # of the split
) -> FunctionData:
    """Groups of two rows or more, in three parts.

    Inputs may be text, dates, and have gaps (`data.column_kinds`). Numbers, days and target are standardised. What that
    takes is learnt from the rows of the training groups.
    """
    place, by = Path(root or ".") / path, [group] if isinstance(group, str) else list(group)
    kinds = check_kinds(columns or "auto")
    present = column_names(place)
    if present is None:
        raise DataError(f"{place} holds arrays: groups are told by a column")
    chosen = _inputs(place, present, by, target, inputs)
    table = load_table(
        place,
        target,
        features=list(dict.fromkeys([*chosen, *by])),
        ignore=set(present).difference(chosen, by),
        task="numbers",
        mixed=True,
        as_text=[*by, *(name for name, kind in kinds.items() if kind != NUMBER)],
        as_numbers=[name for name, kind in kinds.items() if kind == NUMBER],
    )
    frame = table.X
    assert isinstance(frame, pd.DataFrame)
    labels = _labels(place, frame[by])
    each, group_of, counts = np.unique(labels, return_inverse=True, return_counts=True)
    kept_rows = counts[group_of] > 1
    names, number = np.unique(each[group_of[kept_rows]], return_inverse=True)
    if len(names) < 3:
        raise DataError(f"{place}: {len(names)} groups of several rows, expected at least three")
    split = split_by_seed(names.tolist(), fractions, seed)
    parts = [np.isin(number, part) for part in split]
    rows = frame.loc[kept_rows, chosen]
    try:
        encoder = ColumnEncoder.learnt(rows[parts[0]], kinds, np.ones(int(parts[0].sum())))
        encoded = encoder(rows)
    except UnreadColumns as error:
        kinds_of = ", ".join(f'{cell.name} = "category"' for cell in error.unread)
        reasons = "; ".join(map(str, error.unread))
        raise DataError(f"{place}: {reasons}, or state another kind: columns = {{ {kinds_of} }}") from error
    except ValueError as error:
        raise DataError(f"{place}: {error}") from error
    measured = np.isin(np.arange(encoded.shape[1]), [at for _, at in encoder.first_of(NUMBER, DATE)])

    def standardised(values: np.ndarray, scaled: np.ndarray, names: Sequence[str]) -> tuple[Tensor, list[list[float]]]:
        extent, largest = np.ptp(values, 0), np.abs(values).max(0)
        wrong = np.flatnonzero((largest > 1 / SMALLEST) | ((extent > 0) & (extent < SMALLEST)))
        if len(wrong):
            raise DataError(
                f"{place}: numbers of {names[wrong[0]]!r} are as large as {1 / SMALLEST:g}, or differ by less than "
                f"{SMALLEST:g}: take another unit"
            )
        found = torch.from_numpy(values)
        deviation, mean = torch.std_mean(found[torch.from_numpy(parts[0])], 0)
        as_it_is = torch.from_numpy(~scaled)
        mean, deviation = mean.masked_fill(as_it_is, 0.0), deviation.masked_fill((deviation == 0) | as_it_is, 1.0)
        return ((found - mean) / deviation).float(), [mean.tolist(), deviation.tolist()]

    x, of_inputs = standardised(encoded, measured, encoder.names)
    y, of_targets = standardised(np.asarray(table.y, dtype=np.float64)[kept_rows, None], np.array([True]), [target])
    sources = [
        Groups(x[kept], y[kept], torch.from_numpy(np.unique(number[kept], return_inverse=True)[1])) for kept in parts
    ]
    train, val, test = sources
    shares = " / ".join(str(len(part)) for part in split)
    alone = f" ({len(each) - len(names)} of a single row left out)" if len(each) > len(names) else ""
    described = f"{target} of each {', '.join(by)} in {place.name}, groups {shares}{alone} by seed {seed}"
    units: dict[str, Any] = {"inputs": of_inputs, "targets": of_targets, "columns": chosen}
    plain = all(bool(pd.to_numeric(rows[name], errors="coerce").notna().all()) for name in chosen)
    if set(encoder.kinds.values()) != {NUMBER} or not plain:
        units["encoder"] = encoder.to_json()
    return FunctionData(train, val, test, described, units)


def _inputs(
    place: Path, present: Sequence[str], by: Sequence[str], target: str, inputs: Sequence[str] | None
) -> list[str]:
    """Names of the inputs; `DataError` for columns that are none of the table, or cannot be what they are to be."""
    for name in (*by, target, *(inputs or ())):
        if name not in present:
            raise DataError(f"{place}: no column {name!r}{near(name, present)}; columns: {listed(present)}")
    named = [*by, target, *(inputs or ())]
    if notes := [name for name in named if name.startswith(META_PREFIX)]:
        raise DataError(f"{place}: rename {listed(notes)}: columns whose names begin with {META_PREFIX} are notes")
    if twice := [name for part in (by, inputs or ()) for name, count in Counter(part).items() if count > 1]:
        raise DataError(f"{place}: group and inputs name {listed(twice)} more than once")
    others = [name for name in present if name not in (*by, target) and not name.startswith(META_PREFIX)]
    chosen = others if inputs is None else list(inputs)
    if not by or not set(chosen) & set(others) or target in (*by, *chosen):
        raise DataError(
            f"{place}: expected columns for group, and inputs of which one is none of these, all other than the target "
            f"{target!r}; got group {list(by)} and inputs {chosen}"
        )
    return chosen


def _labels(place: Path, frame: pd.DataFrame) -> np.ndarray:
    """Of each row what tells its group (n,), as text."""
    cells = [as_texts(frame[name]) for name in frame]
    for name, column in zip(frame, cells, strict=True):
        if any(cell is None for cell in column):
            raise DataError(f"{place}: column {name!r} has gaps, so that rows belong to no group: fill them in")
    return np.array(["\x1f".join(some) for some in zip(*cells, strict=True)])

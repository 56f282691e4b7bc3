"""Rows of a table that belong together as functions: sales of a shop, growth of a child."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sureshot.data.class_splits import shuffled
from sureshot.data.labelled import digest
from sureshot.data.root import DataError, Root
from sureshot.data.tables import column_names, load_table
from sureshot.meta.functions.source import FunctionData, FunctionRows, FunctionSource


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
    fractions: Sequence[float] = (0.6, 0.2, 0.2),  # of the groups, to train on, to choose by, to test on
    seed: int = 0,  # of the split
) -> FunctionData:
    """Groups of two rows or more, in three parts; columns are standardised by the rows of the training groups."""
    place, by = Path(root or ".") / path, [group] if isinstance(group, str) else list(group)
    varying = None if inputs is None else [name for name in inputs if name not in by]
    if not by or varying == [] or target in by:
        raise DataError(
            f"{place}: group is a column or some, not the target, and inputs have another; got {by} and {inputs}"
        )
    unused = [target, *(by if inputs is None else set(column_names(place) or ()).difference(inputs))]
    table = load_table(place, target, features=inputs, ignore=unused, task="numbers")
    columns = [load_table(place, features=varying, ignore=[*unused, *by], group=one).groups for one in by]
    for name, column in zip(by, columns, strict=True):
        if column is None or any(cell is None for cell in column):
            raise DataError(f"{place}: column {name!r} has gaps, so that rows belong to no group: fill them in")
    labels = np.array(["\x1f".join(cells) for cells in zip(*columns, strict=True)])
    each, group_of, counts = np.unique(labels, return_inverse=True, return_counts=True)
    kept_rows = counts[group_of] > 1
    names, number = np.unique(each[group_of[kept_rows]], return_inverse=True)
    if len(fractions) != 3 or min(fractions) <= 0 or abs(sum(fractions) - 1) > 1e-9 or len(names) < 3:
        raise DataError(
            f"{place}: {len(names)} groups of several rows and fractions {list(fractions)}, expected at least three "
            "such groups and three positive fractions that sum to 1"
        )
    ends = np.clip(
        np.round(np.cumsum(fractions)[:2] * len(names)).astype(int), (1, 2), (len(names) - 2, len(names) - 1)
    )
    parts = [np.isin(number, part) for part in np.split(shuffled(len(names), seed), ends)]

    def standardised(values: object) -> tuple[Tensor, list[list[float]]]:
        found = torch.tensor(np.asarray(values, dtype=np.float64)[kept_rows]).reshape(len(number), -1)
        deviation, mean = torch.std_mean(found[torch.from_numpy(parts[0])], 0)
        deviation = torch.where(deviation > 0, deviation, 1.0)
        return ((found - mean) / deviation).float(), [mean.tolist(), deviation.tolist()]

    (x, of_inputs), (y, of_targets) = standardised(table.X), standardised(table.y)
    sources = [
        Groups(x[kept], y[kept], torch.from_numpy(np.unique(number[kept], return_inverse=True)[1])) for kept in parts
    ]
    train, val, test = sources
    shares = " / ".join(str(len(one)) for one in np.split(np.arange(len(names)), ends))
    alone = f" ({len(each) - len(names)} of a single row left out)" if len(each) > len(names) else ""
    described = f"{target} of each {', '.join(by)} in {place.name}, groups {shares}{alone} by seed {seed}"
    names_of = {} if table.feature_names is None else {"columns": list(table.feature_names)}
    return FunctionData(train, val, test, described, {"inputs": of_inputs, "targets": of_targets, **names_of})

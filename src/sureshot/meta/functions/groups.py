"""Rows of a table that belong together as functions: sales of a shop, growth of a child.

Some groups are trained on, others choose the checkpoint, others test. Columns and target are standardised by the rows
of the training groups.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sureshot.data.checks import listed
from sureshot.data.class_splits import shuffled
from sureshot.data.labelled import digest
from sureshot.data.root import DataError, Root
from sureshot.data.tables import load_table
from sureshot.meta.functions.source import FunctionRows, FunctionSource


class Groups(FunctionSource):
    """Functions that are groups of rows."""

    def __init__(
        self,
        x: Tensor,  # (N, D)
        y: Tensor,  # (N, K)
        group: Tensor,  # (N,) int64, 0..G-1, each at least twice
    ) -> None:
        self.input_width, self.target_width = int(x.shape[1]), int(y.shape[1])
        self._x, self._y = x, y
        self._counts = torch.bincount(group)
        if int(self._counts.min()) < 2:
            raise DataError("a group of a single row has nothing to learn from and to predict: leave it out")
        self._by_group, self._starts = group.argsort(stable=True), self._counts.cumsum(0) - self._counts
        self.identity = digest((x, y, group))

    def rows(self, n_tasks: int, n_rows: int, generator: torch.Generator, beyond: bool) -> FunctionRows:
        chosen = torch.randint(len(self._counts), (n_tasks,), generator=generator)
        counts = self._counts[chosen].unsqueeze(1)
        keys = torch.rand(n_tasks, int(counts.max()), generator=generator)
        keys = keys.masked_fill(torch.arange(keys.shape[1]) >= counts, 2.0)
        order = keys.argsort(1)[:, :n_rows].minimum(counts - 1)
        at = self._by_group[self._starts[chosen].unsqueeze(1) + order]
        return FunctionRows(self._x[at], self._y[at], counts.clamp_max(n_rows))


def read_groups(
    root: Root,
    path: str | os.PathLike[str],
    group: str,
    target: str,
    inputs: Sequence[str] | None,
    fractions: Sequence[float],
    seed: int,
) -> tuple[Groups, Groups, Groups]:
    """Of the groups to train on, to choose by and to test on; see `sureshot.meta.functions.by_name.groups`."""
    place = Path(root or ".") / path
    table = load_table(place, target, features=inputs, group=group, task="numbers")
    assert table.y is not None
    assert table.groups is not None
    if any(name is None for name in table.groups):
        raise DataError(f"{place}: column {group!r} has gaps, so that rows belong to no group: fill them in")
    names, number = np.unique(table.groups.astype(str), return_inverse=True)
    x, y = (torch.tensor(np.asarray(part, dtype=np.float64)) for part in (table.X, table.y))
    y = y.reshape(len(y), -1)
    shares = np.cumsum([float(share) for share in fractions])
    if len(shares) != 3 or min(fractions) <= 0 or abs(shares[-1] - 1) > 1e-9 or len(names) < 3:
        raise DataError(
            f"{place}: {len(names)} groups ({listed(names.tolist())}) and fractions {list(fractions)}, expected at "
            "least three groups and three positive fractions that sum to 1"
        )
    ends = np.clip(np.round(shares[:2] * len(names)).astype(int), (1, 2), (len(names) - 2, len(names) - 1))
    parts = np.split(shuffled(len(names), seed), ends)
    trained = torch.from_numpy(np.isin(number, parts[0]))

    def standardised(values: Tensor) -> Tensor:
        deviation, mean = torch.std_mean(values[trained], 0)
        return ((values - mean) / torch.where(deviation > 0, deviation, 1.0)).float()

    x, y = standardised(x), standardised(y)

    def source(part: np.ndarray) -> Groups:
        kept = np.isin(number, part)
        _, own = np.unique(number[kept], return_inverse=True)
        return Groups(x[kept], y[kept], torch.from_numpy(own))

    first, second, third = (source(part) for part in parts)
    return first, second, third

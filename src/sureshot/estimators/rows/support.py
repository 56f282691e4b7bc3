"""The labelled rows as tensors, and a subset of them small enough to compare kernels on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from sureshot.computing.layout import aligned
from sureshot.estimators.rows.folds import FOLDS, row_folds
from sureshot.estimators.rows.labelled_rows import LabelledRows
from sureshot.estimators.rows.preprocessing import Scaling, kernel_inputs
from sureshot.likelihoods.gaussian import label_targets

FEW_ROWS = 50  # that can be left out: fewer prefer no kernel
EXACT_LIMIT = 1500  # rows up to which a kernel without explicit features is used exactly

# The subset on which kernels are compared. Time grows with the cube of its rows, and with the classes.
TUNING_ROWS = 400
ROWS_PER_COLUMN, WIDE_ROWS = 10, 500  # more columns than 40 want more rows, up to so many,
TUNING_SHARE, BEYOND, MOST_TUNING_ROWS = 0.5, 200, 800  # and what is fitted to many rows may take longer to choose
CLASSES = 5  # from which on more have fewer rows each, so that rows x classes stays the same
MIN_ROWS_PER_CLASS = 5  # on average, whatever that makes
MAX_TUNING_CLASSES = 30


@dataclass(frozen=True)
class Support:
    """The labelled rows a search sees."""

    x: Tensor  # (N, D)
    y: Tensor  # (N,)
    weight: Tensor  # (N,)
    n_classes: int
    left_out: Tensor  # (N,), `LabelledRows.left_out_shares`
    evidence: Tensor  # (N,), `LabelledRows.evidence`

    @classmethod
    def of(cls, rows: LabelledRows, n_classes: int, scaling: Scaling | None, device: torch.device) -> Support:
        """Labelled rows in the form in which they are kept."""
        x = kernel_inputs(rows.x, scaling, device)
        of_rows = (rows.y, rows.weight, rows.left_out_shares, rows.evidence)
        y, weight, left_out, evidence = (aligned(part, device) for part in of_rows)
        return cls(x, y, weight, n_classes, left_out, evidence)

    @cached_property
    def targets(self) -> tuple[Tensor, Tensor]:
        """Of least squares, (C, N), and their prior means (C,)."""
        return label_targets(self.y, self.n_classes, self.weight)

    @cached_property
    def n_present(self) -> int:
        """How many classes have a row."""
        return len(self.y.unique())

    @property
    def varies(self) -> bool:
        """Whether there is more than one class."""
        return self.n_present > 1

    @property
    def rows_per_target(self) -> float:
        """How many rows a class has, on average."""
        return float(self.weight.sum()) / self.n_present

    def folds(self, n_folds: int = FOLDS) -> Tensor:
        """A fold (N,) for each row, from 0, by `row_folds`."""
        return row_folds(self.y, n_folds)

    def part(self, rows: Tensor) -> Support:
        """Some of the rows (M,)."""
        x, y, weight = self.x[rows], self.y[rows], self.weight[rows]
        return Support(x, y, weight, self.n_classes, self.left_out[rows], self.evidence[rows])

    @cached_property
    def able(self) -> Tensor:
        """What the rows count whose class keeps a row when they are left out, zero for the others."""
        counts = torch.bincount(self.y, minlength=self.n_classes)
        return self.evidence * ((counts[self.y] > 1) | (self.left_out < 1))

    @cached_property
    def n_able(self) -> int:
        """How many rows these are."""
        return int((self.able > 0).sum())

    @cached_property
    def covered(self) -> float:
        """The share of the classes that these rows are of."""
        return len(self.y[self.able > 0].unique()) / max(1, self.n_present)

    @cached_property
    def usable(self) -> Tensor:
        """What they count as evidence: they represent their own classes only, so as much as the share of these.

        Where one class has a row more than the others, this row is predicted right whatever the settings are.
        """
        return self.able * self.covered

    @property
    def can_select_kernels(self) -> bool:
        """Whether these rows may choose scales and kernels: they are of most classes, or not few."""
        return self.covered > 0.5 or self.n_able >= FEW_ROWS


def sampled_rows(support: Support, most: int, order: Tensor | None = None) -> tuple[Tensor, Support]:
    """Places of rows that can be left out, and the support of these; if there are more than so many, some.

    Evenly chosen, or the last of an order (N,).
    """
    rows = (support.usable > 0).nonzero().squeeze(-1)
    if order is not None:
        rows = rows[order[rows].argsort()[-most:]].sort().values
    elif len(rows) > most:
        rows = rows[torch.linspace(0, len(rows) - 1, most, dtype=torch.float32).round().long().unique()]
    return rows, support.part(rows)


def is_compared_whole(support: Support) -> bool:
    """Whether all rows are few enough to compare kernels on."""
    n_classes = support.n_present
    return n_classes <= MAX_TUNING_CLASSES and len(support.y) <= _budget(support, n_classes)


def tuning_part(support: Support, rng: np.random.Generator) -> Support:
    """A stratified subset small enough to compare kernels on, or the support itself."""
    if is_compared_whole(support):
        return support
    y = support.y.cpu().numpy()
    counts = np.bincount(y, minlength=support.n_classes)
    classes = np.flatnonzero(counts)
    if len(classes) > MAX_TUNING_CLASSES:
        eligible = classes[counts[classes] > 1]
        pool = eligible if len(eligible) >= 2 else classes
        classes = np.sort(rng.choice(pool, size=min(MAX_TUNING_CLASSES, len(pool)), replace=False))
    budget = _budget(support, len(classes))
    left = np.flatnonzero(np.isin(y, classes))
    if len(left) <= budget:
        return _of_classes(support, left, classes)
    shares = _shares(counts[classes], budget, len(left))
    of_class = (left[y[left] == label] for label in classes)
    picked = [rng.choice(own, size, replace=False) for own, size in zip(of_class, shares, strict=True)]
    return _of_classes(support, np.sort(np.concatenate(picked)), classes)


def _of_classes(support: Support, rows: np.ndarray, classes: np.ndarray) -> Support:
    """Rows of these classes, which are numbered anew."""
    index = torch.from_numpy(rows).to(support.y.device)
    renamed = torch.from_numpy(np.searchsorted(classes, support.y[index].cpu().numpy()))
    return replace(support.part(index), y=renamed.to(support.y.device), n_classes=len(classes))


def _budget(support: Support, n_classes: int) -> int:
    """Rows of the subset, of so many classes."""
    n_rows, n_columns = support.x.shape
    wide = min(ROWS_PER_COLUMN * n_columns, WIDE_ROWS)
    many = min(int(TUNING_SHARE * (n_rows - BEYOND)), MOST_TUNING_ROWS)
    most = max(TUNING_ROWS, wide, many)
    return min(most, max(MIN_ROWS_PER_CLASS * n_classes, CLASSES * most // n_classes))


def _shares(counts: np.ndarray, budget: int, n_rows: int) -> np.ndarray:
    """How many rows of each class, of so many, make up a budget: their frequencies, two at least."""
    return np.minimum(counts, np.maximum(2, np.floor(budget * counts / n_rows).astype(int)))

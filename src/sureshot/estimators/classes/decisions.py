"""Decisions at a stated rate of error: a label or none of the known ones, and sets of labels.

A conformal p-value is the share of labelled rows, each left out in turn, that look no more usual than the row in
question, itself among them. If rows to come and labelled rows are of one kind, about a share a of them has a p-value
of a or less; so much is rejected in error.

For a set each class is asked: among left-out rows, how often is the probability of a row's class as small as this one?
Classes whose p-value is above 1 - coverage are in.

A left-out row has one neighbour fewer than a row to come (the jackknife), so that with few rows a class less is
rejected than was asked for.

References: Vovk, Gammerman & Shafer 2005; Sadinle, Lei & Wasserman 2019, for sets; Bates et al. 2023, for outliers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Decisions:
    """A label or none of the known ones for each row, and what that follows from."""

    labels: np.ndarray  # (n,)
    p_values: np.ndarray  # (n,), as `novelty_p_value`
    outlier_scores: np.ndarray  # (n,), as `outlier_score`


@dataclass(frozen=True)
class LabelSets:
    """A set of labels for each row."""

    members: np.ndarray  # (n, C) bool
    classes: np.ndarray  # (C,), of the columns

    @property
    def sizes(self) -> np.ndarray:
        """How many labels each row has, (n,)."""
        return self.members.sum(1)

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.members)

    def __getitem__(self, row: int) -> np.ndarray:
        """The labels of a row."""
        return self.classes[self.members[row]]

    def tolist(self) -> list[list[Any]]:
        """The labels of every row."""
        return [self[row].tolist() for row in range(len(self))]


def with_unknown(labels: np.ndarray, rejected: np.ndarray, unknown: Any) -> np.ndarray:
    """Labels (n,), `unknown` in place of those that are `rejected` (n,) bool; objects where their types differ."""
    text = isinstance(unknown, str) and labels.dtype.kind == "U"
    number = isinstance(unknown, int | float | np.number) and not isinstance(unknown, bool)
    if text or (number and labels.dtype.kind in "iuf"):
        whole = labels.dtype.kind in "iu" and isinstance(unknown, int | np.integer)
        if whole and labels.max(initial=0) <= np.iinfo(np.int64).max:
            labels = labels.astype(np.int64)
        mixed = np.where(rejected, np.asarray(unknown), labels)
        if not whole or mixed.dtype.kind != "f":  # which would round whole numbers
            return mixed
    found = labels.astype(object)
    found[rejected] = unknown
    return found


def unknown_label(unknown: Any, classes: np.ndarray) -> Any:
    """What rejected rows are called: as stated, or "unknown" beside labels that are text.

    ValueError where nothing is stated beside other labels, or the label is a known class.
    """
    if unknown is None:
        if not all(isinstance(label, str) for label in classes.tolist()):
            raise ValueError(
                f"unknown must be what rejected rows are called: the classes are no text (for instance {classes[0]!s}),"
                " so say which label stands for none of them, such as unknown=-1."
            )
        unknown = "unknown"
    if np.ndim(unknown) != 0:
        raise ValueError(f"unknown must be one label, got {unknown!r}.")
    if unknown in classes.tolist():
        raise ValueError(f"unknown={unknown!r} is one of the known classes: choose another label for rejected rows.")
    return unknown

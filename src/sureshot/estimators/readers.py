"""From what a user passes as X to the rows that an estimator keeps.

A reader checks, and brings rows into the form in which labelled ones are kept: a table stays as it is, images become
embeddings (`few_shot_inputs`), the rows of a kernel matrix their positions in it (`precomputed`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from sureshot.estimators.validation import Columns, check_inputs, check_targets, check_weights


class Reader(ABC):
    """Reads rows; stateless but for what a checkpoint brings along."""

    @abstractmethod
    def check(self, name: str, X: Any, columns: Columns | None) -> tuple[np.ndarray, Columns]:
        """Rows (n, width) and their columns, or an error that says what is wrong; as `validation.check_inputs`."""

    @abstractmethod
    def keep(self, checked: np.ndarray, fitting: bool) -> np.ndarray:
        """Checked rows in the form in which labelled ones are kept."""


@dataclass(frozen=True)
class TableReader(Reader):
    """Numeric columns, as they are."""

    def check(self, name: str, X: Any, columns: Columns | None) -> tuple[np.ndarray, Columns]:
        return check_inputs(name, X, columns)

    def keep(self, checked: np.ndarray, fitting: bool) -> np.ndarray:
        return checked


@dataclass(frozen=True)
class LabelledData:
    """Rows, labels and weights as they came, checked."""

    checked: np.ndarray  # (n, width)
    kept: np.ndarray  # (m, width), without those of weight zero
    labels: np.ndarray  # (m,)
    weight: np.ndarray  # (m,), positive
    columns: Columns
    counted: np.ndarray  # (n,) bool, the rows that are kept
    weightless: bool  # whether a class of y has weight zero in all its rows


def read_labelled(
    reader: Reader, name: str, columns: Columns | None, X: Any, y: Any, sample_weight: Any
) -> LabelledData:
    """Check rows with their labels and weights; rows of weight zero are left out."""
    checked, found = reader.check(name, X, columns)
    labels = check_targets(y, len(checked))
    weight = check_weights(sample_weight, checked)
    counted = weight > 0
    kept = reader.keep(checked, fitting=True)[counted]
    weightless = len(np.unique(labels)) > len(np.unique(labels[counted]))
    return LabelledData(checked, kept, labels[counted], weight[counted], found, counted, weightless)

"""How right, class by class: what one number hides where some classes have many rows and others few.

A classifier that always names the commonest class is right as often as that class comes. The mean recall of the
classes, balanced accuracy, is then one over their number; precision and recall of each say where it goes wrong, the
confusion matrix what it says instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sureshot.metrics.validation import check_prediction


@dataclass(frozen=True)
class ClassScores:
    """Scores of each class, each (C,); NaN where there is no row to take a share of."""

    rows: NDArray[np.int64]  # of this class
    predicted: NDArray[np.int64]  # rows that were given this class
    precision: NDArray[np.float64]  # of these, how many are right
    recall: NDArray[np.float64]  # of the class's rows, how many were found


def confusion_matrix(
    probabilities: ArrayLike,  # (n, C)
    y: ArrayLike,  # (n,), true column numbers, or labels if ``classes`` is given
    *,
    classes: ArrayLike | None = None,  # (C,), the label of each column
) -> NDArray[np.int64]:
    """How many rows of each class were given each class, (C, C): a row for each true class."""
    p, truth = check_prediction(probabilities, y, classes)
    n_classes = p.shape[1]
    counts = np.bincount(truth * n_classes + p.argmax(axis=1), minlength=n_classes**2)
    return counts.reshape(n_classes, n_classes)


def class_scores(probabilities: ArrayLike, y: ArrayLike, *, classes: ArrayLike | None = None) -> ClassScores:
    """Counts, precision and recall of each class."""
    counts = confusion_matrix(probabilities, y, classes=classes)
    right, rows, predicted = counts.diagonal(), counts.sum(axis=1), counts.sum(axis=0)
    with np.errstate(invalid="ignore"):
        return ClassScores(rows, predicted, right / predicted, right / rows)


def balanced_accuracy(probabilities: ArrayLike, y: ArrayLike, *, classes: ArrayLike | None = None) -> float:
    """The mean recall of the classes that have rows, 0..1."""
    return float(np.nanmean(class_scores(probabilities, y, classes=classes).recall))

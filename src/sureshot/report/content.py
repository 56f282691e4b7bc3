"""What a report is about, as immutable data: nothing is drawn and no HTML is made here.

Every part of a `Report` is optional, so that a fit without test labels, an evaluation and a comparison of
methods write the same kind of page with more or fewer sections.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from sureshot.metrics import ReliabilityCurve
from sureshot.metrics.validation import check_probabilities
from sureshot.report.plots import reliability_diagram


class Measured(NamedTuple):
    """A mean with its standard error, shown as ``mean ± error``."""

    mean: float
    error: float


Cell = str | int | float | Measured | None
Better = Literal["higher", "lower"] | None


@dataclass(frozen=True)
class Table:
    """A table of results."""

    columns: tuple[str, ...]
    # One cell for each column: text, a number, a `Measured`, or None for "not applicable".
    rows: tuple[tuple[Cell, ...], ...]
    # For each column "higher", "lower" or None; the best number of such a column is set in bold. Empty: none.
    better: tuple[Better, ...] = ()
    note: str = ""  # stands beneath: what was measured, how often, on what
    heading: str = "Summary"

    def __post_init__(self) -> None:
        width = len(self.columns)
        for number, row in enumerate(self.rows):
            if len(row) != width:
                raise ValueError(f"rows: expected {width} cells, one for each column, row {number} has {len(row)}.")
        if self.better and len(self.better) != width:
            raise ValueError(f"better: expected {width} entries, one for each column, got {len(self.better)}.")


class Tile(NamedTuple):
    """One score, large, with what it means."""

    name: str
    value: str
    meaning: str


class Picture(NamedTuple):
    """A figure with what it shows: in a few words for those who cannot see it, and how to read it."""

    heading: str
    figure: Figure
    alternative: str
    explanation: str


def reliability_picture(
    heading: str,
    curve: ReliabilityCurve,
    which: str = "",  # rows, as a sentence before the explanation
) -> Picture:
    """Accuracy against confidence."""
    return Picture(
        heading,
        reliability_diagram(curve),
        f"Accuracy against confidence; expected calibration error {curve.expected_error:.3f}",
        f"{which}Points on the dashed line: a confidence can be taken at its word. Bars are 95 % intervals; beneath, "
        "how many rows each point stands for.",
    )


@dataclass(frozen=True)
class Predictions:
    """Predictions of n rows, with whatever else is known of them."""

    probabilities: ArrayLike  # (n, C)
    classes: ArrayLike  # (C,), the label of each column
    # (n,), true labels. Rows whose label is not among ``classes`` count as unknown to the classifier: left out of
    # accuracy and calibration, and used to judge the outlier score.
    y: ArrayLike | None = None
    uncertainty: ArrayLike | None = None  # (n,), total, in nats; the entropy of the probabilities by default
    outlier_score: ArrayLike | None = None  # (n,), larger means less like any class
    # (n, H, W) grey values (largest is darkest, as ink) or (n, H, W, 3) colours in 0..255 or 0..1.
    images: ArrayLike | None = None
    row_names: ArrayLike | None = None  # (n,), how to call the rows; 0, 1, ... by default

    def __post_init__(self) -> None:
        p = check_probabilities(self.probabilities)
        n = p.shape[0]
        classes = np.asarray(self.classes)
        if classes.shape != (p.shape[1],):
            raise ValueError(
                f"classes: expected {p.shape[1]} labels, one for each column of probabilities, "
                f"got shape {classes.shape}."
            )
        object.__setattr__(self, "probabilities", p)
        object.__setattr__(self, "classes", classes)
        for name in ("y", "uncertainty", "outlier_score", "row_names"):
            if getattr(self, name) is not None:
                values = np.asarray(getattr(self, name))
                if values.shape != (n,):
                    raise ValueError(f"{name}: expected {n} values, one for each row, got shape {values.shape}.")
                object.__setattr__(self, name, values)
        if self.images is not None:
            images = np.asarray(self.images)
            if images.shape[:1] != (n,) or not (images.ndim == 3 or (images.ndim == 4 and images.shape[3] == 3)):
                raise ValueError(
                    f"images: expected shape ({n}, height, width) or ({n}, height, width, 3), got {images.shape}."
                )
            object.__setattr__(self, "images", images)


class View(NamedTuple):
    """`Predictions` digested: what sections and plots need, (n,) each."""

    probabilities: NDArray[np.float64]  # (n, C)
    predicted: NDArray[np.int64]
    confidence: NDArray[np.float64]
    uncertainty: NDArray[np.float64]
    outlier_score: NDArray[np.float64] | None
    truth: NDArray[np.int64] | None  # column, or -1 if unknown to the classifier
    known: NDArray[np.bool_]  # all true without labels

    @property
    def labelled(self) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]] | None:
        """Probabilities, predicted and true columns of the rows of known classes, if there are any with labels."""
        if self.truth is None or not self.known.any():
            return None
        return self.probabilities[self.known], self.predicted[self.known], self.truth[self.known]

    @property
    def outlier_scores(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Those of known and of unknown classes, if there are both."""
        if self.outlier_score is None or self.known.all() or not self.known.any():
            return None
        return self.outlier_score[self.known], self.outlier_score[~self.known]


def digest(predictions: Predictions) -> View:
    """Predicted columns, confidences, uncertainties and true columns."""
    p = np.asarray(predictions.probabilities)
    truth = None
    known = np.ones(p.shape[0], dtype=bool)
    if predictions.y is not None:
        column = {label: c for c, label in enumerate(np.asarray(predictions.classes).tolist())}
        labels = np.asarray(predictions.y).tolist()
        truth = np.array([column.get(label, -1) for label in labels], dtype=np.int64)
        known = truth >= 0
    if predictions.uncertainty is None:
        uncertainty = -(p * np.log(np.maximum(p, np.finfo(np.float64).tiny))).sum(axis=1)
    else:
        uncertainty = np.asarray(predictions.uncertainty, dtype=np.float64)
    score = predictions.outlier_score
    outlier_score = None if score is None else np.asarray(score, dtype=np.float64)
    return View(p, p.argmax(axis=1), p.max(axis=1), uncertainty, outlier_score, truth, known)


@dataclass(frozen=True)
class Confusion:
    """How often one class was taken for another."""

    true: Any
    predicted: Any
    count: int
    share: float
    """Of the true class's rows."""


def confusion_frame(predictions: Predictions) -> pd.DataFrame:
    """How many rows of each true label were given each class; labels that are no class come last."""
    known = np.asarray(predictions.classes).tolist()
    labels = np.asarray(predictions.y).tolist()
    place = {label: row for row, label in enumerate(dict.fromkeys([*known, *sorted(labels, key=str)]))}
    predicted = np.asarray(predictions.probabilities).argmax(axis=1)
    counts = np.zeros((len(place), len(known)), dtype=np.int64)
    np.add.at(counts, ([place[label] for label in labels], predicted), 1)
    return pd.DataFrame(counts, list(place), known)


def as_sentence(text: str) -> str:
    """Text with a capital letter in front, as a description begins a paragraph."""
    return text[:1].upper() + text[1:]


def confidence_in_words(sure: float, right: float) -> str:
    """A mean confidence beside the fraction that is right."""
    gap = sure - right
    if abs(gap) < 0.005:
        return f"{sure:.1%} on average, which matches."
    return f"{sure:.1%} on average, too {'sure' if gap > 0 else 'modest'} by {100 * abs(gap):.1f} points."


def worst_pairs(
    truth: NDArray[np.int64],  # (n,), column numbers
    predicted: NDArray[np.int64],  # (n,)
    classes: ArrayLike,  # (C,), the label of each column
) -> list[Confusion]:
    """Pairs (true, predicted) of different classes, most frequent first."""
    labels = np.asarray(classes).tolist()
    rows_of = np.bincount(truth, minlength=len(labels))
    wrong = truth != predicted
    pairs, counts = np.unique(np.stack([truth[wrong], predicted[wrong]], axis=1), axis=0, return_counts=True)
    found = [
        Confusion(labels[t], labels[p], int(count), float(count / rows_of[t]))
        for (t, p), count in zip(pairs.tolist(), counts.tolist(), strict=True)
    ]
    return sorted(found, key=lambda pair: (-pair.count, -pair.share))


@dataclass(frozen=True)
class Report:
    """Everything a report may show; a part left out is a section left out."""

    title: str
    introduction: str = ""  # a sentence or two: what was fitted, on what
    summary: Table | None = None  # results, one row for each method
    predictions: Predictions | None = None  # sources of the scores, the diagrams and the tables of rows
    trace: ArrayLike = ()  # (steps,), the evidence lower bound during the fit, in nats
    model: Mapping[str, object] = field(default_factory=dict)  # facts: kernel, likelihood, temperature...
    environment: Mapping[str, object] = field(default_factory=dict)  # see `sureshot.report.environment`
    command: str | None = None  # the command line that wrote the report
    verdict: str = ""  # the result in a sentence; made from the predictions if there are any
    tiles: tuple[Tile, ...] = ()  # single scores at the top; made from the predictions if there are any
    tables: tuple[Table, ...] = ()  # further results, below the figures
    pictures: tuple[Picture, ...] = ()  # further figures

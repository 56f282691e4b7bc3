"""One interface for classifiers that learn from batches of rows, the classes known in advance.

Some update their model with each batch; others are refitted to all rows so far, or to the latest ones. A classifier
that cannot be fitted to a single class predicts by the rule of succession until there are two.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from sureshot.metrics import summarise

LEAST_PROBABILITY = 1e-6
"""Probabilities of all methods are clipped at this before they are scored."""


class BatchLearner(ABC):
    """The interface of all of them; a `StreamMethod`."""

    classes_: np.ndarray
    says_probabilities = True
    """Whether `predict_proba` gives more than the most probable class."""

    @abstractmethod
    def partial_fit(
        self,
        x: np.ndarray,  # (B, D)
        y: np.ndarray,  # (B,)
    ) -> None:
        """Learn from a batch."""

    @abstractmethod
    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        """Class probabilities of rows (n, C), classes in sorted order."""


class Incremental(BatchLearner):
    """An estimator with ``partial_fit``, as it comes."""

    def __init__(self, model: Any, classes: np.ndarray, **options: Any) -> None:
        self.model, self.classes_, self.options = model, classes, options

    def partial_fit(self, x: np.ndarray, y: np.ndarray) -> None:
        """See `BatchLearner`."""
        self.model.partial_fit(x, y, classes=self.classes_, **self.options)

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        """See `BatchLearner`."""
        found: np.ndarray = self.model.predict_proba(x)
        return found


class Scaled(BatchLearner):
    """An estimator with ``partial_fit`` on columns that are standardised by all rows so far."""

    def __init__(self, model: Any, classes: np.ndarray) -> None:
        self.model, self.classes_, self.scaler = model, classes, StandardScaler()
        self.says_probabilities = hasattr(model, "predict_proba")

    def partial_fit(self, x: np.ndarray, y: np.ndarray) -> None:
        """See `BatchLearner`."""
        self.model.partial_fit(self.scaler.partial_fit(x).transform(x), y, classes=self.classes_)

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        """See `BatchLearner`; 0 and 1 for a classifier without probabilities."""
        x = self.scaler.transform(x)
        if self.says_probabilities:
            found: np.ndarray = self.model.predict_proba(x)
            return found
        return (self.model.predict(x)[:, None] == self.classes_).astype(float)


class Refitted(BatchLearner):
    """An estimator that is refitted to all rows so far, standardised, or to the latest of them."""

    def __init__(self, make: Callable[[], Any], classes: np.ndarray, window: int | None = None) -> None:
        self.make, self.classes_, self.window = make, classes, window
        self.x, self.y = np.empty((0, 0)), classes[:0]

    def partial_fit(self, x: np.ndarray, y: np.ndarray) -> None:
        """See `BatchLearner`."""
        if len(self.y):
            x, y = np.concatenate([self.x, x]), np.concatenate([self.y, y])
        first = 0 if self.window is None else -self.window
        self.x, self.y = x[first:], y[first:]
        self.scaler = StandardScaler().fit(self.x)
        self.model = self.make().fit(self.scaler.transform(self.x), self.y) if len(np.unique(self.y)) > 1 else None

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        """See `BatchLearner`."""
        found = np.zeros((len(x), len(self.classes_)))
        if self.model is None:
            counts = (self.y[:, None] == self.classes_).sum(axis=0) + 1
            return found + counts / counts.sum()
        found[:, np.searchsorted(self.classes_, self.model.classes_)] = self.model.predict_proba(
            self.scaler.transform(x)
        )
        return found


def river_is_installed() -> bool:
    """Whether the adaptive random forest is available."""
    return find_spec("river") is not None


class AdaptiveForest(BatchLearner):
    """River's adaptive random forest (Gomes et al. 2017), row by row."""

    def __init__(self, classes: np.ndarray, seed: int) -> None:
        from river.forest import ARFClassifier

        self.model, self.classes_ = ARFClassifier(seed=seed), classes

    def partial_fit(self, x: np.ndarray, y: np.ndarray) -> None:
        """See `BatchLearner`."""
        for row, label in zip(x.tolist(), y.tolist(), strict=True):
            self.model.learn_one(dict(enumerate(row)), label)

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        """See `BatchLearner`."""
        answers: list[Mapping[Any, float]] = [self.model.predict_proba_one(dict(enumerate(row))) for row in x.tolist()]
        found = np.array([[answer.get(label, 0.0) for label in self.classes_.tolist()] for answer in answers])
        nothing = found.sum(axis=1) == 0
        found[nothing] = 1 / len(self.classes_)
        return found / found.sum(axis=1, keepdims=True)


def scores(
    p: np.ndarray,  # (n, C)
    y: np.ndarray,  # (n,)
    classes: np.ndarray,  # (C,)
) -> dict[str, float]:
    """Accuracy, NLL, Brier score and calibration error."""
    clipped = np.clip(p, LEAST_PROBABILITY, None)
    found = summarise(clipped / clipped.sum(axis=1, keepdims=True), y, classes=classes)
    return {"accuracy": found.accuracy, "nll": found.nll, "brier": found.brier, "ece": found.ece}


def quiet() -> warnings.catch_warnings:
    """A context without the warnings of peers, such as unconverged fits; their scores show these."""
    return warnings.catch_warnings(action="ignore")

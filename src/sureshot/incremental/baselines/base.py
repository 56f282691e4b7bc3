"""What all baselines on frozen features share: checks, labels that come, and a state that is replaced whole.

A baseline says what it learns from the base session, how that grows by later rows, and what it scores and keeps: four
short methods on tensors and class numbers. Here rows are checked and labels numbered; the next state is complete before
it takes the place of the last one, so a call that fails changes nothing.

Baselines are yardsticks, not estimators of scikit-learn: no weights, no DataFrames, no model files.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from sureshot.incremental.arriving import by_label, check_finite, checked_labels, numbered
from sureshot.incremental.method import Memory, SessionMethod

State = TypeVar("State")


_EXTREME = (
    "X: its numbers are too large, or rows too much alike for so little noise, to be computed with: scale the columns, "
    "or state more noise or shrinkage; nothing was learnt of these rows."
)


@contextmanager
def _refusing_extremes() -> Iterator[None]:
    try:
        yield
    except torch.linalg.LinAlgError as error:
        raise ValueError(_EXTREME) from error


@dataclass(frozen=True)
class _Known(Generic[State]):
    """All that a baseline has learnt."""

    classes: np.ndarray  # (C,), in the order of their arrival
    n_features: int
    state: State


class Baseline(SessionMethod, Generic[State]):
    """A baseline on rows of numbers (n, D)."""

    name: ClassVar[str]
    _known: _Known[State] | None = None

    @abstractmethod
    def _learnt(self, x: Tensor, y: Tensor, n_classes: int) -> State:
        """What the base session teaches: rows (N, D) in float64 of classes (N,), each with a row."""

    @abstractmethod
    def _grown(self, state: State, x: Tensor, y: Tensor, n_classes: int) -> State:
        """The state with further rows; classes from the number known so far on are new, each with a row."""

    @abstractmethod
    def _scores(self, state: State, x: Tensor) -> Tensor:
        """Log probabilities of rows (Q, D), up to a number for each row, (Q, C)."""

    @abstractmethod
    def _outlier(self, state: State, x: Tensor) -> Tensor:
        """Outlier scores (Q,)."""

    @abstractmethod
    def _memory(self, state: State, n_classes: int) -> Memory:
        """What the state holds."""

    @property
    def classes_(self) -> np.ndarray:  # type: ignore[override]
        """Labels of the columns."""
        return np.sort(self._current().classes)

    def fit(self, X: Any, y: Any, unseen: Any = None) -> Self:
        """Learn the base session; one class is enough, and one row."""
        x, labels = self._rows(X, None), checked_labels(y, len(np.asarray(X)))
        classes, codes = np.unique(labels, return_inverse=True)
        with _refusing_extremes(), torch.no_grad():
            state = self._learnt(x, torch.from_numpy(codes), len(classes))
            self._check(state, x)
        self._known = _Known(classes, x.shape[1], state)
        return self

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Learn a later session."""
        known = self._known
        if known is None:
            return self.fit(X, y)
        x, labels = self._rows(X, known.n_features), checked_labels(y, len(np.asarray(X)))
        classes, codes = numbered(labels, known.classes)
        with _refusing_extremes(), torch.no_grad():
            state = self._grown(known.state, x, codes, len(classes))
            self._check(state, x)
        self._known = _Known(classes, known.n_features, state)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (n, C)."""
        known = self._current()
        with torch.no_grad():
            scores = self._scores(known.state, self._rows(X, known.n_features))
        return by_label(torch.softmax(scores, -1), known.classes)

    def outlier_score(self, X: Any) -> np.ndarray:
        """Outlier scores (n,)."""
        known = self._current()
        with torch.no_grad():
            return self._outlier(known.state, self._rows(X, known.n_features)).numpy()

    def memory(self) -> Memory:
        """What is kept between sessions."""
        known = self._current()
        return self._memory(known.state, len(known.classes))

    def _check(self, state: State, x: Tensor) -> None:
        """Refuse a state that has no finite scores."""
        if not bool(self._scores(state, x[:1]).isfinite().all()):
            raise ValueError(_EXTREME)

    def _current(self) -> _Known[State]:
        if self._known is None:
            raise ValueError(f"{type(self).__name__} has learnt nothing yet: call fit() with the base session first.")
        return self._known

    def _rows(self, X: Any, n_features: int | None) -> Tensor:
        """Rows as a finite float64 matrix."""
        values = np.asarray(X)
        if values.ndim != 2 or 0 in values.shape or values.dtype.kind not in "fiub":
            raise ValueError(
                f"X: expected rows of numbers (n, D), got shape {values.shape} and type {values.dtype}. Baselines take "
                "embeddings: pass images through an encoder first."
            )
        if n_features is not None and values.shape[1] != n_features:
            raise ValueError(f"X: expected {n_features} columns, as in the base session, got {values.shape[1]}.")
        check_finite(values)
        return torch.from_numpy(values.astype(np.float64))

"""What every sureshot estimator offers beyond scikit-learn's contract, in terms of its latent posterior.

An estimator gives the latents' marginals at queries; predictions, outlier scores and uncertainties follow here.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin


@dataclass(frozen=True)
class LatentPrediction:
    """Marginal moments of the latents at queries.

    Attributes
    ----------
    mean, variance : ndarray (n, C)
        One column for each class, in the order of ``classes_``.
    """

    mean: np.ndarray
    variance: np.ndarray


@dataclass(frozen=True)
class Uncertainty:
    """Predictive entropy in nats and what it is made of, each an ndarray (n,).

    Attributes
    ----------
    total : ndarray
        Entropy of the mean class probabilities.
    aleatoric : ndarray
        Mean entropy over the posterior: what more data would not remove.
    epistemic : ndarray
        The difference, the mutual information of label and latents: what more data would remove.
    """

    total: np.ndarray
    aleatoric: np.ndarray
    epistemic: np.ndarray


class ProbabilisticClassifier(ClassifierMixin, BaseEstimator):
    """Shared behaviour of the estimators."""

    classes_: np.ndarray
    n_features_in_: int
    random_state: Any

    def _changed_by(self, change: Callable[[Self], object]) -> Self:
        """Let `change` work on a copy, and take over all that the copy has become in one assignment.

        So a call that fails, at whatever point and for whatever reason, changes nothing. `change` replaces attributes
        and never alters what they hold. A random state given by the user moves on only if the call succeeds.
        """
        given = self.random_state
        successor = copy.copy(self)
        successor.random_state = copy.deepcopy(given) if isinstance(given, np.random.RandomState) else given
        change(successor)
        drawn, successor.random_state = successor.random_state, given
        self.__dict__ = successor.__dict__
        if isinstance(given, np.random.RandomState):
            given.set_state(drawn.get_state())
        return self

    @abstractmethod
    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities (n, C), columns in the order of ``classes_``."""

    @abstractmethod
    def predict_latent(self, X: Any) -> LatentPrediction:
        """Marginal moments of the latents, each (n, C)."""

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row, (n,)."""
        most_likely = self.predict_proba(X).argmax(axis=1)
        return self.classes_[most_likely]

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Log class probabilities (n, C)."""
        return np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny))


def entropy(probabilities: np.ndarray, axis: int = -1) -> np.ndarray:
    """Entropy in nats along an axis."""
    clipped = np.maximum(probabilities, np.finfo(np.float64).tiny)
    return -(probabilities * np.log(clipped)).sum(axis=axis)

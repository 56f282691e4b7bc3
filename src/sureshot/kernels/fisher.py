"""Fisher kernels: objects are alike if they would change a model of all in the same way.

The score ``u(x)`` is the gradient of ``log p(x)`` in the model's parameters, and the kernel is ``u(x)' F^-1 u(x')``,
with F the second moment of the scores of the fit, and a ridge on it. Features are ``F^-1/2 u(x)``, for a linear kernel
in a scikit-learn pipeline; of unit length unless `normalize` is False, as long objects have long scores.

Reference: Jaakkola & Haussler 1998.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import chain
from typing import Any, Self

import numpy as np
from scipy.linalg import eigh
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import normalize as of_unit_length
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted


class FisherFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):
    """What all have in common; `ridge` is relative to the mean of F's diagonal, the larger the fewer the objects."""

    ridge: float
    normalize: bool

    @abstractmethod
    def scores(self, X: Any) -> np.ndarray:
        """Gradients (n, P) of the log likelihood of each object."""

    def transform(self, X: Any) -> np.ndarray:
        """Features (n, P)."""
        check_is_fitted(self)
        features = self.scores(X) @ self.root_
        return np.asarray(of_unit_length(features)) if self.normalize else features

    def _informed(self, X: Any) -> Self:
        if isinstance(self.ridge, bool) or not isinstance(self.ridge, int | float) or not self.ridge > 0:
            raise ValueError(f"ridge must be a positive number; got {self.ridge!r}.")
        scores = self.scores(X)
        values, vectors = eigh(scores.T @ scores / len(scores))
        self.root_ = vectors / np.sqrt(values.clip(0) + self.ridge * max(values.mean(), 1e-300)) @ vectors.T
        self._n_features_out = len(values)
        return self


class MarkovFisherFeatures(FisherFeatures):
    """Of sequences of symbols, strings or lists, by a Markov chain: which symbol comes first, and which after which.

    Probabilities are counts of the fit and one each, and parameters their logits. A symbol that the fit lacks is passed
    over, with the steps to it and from it.
    """

    def __init__(self, *, ridge: float = 1.0, normalize: bool = True) -> None:
        self.ridge = ridge
        self.normalize = normalize

    def fit(self, X: Any, y: Any = None) -> Self:
        """Count symbols, and find their information."""
        self.symbols_ = {symbol: place for place, symbol in enumerate(sorted(set(chain.from_iterable(_sequences(X)))))}
        counts = self._counts(X).sum(0) + 1
        self.probability_ = counts / counts.sum(1, keepdims=True)
        return self._informed(X)

    def scores(self, X: Any) -> np.ndarray:
        """In the logits of first symbols, then of those after each symbol."""
        counts = self._counts(X)
        return np.asarray(counts - counts.sum(2, keepdims=True) * self.probability_).reshape(len(counts), -1)

    def _counts(self, X: Any) -> np.ndarray:
        """Of first symbols, then of steps, (n, 1 + A, A)."""
        found = np.zeros((len(X), len(self.symbols_) + 1, len(self.symbols_)))
        for counts, one in zip(found, _sequences(X), strict=True):
            places = [self.symbols_.get(symbol, -1) for symbol in one]
            before = [-1, *(place if place >= 0 else None for place in places[:-1])]
            for a, b in zip(before, places, strict=True):
                if a is not None and b >= 0:
                    counts[a + 1, b] += 1
        return found


def _sequences(X: Any) -> list[Any]:
    if isinstance(X, str) or not len(X) or not all(len(one) for one in X):
        raise ValueError(f"expected a list of sequences with a symbol in each; got {X!r}."[:200])
    return list(X)


class MixtureFisherFeatures(FisherFeatures):
    """Of rows (n, D), or of a list of bags of rows (m, D) each, by a mixture of `n_components` normals of all rows.

    Parameters are logits of the weights, means, and logarithms of the deviations of columns. Scores of a bag are sums.
    """

    def __init__(
        self, n_components: int = 8, *, ridge: float = 1.0, normalize: bool = True, random_state: Any = None
    ) -> None:
        self.n_components = n_components
        self.ridge = ridge
        self.normalize = normalize
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the mixture to all rows, and find its information."""
        mixture = GaussianMixture(self.n_components, covariance_type="diag", random_state=self.random_state)
        self.mixture_ = mixture.fit(np.concatenate(_bags(X)))
        return self._informed(X)

    def scores(self, X: Any) -> np.ndarray:
        """In the logits of weights, in means, and in logarithms of deviations."""
        bags, mixture = _bags(X), self.mixture_
        rows = np.concatenate(bags)
        share, deviation = mixture.predict_proba(rows)[..., None], np.sqrt(mixture.covariances_)
        away = (rows[:, None] - mixture.means_) / deviation
        each = (share - mixture.weights_[:, None], share * away / deviation, share * (away**2 - 1))
        every = np.hstack([part.reshape(len(rows), -1) for part in each])
        return np.asarray(np.add.reduceat(every, np.cumsum([0, *map(len, bags[:-1])])))


def _bags(X: Any) -> list[np.ndarray]:
    """Rows of each object."""
    if isinstance(X, list | tuple) and len(X) and np.ndim(X[0]) == 2:
        return [check_array(one, dtype=np.float64) for one in X]
    return list(check_array(X, dtype=np.float64)[:, None])

"""Kernels of strings as features whose inner products they are, for a linear kernel in a scikit-learn pipeline.

With the strings of the fit inner products are exact. Of two new strings they are what the strings of the fit know of
them, less than the kernel if these lack a part that both have.

References: Leslie, Eskin & Noble 2002 (k-spectrum); Lodhi, Saunders, Shawe-Taylor, Cristianini & Watkins 2002.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Self

import numpy as np
import scipy.sparse
from scipy.linalg import eigh
from scipy.signal import lfilter
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.feature_extraction import DictVectorizer
from sklearn.utils.validation import check_is_fitted

ENTRIES = 2**21  # of pairs of strings by characters, held at once
ROUNDING = 1e-12  # of the largest eigenvalue


class SpectrumFeatures(TransformerMixin, BaseEstimator):
    """Counts of the strings of `k` characters in a string, divided by the length of the vector of all of its counts.

    A sparse matrix, as `GPClassifier` takes it with a linear kernel, unless `sparse_output` is False.
    """

    def __init__(self, k: int = 3, *, sparse_output: bool = True) -> None:
        self.k = k
        self.sparse_output = sparse_output

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the columns of strings."""
        self.vectorizer_ = DictVectorizer().fit(self._counts(X))
        return self

    def transform(self, X: Any) -> np.ndarray | scipy.sparse.csr_matrix:
        """Features (n, R)."""
        check_is_fitted(self)
        counts = self._counts(X)
        length = np.sqrt([sum(number**2 for number in one.values()) for one in counts])
        features = scipy.sparse.csr_matrix(self.vectorizer_.transform(counts).multiply(1 / length[:, None]))
        return features if self.sparse_output else features.toarray()

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """The strings of k characters."""
        return np.asarray(self.vectorizer_.get_feature_names_out(), dtype=object)

    def _counts(self, X: Any) -> list[Counter[str]]:
        return [Counter(one[i : i + self.k] for i in range(len(one) - self.k + 1)) for one in _checked(X, self.k)]


class SubsequenceFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Subsequences of `length` characters that strings share, gaps included, the kernel of a string with itself 1.

    A subsequence counts by the power of `decay` that is the number of characters it spans. There are as many features
    as strings in the fit at most, by the kernel's matrix (Nystrom).
    """

    def __init__(self, length: int = 3, decay: float = 0.5) -> None:
        self.length = length
        self.decay = decay

    def fit(self, X: Any, y: Any = None) -> Self:
        """Keep different strings, and how features follow from the kernel with them."""
        self.strings_ = sorted(set(_checked(X, self.length)))
        if isinstance(self.decay, bool) or not isinstance(self.decay, int | float) or not 0 < self.decay <= 1:
            raise ValueError(f"decay must be a number above 0 and at most 1; got {self.decay!r}.")
        values, vectors = eigh(self._kernel(self.strings_))
        kept = values > ROUNDING * values[-1]
        self.projection_ = vectors[:, kept] / np.sqrt(values[kept])
        self._n_features_out = self.projection_.shape[1]
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Features (n, R)."""
        check_is_fitted(self)
        return np.asarray(self._kernel(_checked(X, self.length)) @ self.projection_)

    def _kernel(self, strings: list[str]) -> np.ndarray:
        own = [
            np.array([subsequence_kernel([one], [one], self.length, self.decay)[0, 0] for one in some])
            for some in (strings, self.strings_)
        ]
        return subsequence_kernel(strings, self.strings_, self.length, self.decay) / np.sqrt(np.outer(*own))


def subsequence_kernel(first: list[str], second: list[str], length: int, decay: float) -> np.ndarray:
    """The kernel (n, m) of all pairs, not normalised, by dynamic programming over both strings of all pairs at once."""
    others = _coded(second, -1)
    size = max(1, ENTRIES // others.size)
    blocks = (_coded(first[k : k + size], -2) for k in range(0, len(first), size))
    return np.concatenate([_of_block(block, others, length, decay) for block in blocks])


def _of_block(first: np.ndarray, second: np.ndarray, length: int, decay: float) -> np.ndarray:
    """By codes of characters (n, S) and (m, T)."""
    shape = (len(first), len(second), second.shape[1] + 1)
    # Entry t of ends[p]: common subsequences of p characters of the first string so far and of t characters of the
    # second, weighted by how far back they begin in either.
    ends = [np.ones(shape), *(np.zeros(shape) for _ in range(length - 1))]
    total = np.zeros(shape[:2])
    for characters in first.T:
        same = decay**2 * (characters[:, None, None] == second)
        total += (same * ends[-1][..., :-1]).sum(-1)
        met = [lfilter([1.0], [1.0, -decay], same * shorter[..., :-1]) for shorter in ends[:-1]]
        for longer, found in zip(ends[1:], met, strict=True):
            longer *= decay
            longer[..., 1:] += found
    return total


def _coded(strings: list[str], filler: int) -> np.ndarray:
    """Characters as numbers (n, longest), behind the end what no other string has."""
    codes = np.full((len(strings), max(map(len, strings))), filler)
    for row, one in zip(codes, strings, strict=True):
        row[: len(one)] = [ord(character) for character in one]
    return codes


def _checked(X: Any, length: Any) -> list[str]:
    """Strings of so many characters at least."""
    if isinstance(length, bool) or not isinstance(length, int | np.integer) or length < 1:
        raise ValueError(f"a number of characters must be whole and at least 1; got {length!r}.")
    strings = [] if isinstance(X, str) else list(X)
    if not strings or not all(isinstance(one, str) for one in strings):
        raise ValueError(f"expected a list of at least one string, nothing else in it; got {X!r}."[:200])
    for place, one in enumerate(strings):
        if len(one) < length:
            raise ValueError(
                f"string {place}, {one!r}, has less than {length} characters: leave it out, or choose less."
            )
    return strings

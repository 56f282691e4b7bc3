"""Sparse rows, such as counts of words, as coordinates in the space that the labelled rows span.

Kernels of inner products (linear, cosine) see of a row x only what it has in common with labelled rows, and its own
length. So with ``X = U S V'`` of the labelled rows, ``V' x`` and the length ``|x - V V' x|`` of what it leaves out are
all there is to know: columns that no labelled row has count for the length alone. Up to `MOST_EXACT` rows, or fewer of
very many columns, that is what is kept, and nothing is lost. Of more rows only the `COMPONENTS` largest directions are
(latent semantic analysis, Deerwester et al. 1990), and rows of unit length are brought to unit length again: fewer rows
than stated are then rejected as unknown, not more.

Rows that are learnt later are projected on what the first ones span.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from scipy.linalg import svd
from sklearn.utils.extmath import randomized_svd

from sureshot.estimators.rows.validation import Columns, check_weights, validated
from sureshot.kernels.unit_sphere import FEWEST_FEATURES

MOST_EXACT = 2000
COMPONENTS = 500
MOST_NUMBERS = 2**24  # of V, 134 MB

ADVICE = (
    "GPClassifier takes sparse rows with kernel='linear' or 'cosine' ('auto' if all have length 1, then "
    "FewShotClassifier without a checkpoint takes them too); elsewhere reduce "
    "them first, make_pipeline(TruncatedSVD(100), estimator), or pass X.toarray() if it has few columns."
)

_NEGLIGIBLE = 1e-10  # of the largest singular value


@dataclass(frozen=True)
class SpannedRows:
    """What has been learnt of the sparse rows of a first fit."""

    n_columns: int
    seen: np.ndarray  # (K,) int64, the columns that any of them has
    basis: np.ndarray  # (K, R), V
    exact: bool  # whether V leaves nothing out of labelled rows
    unit: bool  # whether all had length 1, those of zeros apart

    def check_parts(self) -> None:
        """ValueError for a basis that does not fit the columns."""
        seen = self.seen
        if seen.ndim != 1 or self.basis.ndim != 2 or len(self.basis) != len(seen):
            raise ValueError("what sparse rows span is malformed")
        if len(seen) and (seen.min() < 0 or seen.max() >= self.n_columns):
            raise ValueError("what sparse rows span is malformed")

    @classmethod
    def of(cls, name: str, X: Any, sample_weight: Any) -> SpannedRows:
        """From the rows of a first fit; those of weight zero teach nothing."""
        checked = checked_sparse(name, X, None)[0]
        x = checked[check_weights(sample_weight, checked) > 0]
        seen = np.flatnonzero(np.diff(x.tocsc().indptr))
        part = x[:, seen]
        most = MOST_NUMBERS // max(1, len(seen))
        exact = min(part.shape) <= min(MOST_EXACT, most)
        basis = _row_space(part) if exact else randomized_svd(part, min(COMPONENTS, most), random_state=0)[2].T
        lengths = _squared_lengths(x)
        lengths = lengths[lengths > 0]
        unit = bool(len(lengths) and np.allclose(lengths, 1, atol=1e-6))
        if unit and x.shape[1] >= FEWEST_FEATURES:  # few rows of many columns are embeddings as others are
            basis = np.pad(basis, ((0, 0), (0, max(0, FEWEST_FEATURES - 1 - basis.shape[1]))))
        return cls(x.shape[1], seen, basis, exact, unit)

    def __call__(self, x: scipy.sparse.csr_array) -> np.ndarray:
        """Coordinates (n, R + 1) of rows (n, D): along V, and the length of what is left out."""
        along = np.asarray(x[:, self.seen] @ self.basis)
        left = np.zeros(len(along))
        if self.exact:
            lengths = _squared_lengths(x)
            left = np.maximum(lengths - _squared_lengths(along), 0)
            left[left < _NEGLIGIBLE * lengths] = 0
        return self._with_length(np.column_stack([along, np.sqrt(left)]))

    @property
    def width(self) -> int:
        """R + 1."""
        return self.basis.shape[1] + 1

    def known(self, coordinates: np.ndarray) -> np.ndarray:
        """The coordinates of rows that are learnt; what lies outside their span is dropped."""
        along = coordinates.copy()
        along[:, -1] = 0
        return self._with_length(along)

    def _with_length(self, x: np.ndarray) -> np.ndarray:
        if not self.unit:
            return x
        length = np.linalg.norm(x, axis=1, keepdims=True)
        return np.divide(x, length, out=np.zeros_like(x), where=length > 0)


def checked_sparse(name: str, X: Any, columns: Columns | None) -> tuple[scipy.sparse.csr_array, Columns]:
    """Rows (n, D) as a sparse matrix of finite numbers, dense ones too, or an error that says what is wrong."""
    stored = np.asarray(getattr(X, "data", ())) if scipy.sparse.issparse(X) else np.empty(0)
    if stored.dtype.kind == "f" and np.isnan(stored).any():
        raise ValueError(
            f"Input X contains NaN in {np.isnan(stored).sum()} cells: {name} takes sparse rows without gaps."
        )
    checked, found = validated(name, X, columns, accept_sparse="csr", dtype=np.float64)
    return scipy.sparse.csr_array(checked), found


def _row_space(x: scipy.sparse.csr_array) -> np.ndarray:
    """An orthonormal basis (K, R) of the rows (n, K)."""
    if not x.nnz:
        return np.zeros((x.shape[1], 0))
    _, sizes, directions = svd(x.toarray(), full_matrices=False)
    kept = sizes > _NEGLIGIBLE * max(float(sizes[0]), np.finfo(np.float64).tiny)
    basis: np.ndarray = directions[kept].T
    return basis


def _squared_lengths(x: Any) -> np.ndarray:
    squares = x.multiply(x) if scipy.sparse.issparse(x) else x * x
    return np.asarray(squares.sum(axis=1)).ravel()

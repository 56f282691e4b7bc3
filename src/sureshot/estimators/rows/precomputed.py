"""A kernel given as a matrix: rows are named by their position in it.

Distances, a table that happens to be square, or kernel values with a wrong sign would be learnt from without a word and
predict nonsense, so the matrix is checked to be one that a kernel can give, to the rounding of single precision.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

from sureshot.computing.threads import threads_for
from sureshot.estimators.rows.readers import Reader
from sureshot.estimators.rows.validation import Columns, check_inputs
from sureshot.kernels import Expression
from sureshot.kernels.expression import kernel
from sureshot.kernels.fields import setting

ROUNDING = 1e-5
"""Of the largest diagonal entry: how far a matrix may be from symmetric, and its eigenvalues below zero."""


class MatrixReader(Reader):
    """Kernel matrices: between labelled rows on fitting, between queries and labelled rows afterwards."""

    def check(self, name: str, X: Any, columns: Columns | None) -> tuple[np.ndarray, Columns]:
        checked, found = check_inputs(name, X, columns)
        if columns is None and checked.shape[0] != checked.shape[1]:
            raise ValueError(f"kernel='precomputed' needs a square matrix X to fit; got shape {checked.shape}.")
        if columns is None:
            _check_kernel_matrix(checked)
        return checked, found

    def keep(self, checked: np.ndarray, fitting: bool) -> np.ndarray:
        """Positions of labelled rows, values of queries."""
        return np.arange(len(checked), dtype=np.float64)[:, None] if fitting else checked


def _check_kernel_matrix(gram: np.ndarray) -> None:
    """Refuse a matrix (n, n) that no kernel gives: asymmetric, of negative diagonal, indefinite, or all zero."""
    diagonal = gram.diagonal()
    allowed = ROUNDING * max(diagonal.max(), 0.0)
    lowest = int(diagonal.argmin())
    if diagonal[lowest] < -allowed:
        raise ValueError(
            "kernel='precomputed' needs a kernel matrix X, whose diagonal is not negative; "
            f"got {diagonal[lowest]:g} in row {lowest}: if X holds distances D, try numpy.exp(-D)."
        )
    if not gram.any():
        raise ValueError(
            "kernel='precomputed' needs a kernel matrix X with values other than zero; got zeros only, from which "
            "nothing can be learnt."
        )
    apart = np.abs(gram - gram.T)
    row, column = np.unravel_index(apart.argmax(), apart.shape)
    if apart[row, column] > allowed:
        raise ValueError(
            f"kernel='precomputed' needs a symmetric matrix X; got X[{row}, {column}] = {gram[row, column]:g} and "
            f"X[{column}, {row}] = {gram[column, row]:g}: give the kernel of the labelled rows with themselves, or try "
            "(X + X.T) / 2."
        )
    shifted = gram.copy()
    shifted[np.diag_indices_from(shifted)] += allowed
    with threads_for(len(gram)):
        try:  # much cheaper than eigenvalues, which are for the message
            scipy.linalg.cholesky(shifted, lower=True, overwrite_a=True, check_finite=False)
        except scipy.linalg.LinAlgError:
            smallest = float(scipy.linalg.eigvalsh(gram, subset_by_index=[0, 0], check_finite=False)[0])
            raise ValueError(
                "kernel='precomputed' needs a positive semi-definite matrix X; its smallest eigenvalue is "
                f"{smallest:g}: if X holds distances D, try numpy.exp(-D); similarities become a kernel with their "
                "negative eigenvalues set to zero (numpy.linalg.eigh)."
            ) from None


@kernel({})
class PrecomputedKernel(Expression):
    """Looks up ``K[i, j]`` for inputs that are row positions, (N, 1)."""

    gram: Tensor = setting(lambda value, _: value)  # (N, N)
    in_files = False

    def values(self, x1: Tensor, x2: Tensor, paired: bool) -> Tensor:
        first, second = x1[..., 0].to(torch.int64), x2[..., 0].to(torch.int64)
        return self.gram[first, second] if paired else self.gram[first.unsqueeze(-1), second.unsqueeze(-2)]

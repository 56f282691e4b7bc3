"""A kernel given as a matrix: rows are named by their position in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from sureshot.estimators.readers import Reader
from sureshot.estimators.validation import Columns, check_inputs


class MatrixReader(Reader):
    """Kernel matrices: between labelled rows on fitting, between queries and labelled rows afterwards."""

    def check(self, name: str, X: Any, columns: Columns | None) -> tuple[np.ndarray, Columns]:
        checked, found = check_inputs(name, X, columns)
        if columns is None and checked.shape[0] != checked.shape[1]:
            raise ValueError(f"kernel='precomputed' needs a square matrix X to fit; got shape {checked.shape}.")
        return checked, found

    def keep(self, checked: np.ndarray, fitting: bool) -> np.ndarray:
        """See `Reader.keep`: positions of labelled rows, values of queries."""
        return np.arange(len(checked), dtype=np.float64)[:, None] if fitting else checked


class PrecomputedKernel(Kernel):
    """Looks up ``K[i, j]`` for inputs that are row positions, (N, 1)."""

    gram: Tensor  # (N, N)

    def __init__(self, gram: Tensor) -> None:
        super().__init__()
        self.register_buffer("gram", gram)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """The block (N1, N2), or the diagonal (N1,)."""
        first, second = x1[..., 0].to(torch.int64), x2[..., 0].to(torch.int64)
        return self.gram[first, second] if diag else self.gram[first.unsqueeze(-1), second.unsqueeze(-2)]

"""Types of what users pass, so that a type checker sees wrong arguments; what comes is checked all the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor


class SparseRows(Protocol):
    """A sparse matrix or array of scipy, which has no types of its own."""

    def tocsr(self, copy: bool = ...) -> Any: ...


Rows = NDArray[Any] | pd.DataFrame | Tensor | Sequence[Sequence[Any]] | Sequence[NDArray[Any]] | SparseRows
"""Rows (n, D)."""

Labels = NDArray[Any] | pd.Series | Tensor | Sequence[Any]
"""One for each row, (n,): text, numbers or truth values."""

Weights = NDArray[Any] | pd.Series | Tensor | Sequence[float] | float
"""One for each row, (n,), or one for all."""

RandomState = int | np.integer | np.random.RandomState
"""A seed, or a generator that moves on."""

ByLabel = str | Mapping[Any, float] | NDArray[Any] | Sequence[float]
"""A name, a number for each class by its label, or numbers in the order of the classes."""

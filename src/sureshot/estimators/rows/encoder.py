"""Rows for a network: what shapes it takes, how pixels come to lie in [0, 1], and their embeddings.

A network has a shape of one row: (channels, height, width) of an image, (length, channels) of a sequence,
(width,) of an embedding. Rows may come in that shape, as images (height, width) where there is one channel, as images
(height, width, channels) where that cannot be mistaken, or flattened to one line of numbers, channels first.

Images of bytes (uint8, 0 to 255) are divided by 255. All other images must lie in [0, 1] already: a float image of
0 to 255 would pass the network without an error and mean nothing.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from sureshot.data.remembered import Remembered
from sureshot.estimators.rows.preprocessing import within_range
from sureshot.estimators.rows.readers import Reader
from sureshot.estimators.rows.validation import Columns, as_array, check_inputs, validated
from sureshot.networks.backbones.base import describe
from sureshot.progress import tracked
from sureshot.warned import warn

EMBEDDING_BATCH_SIZE = 64
LARGEST_EMBEDDING = 1e30  # embeddings are kept in single precision, whose numbers end at 3e38


@dataclass(frozen=True)
class Encoder(Reader):
    """A reader that keeps what a network makes of rows."""

    reading: Remembered | None = field(default=None, kw_only=True)

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Of one row."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the network is."""

    @abstractmethod
    def embed(self, rows: torch.Tensor) -> torch.Tensor:
        """Embeddings (n, D) of rows (n, *shape) in double precision."""

    @property
    def exact(self) -> bool:
        """Whether what is kept has all digits, as rows that no network has changed may have."""
        return False

    def taught(self, X: Any, sample_weight: Any) -> Reader:
        """With how X was read."""
        return replace(self, reading=Remembered.of(X))

    def check(self, name: str, X: Any, columns: Columns | None) -> tuple[np.ndarray, Columns]:
        return check_rows(name, X, self.shape, columns)

    def keep(self, checked: np.ndarray, fitting: bool) -> np.ndarray:
        """Embeddings (n, D), float64 with the digits of float32 unless they are `exact`."""
        parts = []
        with torch.no_grad():
            starts = range(0, len(checked), EMBEDDING_BATCH_SIZE)
            for start in tracked(starts, "embedding rows", len(starts)):
                block = as_rows(checked[start : start + EMBEDDING_BATCH_SIZE], self.shape)
                parts.append(self.embed(block.to(self.device)).cpu())
        embedded = within_range(torch.cat(parts).numpy(), LARGEST_EMBEDDING)
        return embedded if self.exact else embedded.astype(np.float32).astype(np.float64)


def check_rows(name: str, X: Any, shape: tuple[int, ...], columns: Columns | None) -> tuple[np.ndarray, Columns]:
    """Rows (n, width) for a backbone of this input shape, and their columns; bytes stay bytes until `as_rows`."""
    is_image = len(shape) == 3
    array = as_array(X) if isinstance(X, torch.Tensor) else X
    dimensions = np.ndim(array)
    if dimensions > 2:
        array = _flattened(np.asarray(array), shape)
    elif dimensions == 2 and np.shape(array)[1] != math.prod(shape):
        raise ValueError(_wrong_shape(shape, f"rows of {np.shape(array)[1]} features"))
    if not is_image:
        return check_inputs(name, _as_numbers(array), columns, only_numbers=True)
    if np.asarray(array).dtype == np.uint8:
        if np.max(np.asarray(array), initial=0) == 1:
            warn(
                "images are uint8, which is taken for 0 to 255, but none has a value above 1, so all are next to "
                "black: use X.astype(float) if 1 is white.",
            )
        return validated(name, array, columns, dtype=np.uint8)
    checked, found = validated(name, array, columns, dtype=np.float64, ensure_all_finite=False)
    bad = np.flatnonzero(~np.isfinite(checked).all(axis=1))
    if len(bad):
        raise ValueError(
            f"Input X contains NaN or infinity in {len(bad)} images, the first of them row {bad[0]}: drop those images."
        )
    if checked.min() < 0 or checked.max() > 1:
        raise ValueError(
            f"images must be uint8 (0 to 255) or lie in [0, 1], but X has {np.asarray(array).dtype} values from "
            f"{checked.min():g} to {checked.max():g}: divide bytes by 255 (in Python, arrays of numpy.uint8 are taken "
            "as they are)."
        )
    return checked, found


def _as_numbers(X: Any) -> Any:
    """A DataFrame of objects that are numbers as numbers; all else as it is."""
    if not isinstance(X, pd.DataFrame):
        return X
    try:
        return X.astype(np.float64)
    except (TypeError, ValueError):  # which `check_inputs` names
        return X


def as_rows(rows: np.ndarray, shape: tuple[int, ...]) -> torch.Tensor:
    """Checked rows (n, width) as a float64 tensor (n, *shape), bytes in [0, 1]."""
    limited = rows if rows.dtype == np.uint8 else within_range(rows)
    # A copy: rows may be read-only, or lie in memory in another order.
    values = torch.tensor(np.ascontiguousarray(limited), dtype=torch.float64).unflatten(1, shape)
    return values / 255 if rows.dtype == np.uint8 else values


def _flattened(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Images or sequences as rows, channels first."""
    came = array.shape[1:]
    if came == shape:
        return array.reshape(len(array), math.prod(shape))
    if len(shape) == 3 and came == (*shape[1:], shape[0]):
        return np.moveaxis(array, -1, 1).reshape(len(array), math.prod(shape))
    if len(shape) == 3 and shape[0] == 1 and came == shape[1:]:
        return array.reshape(len(array), math.prod(shape))
    raise ValueError(_wrong_shape(shape, f"X of shape {array.shape}"))


def _wrong_shape(shape: tuple[int, ...], came: str) -> str:
    whole = (
        f"(n, {', '.join(map(str, shape))}) or flattened to (n, {math.prod(shape)})"
        if len(shape) > 1
        else f"(n, {shape[0]})"
    )
    return f"the network takes {describe(shape)}, X of shape {whole}, but {came} came: use the network's inputs."

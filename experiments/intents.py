"""Sets of embeddings of one source, easy and hard: CLINC150 intents, or groups of them as classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def grouped(x: Array, y: Array, way: int, size: int, seed: int) -> tuple[Array, Array]:
    """Rows of classes that the seed draws, so many of them together as one of `way` classes."""
    n_classes = int(y.max()) + 1
    chosen = np.random.default_rng(seed).choice(n_classes, way * size, replace=False)
    number = np.full(n_classes, -1)
    number[chosen] = np.arange(way * size) % way
    among = number[y] >= 0
    return x[among], number[y[among]]


def named(way: int, size: int) -> str:
    """What such a set is called."""
    return f"{way} intents" if size == 1 else f"{way} groups of {size} intents"

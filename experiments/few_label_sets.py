"""Sets that few labels are drawn from: tables, and CLINC150 with single intents, or groups of them, as classes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.uci import load
from sureshot.data.clinc150 import load_clinc150

Array = NDArray[Any]

TABLES, INTENTS, GROUPS = "tables", "intents", "groups of intents"


@dataclass(frozen=True)
class FewLabelSet:
    """A table, or embeddings of CLINC150 with `way` classes of `size` intents each."""

    name: str
    way: int = 0  # 0 for a table
    size: int = 0

    @classmethod
    def of_intents(cls, pairs: Iterable[tuple[int, int]]) -> list[FewLabelSet]:
        """From pairs of `way` and `size`."""
        return [cls(named(way, size), way, size) for way, size in pairs]

    @property
    def kind(self) -> str:
        """The group of sets that it is averaged with."""
        return TABLES if not self.way else INTENTS if self.size == 1 else GROUPS

    def rows(self, data_root: Path | None) -> tuple[Array, Array]:
        """All rows and labels; gaps are filled with the mean of the column."""
        if self.way:
            clinc = load_clinc150(data_root)
            return clinc.x_train, clinc.y_train
        x, y = load(self.name, data_root)
        return np.where(np.isnan(x), np.nanmean(x, axis=0), x), y

    def of_seed(self, x: Array, y: Array, seed: int) -> tuple[Array, Array]:
        """The rows of the classes that a seed draws, and their labels."""
        return grouped(x, y, self.way, self.size, seed) if self.way else (x, y)


def grouped(x: Array, y: Array, way: int, size: int, seed: int) -> tuple[Array, Array]:
    """Rows of `way` classes, each made of `size` intents that the seed draws."""
    n_classes = int(y.max()) + 1
    chosen = np.random.default_rng(seed).choice(n_classes, way * size, replace=False)
    number = np.full(n_classes, -1)
    number[chosen] = np.arange(way * size) % way
    among = number[y] >= 0
    return x[among], number[y[among]]


def named(way: int, size: int) -> str:
    """The name of such a set."""
    return f"{way} intents" if size == 1 else f"{way} groups of {size} intents"


def drawn(x: Array, y: Array, shots: int, n_test: int, seed: int) -> tuple[Array, Array, Array, Array]:
    """Training rows and labels, test rows and labels (at most `n_test`), of the classes with enough rows."""
    generator = np.random.default_rng(seed)
    classes, counts = np.unique(y, return_counts=True)
    parts = [generator.permutation(np.flatnonzero(y == label)) for label in classes[counts >= shots + 2]]
    train = np.concatenate([part[:shots] for part in parts])
    test = generator.permutation(np.concatenate([part[shots:] for part in parts]))[:n_test]
    return x[train], y[train], x[test], y[test]

"""Sets that few labels are drawn from: tables, and CLINC150 as intents or groups of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from experiments.uci import load
from sureshot.data.clinc150 import load_clinc150
from sureshot.demo.peers import logistic_regression

Array = NDArray[Any]

OURS, LOGISTIC = "sureshot", "logistic regression"
TABLES, INTENTS, GROUPS = "tables", "intents", "groups of intents"


@dataclass(frozen=True)
class FewLabelSet:
    """A table, or embeddings of so many classes that are so many intents each."""

    name: str
    way: int = 0  # 0 of a table
    size: int = 0

    @classmethod
    def of_intents(cls, pairs: Iterable[tuple[int, int]]) -> list[FewLabelSet]:
        """By numbers of classes, and of intents that make one."""
        return [cls(named(way, size), way, size) for way, size in pairs]

    @property
    def kind(self) -> str:
        """Which mean it is part of."""
        return TABLES if not self.way else INTENTS if self.size == 1 else GROUPS

    def peer(self) -> Any:
        """Logistic regression, on standardised columns of tables."""
        return logistic_regression() if self.way else make_pipeline(StandardScaler(), logistic_regression())

    def rows(self, data_root: Path | None) -> tuple[Array, Array]:
        """All rows with their labels, means in place of gaps."""
        if self.way:
            clinc = load_clinc150(data_root)
            return clinc.x_train, clinc.y_train
        x, y = load(self.name, data_root)
        return np.where(np.isnan(x), np.nanmean(x, axis=0), x), y

    def of_seed(self, x: Array, y: Array, seed: int) -> tuple[Array, Array]:
        """Of all rows those of the classes that the seed draws."""
        return grouped(x, y, self.way, self.size, seed) if self.way else (x, y)


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


def drawn(x: Array, y: Array, shots: int, n_test: int, seed: int) -> tuple[Array, Array, Array, Array]:
    """Rows to learn from with labels, others to test on with theirs, at most `n_test`; of classes that have enough."""
    generator = np.random.default_rng(seed)
    classes, counts = np.unique(y, return_counts=True)
    parts = [generator.permutation(np.flatnonzero(y == label)) for label in classes[counts >= shots + 2]]
    train = np.concatenate([part[:shots] for part in parts])
    test = generator.permutation(np.concatenate([part[shots:] for part in parts]))[:n_test]
    return x[train], y[train], x[test], y[test]

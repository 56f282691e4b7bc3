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

from experiments.intents import grouped, named
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

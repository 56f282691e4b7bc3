"""What may be asked of anything that learns classes in sessions, whatever it keeps and however it learns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import numpy as np


@dataclass(frozen=True)
class Memory:
    """How many numbers are kept for later sessions.

    >>> print(Memory(shared=148_225, of_classes=770, n_classes=2))
    148,995 numbers: 770 for 2 classes (385 each), 148,225 for all of them
    """

    shared: int  # whatever the number of classes is
    of_classes: int  # for all classes together
    n_classes: int

    @property
    def total(self) -> int:
        """Of all classes and what they share."""
        return self.shared + self.of_classes

    @property
    def per_class(self) -> float:
        """Numbers kept for a class, on average."""
        return self.of_classes / self.n_classes

    def __str__(self) -> str:
        each = f"{self.per_class:,.1f}".removesuffix(".0") + " each"
        even = "" if self.of_classes % self.n_classes == 0 else " on average"
        classes = f"{self.n_classes:,} class{'es' if self.n_classes > 1 else ''}"
        return (
            f"{self.total:,} numbers: {self.of_classes:,} for {classes} ({each}{even}), {self.shared:,} for all of them"
        )


class SessionMethod(ABC):
    """A classifier of classes that come in sessions."""

    classes_: np.ndarray  # labels of the columns, in sorted order, whenever each came

    @abstractmethod
    def fit(self, X: Any, y: Any, unseen: Any = None) -> Self:
        """Learn the base session: rows X (n, ...) with labels y (n,). What was known before is dropped.

        Of features, `unseen` (n,) says which rows their network was not trained on, if that is known; methods that have
        no use for it do without.
        """

    @abstractmethod
    def partial_fit(self, X: Any, y: Any) -> Self:
        """Learn a later session, of new classes or more rows of old ones; a first call is `fit`."""

    @abstractmethod
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (n, C) of all classes seen so far, in the order of ``classes_``."""

    @abstractmethod
    def outlier_score(self, X: Any) -> np.ndarray | None:
        """How little each row is like any class seen so far (n,); larger is less like any. None if it has none."""

    @abstractmethod
    def memory(self) -> Memory | None:
        """What is kept between sessions; None if it does not say."""

"""What a model keeps of how its first file was read, so that later files are read likewise.

It travels as plain values among the attributes of the DataFrame of features, from the file to the fit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from sureshot.data.delimited import TextFormat

ATTRIBUTE = "sureshot.reading"


@dataclass(frozen=True)
class Remembered:
    """What was stated of a file or found out in it, and holds for files like it."""

    header: bool = True  # whether the first line has names
    missing: tuple[str, ...] = ()  # further cells that are gaps
    comma: tuple[str, ...] = ()  # columns of numbers with decimal commas and nothing between thousands
    fold_case: bool = False  # whether labels that differ in case only are one class
    separator: str | None = None  # if it was stated
    sheet: str | None = None  # likewise

    @classmethod
    def of(cls, X: Any) -> Remembered | None:
        """That of the file from which a DataFrame was read; None of anything else."""
        return cls.from_json(X.attrs.get(ATTRIBUTE)) if isinstance(X, pd.DataFrame) else None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, stored: Any) -> Remembered | None:
        """What `to_json` wrote, None for None; ValueError for anything else."""
        if stored is None:
            return None
        given: dict[str, Any] = stored if isinstance(stored, dict) else {}
        right = given.keys() == _TYPES.keys() and all(isinstance(given[name], kind) for name, kind in _TYPES.items())
        texts = [text for value in given.values() if isinstance(value, list) for text in value]
        if not right or not all(isinstance(text, str) for text in texts):
            raise ValueError("malformed way of reading")
        return cls(**given | {name: tuple(given[name]) for name in ("missing", "comma")})

    def completing(self, stated: TextFormat) -> TextFormat:
        """What is stated of a later file, completed by what holds for it."""
        header = False if stated.header is None and not self.header else stated.header
        missing = tuple(dict.fromkeys((*stated.missing, *self.missing)))
        separator = None if self.separator == stated.decimal else self.separator
        return replace(stated, header=header, missing=missing, usual_separator=separator, usual_sheet=self.sheet)


_TYPES: dict[str, Any] = {
    **dict.fromkeys(("header", "fold_case"), bool),
    **dict.fromkeys(("missing", "comma"), list),
    **dict.fromkeys(("separator", "sheet"), str | None),
}


def spelt(label: str) -> str:
    """A label without regard to case and runs of blanks."""
    return " ".join(label.casefold().split())


def folded(labels: np.ndarray, known: Iterable[str] = ()) -> np.ndarray:
    """Labels (n,) of text, those that differ in case only as one: a known one, else the most frequent.

    Of equally frequent ones it is the first in the order of text.
    """
    if labels.dtype.kind != "U":
        return labels
    texts, counts = np.unique(labels, return_counts=True)
    chosen: dict[str, str] = {}
    for place in np.lexsort((np.arange(len(texts)), -counts)):
        chosen.setdefault(spelt(str(texts[place])), str(texts[place]))
    chosen |= {spelt(str(label)): str(label) for label in known}
    return np.array([chosen[spelt(str(label))] for label in labels.tolist()], dtype=str)

"""A table of a report: which labelled rows drove the answers that are wrong, or least sure."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sureshot.cli.reading import take
from sureshot.report import Table

if TYPE_CHECKING:
    from sureshot.estimators.base import IncrementalClassifier

N_ANSWERS = 12  # of either kind
N_DRIVING = 3  # labelled rows for each

_NOTE = (
    "Of each answer that is wrong, the surest first, and of the least sure ones: the three labelled rows with the "
    "largest shares in how much the latent of the first class is above that of the second; a negative share spoke for "
    "the second. Shares may be larger than their sum. A wrong label among these rows is worth looking for."
)
_WITHOUT_IDS = " The rows have no names: fit with --id to see which they are."


@dataclass(frozen=True)
class Driven:
    """An answer, and what drove it."""

    row: Any  # its name
    true: Any
    classes: tuple[Any, Any]  # the most probable one and the second
    confidence: float
    rows: tuple[tuple[Any, Any, float], ...]  # id or None, label, share

    @property
    def wrong(self) -> bool:
        """Whether the answer is not the label."""
        return bool(self.true != self.classes[0])


def driven_answers(
    model: IncrementalClassifier,
    X: Any,
    y: np.ndarray,  # (n,)
    names: np.ndarray,  # (n,) of the rows
    probabilities: np.ndarray,  # (n, C)
) -> list[Driven]:
    """The wrong answers that are surest, and those that are least sure; none where influence is not known."""
    from sureshot.estimators.fitted import NoInfluence

    sure = probabilities.max(1)
    wrong = np.flatnonzero(model.classes_[probabilities.argmax(1)] != y)
    surest = wrong[np.argsort(-sure[wrong], kind="stable")][:N_ANSWERS]
    chosen = np.union1d(surest, np.argsort(sure, kind="stable")[:N_ANSWERS])
    if not len(chosen) or not model.has_rows_:
        return []
    try:
        found = model.influence(take(X, chosen), N_DRIVING)
    except NoInfluence:
        return []
    return [
        Driven(
            names[row],
            y[row],
            tuple(found.classes[k].tolist()),
            float(sure[row]),
            tuple(zip(found.row_ids[k].tolist(), found.labels[k].tolist(), found.shares[k].tolist(), strict=True)),
        )
        for k, row in enumerate(chosen.tolist())
    ]


def table_of_driving_rows(answers: Sequence[Driven]) -> tuple[Table, ...]:
    """One table, or none where nothing is known."""
    wrong = sorted((one for one in answers if one.wrong), key=lambda one: -one.confidence)[:N_ANSWERS]
    others = sorted((one for one in answers if one not in wrong), key=lambda one: one.confidence)[:N_ANSWERS]
    if not wrong and not others:
        return ()
    width = max(len(one.rows) for one in [*wrong, *others])
    lines = []
    for one in [*wrong, *others]:
        driving = [f"{_called(*row)} {row[2]:+.3g}" for row in one.rows]
        driving += [""] * (width - len(driving))
        first, second = one.classes
        lines.append((str(one.row), str(one.true), f"{_apart(first)} ({one.confidence:.3f})", str(second), *driving))
    columns = ("row", "true", "predicted", "second", *(f"driving row {k + 1}" for k in range(width)))
    nameless = all(row[0] is None for one in answers for row in one.rows)
    note = _NOTE + (_WITHOUT_IDS if nameless else "")
    return (Table(columns, tuple(lines), note=note, heading="What drove wrong and unsure answers"),)


def _called(name: Any, label: Any, share: float) -> str:
    return f"{'a row' if name is None else _apart(name)} of {_apart(label)}"


def _apart(name: Any) -> str:
    """A name inside a longer text; one that is read from right to left takes nothing beside it along."""
    text = str(name)
    if any(unicodedata.bidirectional(letter) in ("R", "AL") for letter in text):
        return f"\N{FIRST STRONG ISOLATE}{text}\N{POP DIRECTIONAL ISOLATE}"
    return text

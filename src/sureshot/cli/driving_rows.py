"""Which labelled rows drove answers; as tables of a report, those wrong or least sure, and what misleads most."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sureshot.cli.reading import take

if TYPE_CHECKING:
    from sureshot.estimators.classes.classifier_base import IncrementalClassifier
    from sureshot.estimators.classes.influence import NamedRows
    from sureshot.report import Table

N_ANSWERS = 12  # of either kind
N_DRIVING = 3  # labelled rows for and against each
N_MISLEADING = 12
MOST_ASKED = 500  # answers, evenly chosen, by which rows are judged
LEAST_FALL = 0.0005  # in nats; what is shown as 0.000 drove nothing

_NOTE = (
    "Of each answer that is wrong, the surest first, and of the least sure ones: the labelled rows that spoke most for "
    "it, and those that spoke most against it, with how much its log probability falls or rises, in nats, if the row "
    "is left out and all settings stay. Equal rows are left out together, unless they have names."
)
_WITHOUT_IDS = " The rows have no names: fit with --id to see which they are."
_MISLEADING = (
    "Labelled rows without which answers would be better: by how many nats the log probabilities of the true classes "
    "rise, all judged answers together, if the row is left out. Look for wrong labels here first."
)


@dataclass(frozen=True)
class Spoke:
    """A labelled row that an answer would be another without."""

    name: Any  # or None
    label: Any
    fall: float  # of a log probability in nats, if the row is left out


@dataclass(frozen=True)
class Driven:
    """An answer, and what drove it."""

    row: Any  # its name
    true: Any
    predicted: Any
    confidence: float
    proponents: tuple[Spoke, ...]
    opponents: tuple[Spoke, ...]

    @property
    def wrong(self) -> bool:
        """Whether the answer is not the label."""
        return bool(self.true != self.predicted)


@dataclass(frozen=True)
class Drivers:
    """Of the answers of a model, or of several that share their labelled rows."""

    answers: tuple[Driven, ...] = ()
    misled: tuple[Spoke, ...] = ()  # what rows with names do to the true classes of all answers together

    def __add__(self, others: Drivers) -> Drivers:
        total: dict[tuple[Any, Any], float] = {}
        for one in (*self.misled, *others.misled):
            total[one.name, one.label] = total.get((one.name, one.label), 0.0) + one.fall
        misled = tuple(Spoke(*key, fall) for key, fall in total.items())
        return Drivers(self.answers + others.answers, misled)


def reasons_for(model: IncrementalClassifier, X: Any, n_rows: int) -> list[tuple[Spoke, ...]]:
    """Of each answer the labelled rows that spoke most for it, fewer where fewer did (`NoInfluence`)."""
    found = model.influence(X, n_rows).proponents
    return [tuple(one for one in _named(found, k) if one.fall > 0) for k in range(len(found.falls))]


def drivers_of(
    model: IncrementalClassifier,
    X: Any,
    y: np.ndarray,  # (n,)
    names: np.ndarray,  # (n,) of the rows
    probabilities: np.ndarray,  # (n, C)
) -> Drivers:
    """Of the wrong answers that are surest, and those that are least sure; nothing where influence is not known."""
    from sureshot.estimators.classes.class_fitted import NoInfluence

    sure = probabilities.max(1)
    wrong = np.flatnonzero(model.classes_[probabilities.argmax(1)] != y)
    surest = wrong[np.argsort(-sure[wrong], kind="stable")][:N_ANSWERS]
    chosen = np.union1d(surest, np.argsort(sure, kind="stable")[:N_ANSWERS])
    if not len(chosen):
        return Drivers()
    try:
        found = model.influence(take(X, chosen), N_DRIVING)
    except NoInfluence:
        return Drivers()
    predicted = found.classes.tolist()
    answers = [
        Driven(
            names[row],
            y[row],
            predicted[k],
            float(sure[row]),
            tuple(one for one in _named(found.proponents, k) if one.fall >= LEAST_FALL),
            tuple(one for one in _named(found.opponents, k) if one.fall <= -LEAST_FALL),
        )
        for k, row in enumerate(chosen.tolist())
    ]
    asked = np.unique(np.linspace(0, len(y) - 1, MOST_ASKED).astype(np.int64))
    misled = _named(model.influence(take(X, asked), 1, y=y[asked]).together)
    return Drivers(tuple(answers), tuple(one for one in misled if one.name is not None))


def _named(rows: NamedRows, answer: Any = ...) -> tuple[Spoke, ...]:
    """The rows of one answer, or all."""
    parts = (part[answer].tolist() for part in (rows.row_ids, rows.labels, rows.falls))
    return tuple(Spoke(*row) for row in zip(*parts, strict=True))


def tables_of_driving_rows(drivers: Drivers) -> tuple[Table, ...]:
    """Of answers and of the rows that misled them, as far as anything is known."""
    from sureshot.report import Table

    answers = drivers.answers
    wrong = sorted((one for one in answers if one.wrong), key=lambda one: -one.confidence)[:N_ANSWERS]
    others = sorted((one for one in answers if one not in wrong), key=lambda one: one.confidence)[:N_ANSWERS]
    if not wrong and not others:
        return ()
    lines = [
        (
            str(one.row),
            str(one.true),
            f"{_apart(one.predicted)} ({one.confidence:.3f})",
            _listed(one.proponents),
            _listed(one.opponents),
        )
        for one in [*wrong, *others]
    ]
    nameless = all(row.name is None for one in answers for row in (*one.proponents, *one.opponents))
    columns = ("row", "true", "predicted", "spoke for it", "spoke against it")
    note = _NOTE + (_WITHOUT_IDS if nameless else "")
    tables = [Table(columns, tuple(lines), note=note, heading="What drove wrong and unsure answers")]
    misled = sorted((one for one in drivers.misled if one.fall <= -LEAST_FALL), key=lambda one: one.fall)
    if misled:
        rows = tuple((str(one.name), str(one.label), -one.fall) for one in misled[:N_MISLEADING])
        tables.append(
            Table(
                ("labelled row", "label", "takes (nats)"),
                rows,
                note=_MISLEADING,
                heading="Labelled rows that mislead most",
            )
        )
    return tuple(tables)


def _listed(rows: Sequence[Spoke]) -> str:
    """Such as "f5 of setosa: 0.213", a line for each; a dash for none."""
    named = ("a row" if one.name is None else _apart(one.name) for one in rows)
    spoken = [f"{name} of {_apart(one.label)}: {abs(one.fall):.3f}" for name, one in zip(named, rows, strict=True)]
    return "\n".join(spoken) or "–"


def _apart(name: Any) -> str:
    """A name inside a longer text; one that is read from right to left takes nothing beside it along."""
    text = str(name)
    if any(unicodedata.bidirectional(letter) in ("R", "AL") for letter in text):
        return f"\N{FIRST STRONG ISOLATE}{text}\N{POP DIRECTIONAL ISOLATE}"
    return text

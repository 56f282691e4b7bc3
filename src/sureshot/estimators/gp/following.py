"""How labels that come were predicted before they were learnt from, beside what left-out rows had promised.

Once the latest lose more than promised, by more than chance, the world is not what settings were chosen for.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch

from sureshot.data.checks import listed
from sureshot.estimators.classes.class_fitted import ClassFitted
from sureshot.estimators.classes.temperature import log_probability
from sureshot.estimators.rows.labelled_rows import LabelledRows, part_of

LATEST = 500  # rows that are compared with what was promised,
FEWEST = 30  # and as many at least
ERRORS = 3.0  # standard errors from which on they are worse, and columns others
NAMED = 3  # classes and columns


@dataclass(frozen=True)
class Followed:
    """Log losses in nats."""

    promised: float  # the mean of left-out rows; NaN: unknown
    spread: float = 0.0  # and their standard deviation, where it is known
    losses: np.ndarray = field(default_factory=lambda: np.zeros(0))  # (m,), of the latest rows, the last one last
    labels: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # (m,), their class numbers
    told: bool = False  # whether somebody knows that they are worse

    def check_parts(self) -> None:
        """ValueError for parts that do not fit together."""
        if self.losses.shape != self.labels.shape or self.losses.ndim != 1 or not self.spread >= 0:
            raise ValueError("malformed log losses of the latest rows")

    @property
    def is_worse(self) -> bool:
        """Whether the latest rows lose more than was promised."""
        n = len(self.losses)
        if n < FEWEST:
            return False
        error = max(self.spread, float(self.losses.std())) / n**0.5
        return bool(self.losses.mean() > self.promised + ERRORS * error)

    def after(self, known: ClassFitted, came: LabelledRows) -> Followed:
        """With the last of rows that came, as what was known before them predicts those of its classes."""
        clock, ours = known.reader.clock, came.y < len(known.classes)
        ours[ours] = known.frequencies[came.y[ours]] > 0
        if not ours.any():
            return self
        came = part_of(came, ours)
        order = np.argsort(came.lots if clock is None else came.x[:, clock.place], kind="stable")[-LATEST:]
        x, y = came.x[order], came.y[order]
        x = x if clock is None else clock.now(x)
        with torch.no_grad():
            p = known.answers(known.predictor.moments(known.predictor.inputs(x)), known.temperature).cpu()
            of_label = -log_probability(p[torch.arange(len(y)), torch.from_numpy(y)]).numpy()
        losses, labels = np.append(self.losses, of_label), np.append(self.labels, y)
        return replace(self, losses=losses[-LATEST:], labels=labels[-LATEST:])

    def in_words(self, known: ClassFitted, rows: LabelledRows) -> str:
        """What has changed: how much, in which classes, and where all rows have times in which columns."""
        found = (
            f"the latest {len(self.losses)} labels cost {self.losses.mean():.3f} nats each, where {self.promised:.3f} "
            "were promised when settings were chosen"
        )
        totals = np.bincount(self.labels, self.losses - self.promised, minlength=len(known.classes))
        worst = [k for k in totals.argsort()[::-1][:NAMED] if totals[k] > 0]
        found += f"; mostly those of {listed(known.classes[worst].tolist())}"
        moved = _moved(known, rows.x, len(self.losses))
        return found + (f"; columns that have moved: {', '.join(moved)}" if moved else "")


def _moved(known: ClassFitted, x: np.ndarray, n_latest: int) -> list[str]:
    """Columns of the latest rows whose mean is another than before, in their standard deviations."""
    clock = known.reader.clock
    if clock is None or len(x) < 2 * n_latest:
        return []
    order = np.argsort(x[:, clock.place], kind="stable")
    before, latest = x[order[:-n_latest]], x[order[-n_latest:]]
    deviation = before.std(0)
    away = (latest.mean(0) - before.mean(0)) / np.where(deviation > 0, deviation, np.inf)
    away[clock.place] = 0.0
    names = known.reader.names_of(known.columns) or [str(place) for place in range(len(away))]
    largest = [k for k in np.abs(away).argsort()[::-1][:NAMED] if abs(away[k]) > ERRORS / n_latest**0.5]
    return [f"{names[k]} ({away[k]:+.1f} deviations)" for k in largest]

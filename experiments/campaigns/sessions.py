"""Cells of class-incremental learning: one method through the sessions of one seed.

A cell is small, seconds to minutes, so it has no checkpoint: one that was killed begins anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.campaigns.cells import FAILED, Cell
from experiments.experiment import Progress
from sureshot.evaluation.methods import make_method
from sureshot.evaluation.session_study import SessionStudy
from sureshot.evaluation.sessions import SessionsEvaluation, evaluate_sessions
from sureshot.incremental.session_data import load_sessions

Record = Mapping[str, Any]


@dataclass(frozen=True)
class SessionCell(Cell):
    """A method by name, and the protocol and seed it meets."""

    data: str
    seed: int
    method: str  # as tables call it
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    data_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:  # type: ignore[override]
        """Data, method and seed."""
        method = "-".join("".join(c if c.isalnum() else " " for c in self.method).split())
        return f"{self.data}-{method}-seed{self.seed}"

    @property
    def labels(self) -> dict[str, str | int]:  # type: ignore[override]
        """Data, method and seed."""
        return {"data": self.data, "method": self.method, "seed": self.seed}

    def settings(self) -> dict[str, Any]:
        """Everything that determines the result."""
        found: dict[str, Any] = json.loads(
            json.dumps(
                {
                    "data": self.data,
                    "data_options": dict(self.data_options),
                    "seed": self.seed,
                    "name": self.name,
                    "options": dict(self.options),
                }
            )
        )
        return found

    def notes(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def stale(self, record: Record) -> str | None:
        """Other settings."""
        return None if record.get("settings") == self.settings() else "it was made with other settings"


def run_sessions(root: Path | None, cell: SessionCell, folder: Path, progress: Progress) -> dict[str, Any]:
    """What the record says of a cell."""
    sessions = load_sessions(cell.data, root, seed=cell.seed, **cell.data_options)
    method = make_method(cell.name, cell.seed, **cell.options)
    return {"evaluation": evaluate_sessions(method, sessions, progress).as_dict()}


def study_of(records: Sequence[Record], description: str) -> SessionStudy:
    """The records that have scores, as one study; methods in the order of their first record."""
    found: dict[str, dict[int, SessionsEvaluation]] = {}
    for record in records:
        if FAILED not in record:
            labels = record["labels"]
            evaluation = SessionsEvaluation.from_dict(record["evaluation"])
            found.setdefault(str(labels["method"]), {})[int(labels["seed"])] = evaluation
    return SessionStudy(description, found)


def paired_differences(study: SessionStudy, column: str, method: str, other: str) -> pd.Series:
    """What a method has more than another in a column of the summary, by the seeds that both have."""
    frame = study.summary().pivot(index="seed", columns="method", values=column)
    if method not in frame or other not in frame:
        return pd.Series(dtype=float)
    return (frame[method] - frame[other]).dropna()

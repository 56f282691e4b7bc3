"""Cells of class-incremental learning: one method through the sessions of one seed.

A cell takes seconds to minutes, so it has no checkpoint: after an interruption it starts again. Sessions of images need
a network, which is a cell of its own (`experiments.campaigns.deep`): methods that take embeddings get those of its best
checkpoint, methods that train a network begin with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch

from experiments.campaigns.cells import FAILED, Cell, json_values
from experiments.campaigns.deep import DeepCell
from experiments.campaigns.methods import Record, paired
from experiments.experiment import Progress
from sureshot.deep import held_out_rows
from sureshot.evaluation.encoding import encoded_sessions
from sureshot.evaluation.methods import make_method
from sureshot.evaluation.session_study import SessionStudy
from sureshot.evaluation.sessions import SessionsEvaluation, evaluate_sessions
from sureshot.incremental.session_data import load_sessions
from sureshot.incremental.sessions import Sessions
from sureshot.incremental.trained import TRAINED
from sureshot.networks.checkpoint import BEST_NAME


@dataclass(frozen=True)
class SessionCell(Cell):
    """A method under a protocol and a seed."""

    data: str
    seed: int
    method: str  # as tables call it
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    data_options: Mapping[str, Any] = field(default_factory=dict)
    network: DeepCell | None = None
    aside_only: bool = False  # of the base session show only rows that the network's training kept aside
    budget: str = ""  # of several that a campaign has; part of the key

    @property
    def key(self) -> str:  # type: ignore[override]
        """Data, method and seed, and the budget."""
        method = "-".join("".join(c if c.isalnum() else " " for c in self.method).split())
        return f"{self.data}-{method}-seed{self.seed}" + (f"-{self.budget}" if self.budget else "")

    @property
    def labels(self) -> dict[str, str | int]:  # type: ignore[override]
        """Data, method and seed."""
        return {"data": self.data, "method": self.method, "seed": self.seed}

    def settings(self) -> dict[str, Any]:
        """Everything that determines the result."""
        own = {
            "data": self.data,
            "data_options": dict(self.data_options),
            "seed": self.seed,
            "name": self.name,
            "options": dict(self.options),
        }
        if self.network is not None:
            own |= {"network": self.network.settings(), "aside_only": self.aside_only}
        return json_values(own)


def run_sessions(root: Path | None, cell: SessionCell, folder: Path, progress: Progress) -> dict[str, Any]:
    """Run a cell; the result for its record."""
    sessions = load_sessions(cell.data, root, seed=cell.seed, **cell.data_options)
    method = make_method(cell.name, cell.seed, **cell.options)
    return {"evaluation": evaluate_sessions(method, sessions, progress).as_dict()}


class NetworkSessions:
    """Sessions for cells with a network; its embeddings are cached for the next cell of the same network."""

    def __init__(
        self,
        load: Callable[[str], Sessions],  # by name, of images
        device: str,
    ) -> None:
        self._load, self._device = load, device
        self._encoded: tuple[tuple[str, Path], Sessions] | None = None

    def __call__(
        self,
        cell: SessionCell,
        checkpoint: Path,  # of its network
    ) -> Sessions:
        """Images for a method that trains the network, embeddings for others."""
        if cell.name in TRAINED:
            return self._load(cell.data)
        key = (cell.data, checkpoint)
        if self._encoded is None or self._encoded[0] != key:
            self._encoded = (key, encoded_sessions(self._load(cell.data), checkpoint, self._device))
        assert cell.network is not None
        told = _with_unseen(self._encoded[1], cell.network.validation, cell.network.training.seed)
        return _only_unseen(told) if cell.aside_only else told


def run_network_sessions(
    sessions_of: NetworkSessions, device: str, cell: SessionCell, folder: Path, progress: Progress
) -> dict[str, Any]:
    """Run a cell whose network has been trained; the result for its record."""
    assert cell.network is not None
    checkpoint = folder.parent / cell.network.key / BEST_NAME
    own = {"checkpoint": str(checkpoint), "device": device} if cell.name in TRAINED else {}
    method = make_method(cell.name, cell.seed, **cell.options, **own)
    return {"evaluation": evaluate_sessions(method, sessions_of(cell, checkpoint), progress).as_dict()}


def _with_unseen(sessions: Sessions, share: float, seed: int) -> Sessions:
    """The sessions with `unseen` rows marked: those of the base session that training held out, by share and seed."""
    rows = torch.tensor(sessions.sessions[0].rows)
    codes = torch.unique(sessions.train.y[rows], return_inverse=True)[1]
    unseen = torch.ones(len(sessions.train), dtype=torch.bool)
    unseen[rows] = held_out_rows(codes, share, seed)
    return replace(sessions, unseen=unseen)


def _only_unseen(sessions: Sessions) -> Sessions:
    """The sessions with only those rows in the base session that the network was not trained on."""
    first, *later = sessions.sessions
    assert sessions.unseen is not None
    kept = tuple(row for row in first.rows if sessions.unseen[row])
    return replace(sessions, sessions=(replace(first, rows=kept), *later))


def study_of(records: Sequence[Record], description: str) -> SessionStudy:
    """The records with scores as one study; methods in the order of their first record."""
    found: dict[str, dict[int, SessionsEvaluation]] = {}
    for record in records:
        if FAILED not in record:
            labels = record["labels"]
            evaluation = SessionsEvaluation.from_dict(record["evaluation"])
            found.setdefault(str(labels["method"]), {})[int(labels["seed"])] = evaluation
    return SessionStudy(description, found)


class Gap(NamedTuple):
    """The difference between two methods, paired over the seeds that both have."""

    mean: float
    error: float  # its standard error
    seeds: int

    def __str__(self) -> str:
        """In points."""
        return f"{100 * self.mean:.1f} ± {100 * self.error:.1f} points"


def gap_between(frame: pd.DataFrame, column: str, method: str, other: str) -> Gap | None:
    """In a column of rows with their method and seed; None with fewer than two seeds."""
    gap = Gap(*paired(frame, column, method, other, by="seed"))
    return gap if gap.seeds > 1 else None


def wide(means: pd.DataFrame, columns: str, values: str) -> pd.DataFrame:
    """Methods in their order, a column for each session, number of classes or scale."""
    found = means.pivot(index="method", columns=columns, values=values).loc[list(dict.fromkeys(means["method"]))]
    found.columns = pd.Index([f"{column:g}" for column in found.columns])
    return found.reset_index()


def cost_of(frame: pd.DataFrame) -> pd.DataFrame:
    """Memory and time of the methods."""
    columns = ["method", "numbers_per_class", "shared_numbers", "learn_seconds", "predict_seconds"]
    return frame[columns].rename(columns=lambda name: name.replace("_", " "))


def best_and_surest(rows: Sequence[Mapping[Any, Any]], things: str, kind: str) -> str:
    """The most accurate method and that of lowest NLL after the last session, in two sentences."""
    best, surest = max(rows, key=lambda row: row["accuracy"]), min(rows, key=lambda row: row["nll"])
    return (
        f"After the last session {best['method']} is right about {best['accuracy']:.1%} of the {things} (base {kind} "
        f"{best['base_accuracy']:.1%}, novel {best['novel_accuracy']:.1%}). The lowest negative log-likelihood is that "
        f"of {surest['method']}, {surest['nll']:.3f} nats at an expected calibration error of {surest['ece']:.3f}."
    )

"""Cells of learners of numbers: train one on functions, evaluate its best checkpoint on others.

Every cell meets the same tasks, which its evaluation's seed decides. Where the true kernel of each task is known, the
exact process answers them too, and the difference is kept, paired by task.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.campaigns.cells import FAILED, Cell, json_values
from experiments.experiment import Progress, Table
from sureshot.meta.evaluation.functions import FunctionEvaluation, evaluate_functions
from sureshot.meta.evaluation.shown import bands, completed_images
from sureshot.meta.functions import FunctionSource, load_functions
from sureshot.meta.functions.images import Images
from sureshot.meta.learners.functions import AdaptsToFunctions
from sureshot.meta.processes import ExactProcess
from sureshot.meta.training import load_checkpoint, train
from sureshot.meta.training.config import FunctionTrainingConfig
from sureshot.networks.checkpoint import LAST_NAME

EXACT = "exact process"
"""What is not trained: the process that each task was drawn from."""


def steps_of(steps: float, tasks_per_step: int, seed: int, **rates: float) -> dict[str, Any]:
    """The section ``training`` of so many steps, the last fifth at a tenth of the rates; no checkpoints on the way."""
    episodes = max(1, round(steps)) * tasks_per_step
    return {
        "episodes": episodes,
        "episodes_per_step": tasks_per_step,
        **rates,
        "milestones": [max(1, 4 * episodes // 5)],
        "seed": seed,
        "checkpoint_every": episodes,
        "log_every": episodes // 10 + 1,
    }


@dataclass(frozen=True)
class FunctionCell(Cell):
    """A learner on one kind of functions."""

    key: str
    labels: dict[str, str | int]  # functions, learner, seed
    data: Mapping[str, Any]  # name and options of the functions
    training: FunctionTrainingConfig | None  # None for `EXACT`
    sizes: tuple[int, ...]  # of contexts
    n_tasks: int
    targets: int
    shown: bool  # whether what a picture needs is kept
    evaluation_seed: int = 0

    def settings(self) -> dict[str, Any]:
        """Everything that determines the result."""
        training = None if self.training is None else self.training.as_dict()
        own = {name: getattr(self, name) for name in ("sizes", "n_tasks", "targets", "evaluation_seed")}
        return json_values({**own, "data": dict(self.data), "training": training})

    def stale(self, record: Mapping[str, Any]) -> str | None:
        """What a picture needs may be there for nothing, and not lack."""
        lacking = self.shown and not {"shown", FAILED} & set(record)
        return super().stale(record) or ("it has nothing for a picture" if lacking else None)


def run_function_cell(data_root: Path | None, cell: FunctionCell, folder: Path, progress: Progress) -> dict[str, Any]:
    """Train (or resume training) and evaluate; the result for the record."""
    data = load_functions(cell.data["name"], data_root, **cell.data["options"])
    outcome: dict[str, Any] = {}
    method: AdaptsToFunctions
    if cell.training is None:
        method = ExactProcess.of(data.test)
    else:
        last = folder / LAST_NAME
        resume = last.exists() and load_checkpoint(last).config == cell.training.as_dict()
        tell = _part(progress, 0.0, 0.8)
        trained = train(cell.training, folder, progress=tell, resume=resume, data=data)
        method = load_checkpoint(trained.best).build_process()
        outcome["training"] = {
            "best_episodes": trained.best_episodes,
            "validation": None if trained.scores is None else asdict(trained.scores),
            "seconds_of_last_run": trained.seconds,
        }
    started = time.perf_counter()
    found = _evaluated(method, data.test, cell, _part(progress, 0.8, 0.95))
    outcome["evaluation"] = found.as_dict()
    outcome["evaluation_seconds"] = time.perf_counter() - started
    if cell.data["name"] == "functions":
        best = _evaluated(ExactProcess.of(data.test), data.test, cell, _part(progress, 0.95, 1.0))
        outcome["below_exact"] = [
            {"region": one.region, "context": one.context, **one.log_density.as_dict()} for one in best.ahead_of(found)
        ]
    if cell.shown:
        source, seed = data.test, cell.evaluation_seed
        if isinstance(source, Images):
            outcome["shown"] = completed_images(method, source, seed)
        else:
            outcome["shown"] = bands(method, source, seed)
    return outcome


def _evaluated(
    method: AdaptsToFunctions, source: FunctionSource, cell: FunctionCell, progress: Progress
) -> FunctionEvaluation:
    numbers: dict[str, Any] = {"n_tasks": cell.n_tasks, "targets": cell.targets, "seed": cell.evaluation_seed}
    return evaluate_functions(method, source, sizes=cell.sizes, **numbers, progress=progress)


def _part(progress: Progress, start: float, end: float) -> Progress:
    return lambda what, fraction: progress(what, start + (end - start) * fraction)


def score_table(
    records: Sequence[Mapping[str, Any]],
    functions: str,
    region: str,
    score: str,  # of `SizeScores`
    name: str,
    caption: str,
    on_page: bool = True,
) -> Table | None:
    """A row for each learner, a column for each size: means over seeds; None without records."""
    rows = []
    for learner, parts in by_learner(records, functions).items():
        row: dict[str, Any] = {"learner": learner, "seeds": len(parts)}
        for size, values in _by_size(parts, region, score).items():
            row[str(size)] = float(np.mean(values))
        if len(row) > 2:
            rows.append(row)
    return Table(name, caption, pd.DataFrame(rows), on_page=on_page) if rows else None


def by_learner(records: Sequence[Mapping[str, Any]], functions: str) -> dict[str, list[Mapping[str, Any]]]:
    """The records of one kind of functions that have a result, by learner."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        if FAILED not in record and record["labels"]["functions"] == functions:
            found.setdefault(str(record["labels"]["learner"]), []).append(record)
    return found


def shown_of(records: Sequence[Mapping[str, Any]], functions: str) -> dict[str, Any]:
    """What was kept for a picture of one kind of functions, by learner."""
    parts = by_learner(records, functions).items()
    return {name: part["shown"] for name, of_seeds in parts for part in of_seeds if "shown" in part}


def mean_score(parts: Sequence[Mapping[str, Any]], region: str, score: str, sizes: Sequence[int]) -> float:
    """Mean over seeds and those sizes of the context that there are."""
    found = _by_size(parts, region, score)
    return float(np.mean([value for size in sizes for value in found.get(size, [])]))


def _by_size(parts: Sequence[Mapping[str, Any]], region: str, score: str) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for record in parts:
        for line in record.get("below_exact", []) if score == "below_exact" else record["evaluation"]["scores"]:
            if line["region"] == region:
                found.setdefault(int(line["context"]), []).append(float(_estimate(line, score)["mean"]))
    return found


def _estimate(line: Mapping[str, Any], score: str) -> Mapping[str, Any]:
    """That of a score in a line of a record; "coverage 0.9" is among those by share."""
    if score.startswith("coverage "):
        return line["coverage"][score.removeprefix("coverage ")]
    return line if score == "below_exact" else line[score]

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
import torch

from experiments.campaigns.cells import FAILED, Cell, json_values
from experiments.experiment import Progress, Table
from sureshot.meta.evaluation.estimate import mean_over_tasks
from sureshot.meta.evaluation.functions import FunctionEvaluation, evaluate_functions
from sureshot.meta.functions import FunctionData, FunctionSource, load_functions
from sureshot.meta.functions.images import Images
from sureshot.meta.functions.source import with_context
from sureshot.meta.learners.functions import AdaptsToFunctions
from sureshot.meta.processes import ExactProcess
from sureshot.meta.protocols import FunctionProtocol
from sureshot.meta.tasks import Tasks
from sureshot.meta.training import load_checkpoint, train
from sureshot.meta.training.function_config import FunctionTrainingConfig
from sureshot.networks.checkpoint import LAST_NAME
from sureshot.networks.seeds import generator_for

EXACT = "exact process"
"""What is not trained: the process that each task was drawn from."""

PLACES = 200  # of the bands of a picture
SHOWN = (5, 15)  # rows of context in it


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
        own = {
            name: getattr(self, name) for name in ("data", "sizes", "n_tasks", "targets", "shown", "evaluation_seed")
        }
        return json_values({**own, "data": dict(self.data), "training": training})


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
            {"region": one.region, "context": one.context, **mean_over_tasks(other.per_task - one.per_task).as_dict()}
            for one, other in zip(found.scores, best.scores, strict=True)
        ]
    if cell.shown:
        outcome["shown"] = (completed if isinstance(data.test, Images) else bands)(method, data, cell)
    return outcome


def bands(method: AdaptsToFunctions, data: FunctionData, cell: FunctionCell) -> list[dict[str, Any]]:
    """Means and deviations along one function that all cells of a kind share, for a few sizes of context."""
    source = data.test
    generator = generator_for(cell.evaluation_seed, "function of the picture")
    drawn = source.sample(1, FunctionProtocol(max(SHOWN), 50), generator)
    low, high = getattr(source, "inputs", (-1.0, 1.0))
    x = torch.linspace(low, high + (high - low) / 2, PLACES)[None, :, None]
    found = []
    for size in SHOWN:
        tasks = with_context(drawn, size)
        mean, deviation = method.adapt(tasks).predict(x)
        rows = {
            "x": x,
            "mean": mean,
            "deviation": deviation,
            "context_x": tasks.support_x,
            "context_y": tasks.support_y,
        }
        seen = {name: [round(value, 4) for value in part.flatten().tolist()] for name, part in rows.items()}
        found.append({"context": size, "trained_to": high, **seen})
    return found


def completed(method: AdaptsToFunctions, data: FunctionData, cell: FunctionCell) -> list[dict[str, Any]]:
    """One image that all cells of a kind share, completed from a few sizes of context and from all pixels; bytes."""
    source = data.test
    assert isinstance(source, Images)
    generator = generator_for(cell.evaluation_seed, "image of the picture")
    places = source.places.unsqueeze(0)
    rows = source.pixels(torch.randint(len(source.images), (1,), generator=generator), len(places[0]), generator)
    order = torch.cdist(places[0], rows.x[0].float()).argmin(1)  # where each pixel is among the rows
    shape, found = (*source.images.shape[2:], source.target_width), []
    for size in (*cell.sizes, places.shape[1]):
        known = torch.zeros(len(order), dtype=torch.bool)
        known[:size] = True
        x, y = (part.float().masked_fill(~known[None, :, None], 0.0) for part in (rows.x, rows.y))
        posterior = method.adapt(_context_only(x, y, known.unsqueeze(0)))
        mean, deviation = posterior.predict(places)
        seen = {"mean": mean, "deviation": deviation, "context": y[:, order], "truth": rows.y[:, order]}
        found.append(
            {"size": size, "shape": shape, "known": known[order].int().tolist()}
            | {name: (part.clamp(0, 1) * 255).round().int().flatten().tolist() for name, part in seen.items()}
        )
    return found


def _context_only(x: torch.Tensor, y: torch.Tensor, mask: torch.Tensor) -> Tasks:
    return Tasks(x, y, x[:, :0], y[:, :0], 0, mask)


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
    """Mean over seeds and some sizes of the context."""
    found = _by_size(parts, region, score)
    return float(np.mean([value for size in sizes for value in found[size]]))


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

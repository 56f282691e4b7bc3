"""A cell of a campaign: train a learner, evaluate its best checkpoint, keep the result in one file.

The result's file holds the settings that made it, so that a cell whose settings have changed is run anew: from the
start if its training has changed, from the trained learner if only its examinations have. A new setting of
`TrainingConfig` is a change, whatever its default: results that were made without it are stale. What the learner's
preset stood for is recorded beside the settings; a value that the preset gives another one now is a change, too. A
switch that presets or examinations did not have then had its default.

A cell whose training comes to numbers that are not finite has a result, too: a record of the failure, which is
reported and not tried again until its file and its checkpoints are deleted. All other errors (data that is missing,
say) end the campaign.

A lock on the cell's folder of checkpoints is held while it is being worked on and is released by the operating system
if the process dies; another process then takes the cell over where the checkpoint left it.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch

from experiments.experiment import Progress, plain_value
from experiments.tables import hardware_and_versions
from sureshot.data.few_shot import load_few_shot
from sureshot.data.labelled import FewShotData
from sureshot.meta.evaluation import VALIDATION_TASKS, evaluate
from sureshot.meta.learners import GP_LEARNER_NAMES
from sureshot.meta.learners.presets import GaussianProcessSettings, gaussian_process_settings
from sureshot.meta.protocols import EpisodeProtocol
from sureshot.meta.training import DivergedError, TrainingConfig, load_checkpoint, load_learner, train
from sureshot.meta.training.checkpoint import Checkpoint
from sureshot.networks.checkpoint import LAST_NAME
from sureshot.networks.state import state_of

logger = logging.getLogger(__name__)

Load = Callable[[str, dict[str, Any]], FewShotData]
"""Few-shot data by name and options; a campaign keeps what it has loaded."""

FAILED = "failed"
"""The key of a record that says why a cell has no scores."""


@dataclass(frozen=True)
class Examination:
    """One evaluation of a trained learner on the test classes.

    Attributes
    ----------
    name : str
        Such as "5-way 1-shot".
    protocol : EpisodeProtocol
    n_tasks, out_of_episode, robustness : int
        As in `sureshot.meta.evaluation.evaluate`.
    seed : int
    validation_tasks : int
        The same.
    """

    name: str
    protocol: EpisodeProtocol
    n_tasks: int = 3000
    out_of_episode: int = 1000
    robustness: int = 1000
    seed: int = 0
    validation_tasks: int = VALIDATION_TASKS


@dataclass(frozen=True)
class Cell:
    """What to train and how to examine it.

    Attributes
    ----------
    key : str
        Name of the result's file.
    labels : dict
        What distinguishes the cell in tables: learner, preset, kernel, shots, seed, budget, precision.
    training : TrainingConfig
    examinations : tuple of Examination
    """

    key: str
    labels: dict[str, str | int]
    training: TrainingConfig
    examinations: tuple[Examination, ...]

    def settings(self) -> dict[str, Any]:
        """Everything that determines the result, as JSON values."""
        found: dict[str, Any] = json.loads(
            json.dumps(
                {"training": self.training.as_dict(), "examinations": [asdict(part) for part in self.examinations]}
            )
        )
        return found

    def preset_values(self) -> dict[str, Any]:
        """What the preset of a Gaussian-process learner stands for, as JSON values; empty for the others."""
        learner = self.training.learner
        if learner.name not in GP_LEARNER_NAMES:
            return {}
        values = gaussian_process_settings(learner.name, learner.preset, **learner.options)
        found: dict[str, Any] = json.loads(json.dumps(asdict(values)))
        return found


def data_loader(root: Path | None) -> Load:
    """Few-shot data below a root, each read once."""
    loaded: dict[str, FewShotData] = {}

    def load(name: str, options: dict[str, Any]) -> FewShotData:
        key = json.dumps([name, options], sort_keys=True)
        if key not in loaded:
            loaded[key] = load_few_shot(name, root, **options)
        return loaded[key]

    return load


def finished(cell: Cell, results: Path) -> dict[str, Any] | None:
    """The cell's result (or failure), or None if it is not there or was made with other settings.

    Raises
    ------
    ValueError
        If the file is damaged.
    """
    path = results / f"{cell.key}.json"
    if not path.is_file():
        return None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise ValueError(f"{path} is damaged (not a JSON object): delete it to run the cell again")
    if not _same_settings(record.get("settings"), cell.settings()):
        logger.info("%s was made with other settings and is stale", path)
        return None
    if changed := _changed(record.get("preset_values", {}), cell):
        logger.info("%s is stale: its preset had another %s", path, ", ".join(changed))
        return None
    return record


def _same_settings(found: object, expected: Mapping[str, Any]) -> bool:
    """Whether a record was made with these settings; one that examinations did not have then had its default."""
    if not isinstance(found, dict) or not all(isinstance(part, dict) for part in found.get("examinations", [None])):
        return False
    defaults = {item.name: item.default for item in fields(Examination) if item.default is not MISSING}
    return found | {"examinations": [defaults | part for part in found["examinations"]]} == expected


def run_cells(
    cells: Sequence[Cell],
    results: Path,
    checkpoints: Path,
    load: Load,
    progress: Progress,
    train_missing: bool = True,
) -> list[dict[str, Any]]:
    """Run the cells whose results are missing, and return all results and failures that are there afterwards.

    A cell that another process is working on is passed over, and looked at once more when the others are done: it is
    then finished, still being worked on, or ours to take over.

    Parameters
    ----------
    cells : sequence of Cell
    results, checkpoints : Path
        Folders; made if need be.
    load : callable
    progress : callable
    train_missing : bool
        False only collects.

    Raises
    ------
    ValueError
        If a result's file is damaged (found before anything is run), or settings and data do not fit.
    """
    todo = [cell for cell in cells if finished(cell, results) is None] if train_missing else []
    if todo:
        logger.info(
            "%d of %d cells are to be run; each is kept when it ends, an interrupted one goes on from its checkpoint",
            len(todo),
            len(cells),
        )
    for last_look in (False, True):
        passed_over = []
        for number, cell in enumerate(todo):
            share = number / len(todo)

            def tell(what: str, fraction: float, share: float = share, cell: Cell = cell, n: int = len(todo)) -> None:
                progress(f"{cell.key}: {what}", share + fraction / n)

            with _claimed(checkpoints / cell.key) as ours:
                if not ours:
                    passed_over.append(cell)
                elif finished(cell, results) is None:
                    _write(results / f"{cell.key}.json", _run_or_fail(cell, checkpoints / cell.key, load, tell))
        if last_look and passed_over:
            logger.info("another process is working on %s", ", ".join(cell.key for cell in passed_over))
        todo = passed_over
    return [record for cell in cells if (record := finished(cell, results)) is not None]


def _run_or_fail(cell: Cell, folder: Path, load: Load, progress: Progress) -> dict[str, Any]:
    """The record of the result or, if the numbers broke down, of the failure."""
    try:
        return run_cell(cell, folder, load, progress)
    except (DivergedError, torch.linalg.LinAlgError) as error:
        logger.warning("%s failed: %s", cell.key, error)
        record = {
            "key": cell.key,
            "labels": cell.labels,
            "settings": cell.settings(),
            "preset_values": cell.preset_values(),
            FAILED: str(error),
            "environment": hardware_and_versions(),
        }
        found: dict[str, Any] = plain_value(record)
        return found


def run_cell(cell: Cell, folder: Path, load: Load, progress: Progress) -> dict[str, Any]:
    """Train (or go on training) and evaluate; the result as JSON values."""
    config = cell.training
    data = load(config.data.name, config.data.options)
    logger.info("%s: training", cell.key)
    trained = train(
        config,
        folder,
        progress=lambda what, fraction: progress(what, 0.8 * fraction),
        resume=_same_training(cell, folder),
        data=data,
    )
    logger.info("%s: evaluating", cell.key)
    started = time.perf_counter()
    learner = load_learner(trained.best)
    evaluations = {}
    for part in cell.examinations:
        evaluations[part.name] = evaluate(
            learner,
            data.test,
            part.protocol,
            n_tasks=part.n_tasks,
            seed=part.seed,
            validation=data.val,
            validation_tasks=part.validation_tasks,
            out_of_episode=part.out_of_episode,
            robustness=part.robustness,
            progress=lambda what, fraction: progress(what, 0.8 + 0.2 * fraction),
        ).as_dict()
    record = {
        "key": cell.key,
        "labels": cell.labels,
        "settings": cell.settings(),
        "preset_values": cell.preset_values(),
        "training": {
            "episodes": trained.episodes,
            "best_episodes": trained.best_episodes,
            "validation": None if trained.scores is None else asdict(trained.scores),
            "stopped_early": trained.stopped_early,
            "large_gradients": trained.large_gradients,
            "seconds_of_last_run": trained.seconds,
        },
        "evaluations": evaluations,
        "evaluation_seconds": time.perf_counter() - started,
        "environment": hardware_and_versions(),
    }
    found: dict[str, Any] = plain_value(record)
    return found


def _same_training(cell: Cell, folder: Path) -> bool:
    """Whether there is a checkpoint, and it is of the cell's training as it is now.

    If not, the folder is made ready for a new beginning.
    """
    last, noted = folder / LAST_NAME, folder / "preset.json"
    if last.exists():
        then = json.loads(noted.read_text(encoding="utf-8")) if noted.is_file() else {}
        checkpoint = load_checkpoint(last)
        if checkpoint.config == cell.training.as_dict() and not _changed(then, cell) and _fits(checkpoint):
            return True
        logger.info("%s is of other settings or another version: %s is trained from the start", last, cell.key)
        last.unlink()
    _write(noted, cell.preset_values())
    return False


def _fits(checkpoint: Checkpoint) -> bool:
    """Whether this version has the learner of a checkpoint, and counts what it counts."""
    try:
        checkpoint.build()
        state_of(checkpoint.artifact, "episodes")
    except ValueError:
        return False
    return True


def _changed(then: Mapping[str, Any], cell: Cell) -> list[str]:
    """The switches that a preset set to something else then, if noted; one that was not there had its default."""
    now = cell.preset_values()
    before = {**asdict(GaussianProcessSettings()), **then} if now and then else then
    return [key for key, value in before.items() if key not in now or now[key] != value]


@contextmanager
def _claimed(folder: Path) -> Iterator[bool]:
    """Whether this process got the cell; it keeps it until it leaves the block or dies.

    Raises
    ------
    OSError
        Where the operating system has no such locks (Windows).
    """
    try:
        import fcntl
    except ImportError:
        raise OSError(
            "running a campaign needs the file locks of Linux or macOS; elsewhere results can only be collected "
            "(--collect)"
        ) from None
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _write(path: Path, record: dict[str, Any]) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part")
    temporary.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(temporary, path)

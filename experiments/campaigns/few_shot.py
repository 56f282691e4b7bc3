"""Cells of few-shot learners: train one, evaluate its best checkpoint on test classes.

Other settings make results stale, and so does another value of a preset's switch; what settings, presets or
examinations did not have then had its default. If only examinations changed, a cell is not trained again.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from experiments.campaigns.archive import write_json
from experiments.campaigns.cells import Cell, json_values
from experiments.experiment import Progress
from sureshot.data.few_shot import load_few_shot
from sureshot.data.labelled import FewShotData
from sureshot.meta.evaluation import VALIDATION_TASKS, evaluate
from sureshot.meta.learners import GP_LEARNER_NAMES
from sureshot.meta.learners.presets import GaussianProcessSettings, gaussian_process_settings
from sureshot.meta.protocols import EpisodeProtocol
from sureshot.meta.training import TrainingConfig, load_checkpoint, read_log, train
from sureshot.networks.checkpoint import LAST_NAME

logger = logging.getLogger(__name__)

Load = Callable[[str, dict[str, Any]], FewShotData]
"""Few-shot data by name and options; a campaign keeps what it has loaded."""


@dataclass(frozen=True)
class Examination:
    """One evaluation of a trained learner on the test classes; numbers as in `sureshot.meta.evaluation.evaluate`."""

    name: str  # such as "5-way 1-shot"
    protocol: EpisodeProtocol
    n_tasks: int = 3000
    out_of_episode: int = 1000
    robustness: int = 1000
    seed: int = 0
    validation_tasks: int = VALIDATION_TASKS
    least_errors: bool = False

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Examination:
        """From what `asdict` makes of one."""
        return cls(**{**values, "protocol": EpisodeProtocol(**values["protocol"])})


@dataclass(frozen=True)
class FewShotCell(Cell):
    """A learner under one training and one or more evaluations."""

    key: str
    labels: dict[str, str | int]  # learner, preset, kernel, shots, seed, budget, precision
    training: TrainingConfig
    examinations: tuple[Examination, ...]

    def settings(self) -> dict[str, Any]:
        """Everything that determines the result, as JSON values."""
        examinations = [asdict(part) for part in self.examinations]
        return json_values({"training": self.training.as_dict(), "examinations": examinations})

    def notes(self) -> dict[str, Any]:
        """The values of the learner's preset."""
        return {"preset_values": self.preset_values()}

    def preset_values(self) -> dict[str, Any]:
        """The values of a Gaussian-process learner's preset, as JSON; empty for other learners."""
        learner = self.training.learner
        if learner.name not in GP_LEARNER_NAMES:
            return {}
        values = gaussian_process_settings(learner.name, learner.preset, **learner.options)
        return json_values(asdict(values))

    def stale(self, record: Mapping[str, Any]) -> str | None:
        """Other settings, or other values of the preset."""
        if _completed(record.get("settings")) != self.settings():
            return "it was made with other settings"
        if changed := self.changed(record.get("preset_values", {})):
            return f"its preset had another {', '.join(changed)}"
        return None

    def changed(self, then: Mapping[str, Any]) -> list[str]:
        """Names of preset values that differ from `then`; a value that did not exist then had its default."""
        now = self.preset_values()
        before = {**asdict(GaussianProcessSettings()), **then} if now and then else then
        return [key for key, value in before.items() if key not in now or now[key] != value]


def data_loader(root: Path | None) -> Load:
    """A function that loads few-shot data from below a root, each data set once."""
    loaded: dict[str, FewShotData] = {}

    def load(name: str, options: dict[str, Any]) -> FewShotData:
        key = json.dumps([name, options], sort_keys=True)
        if key not in loaded:
            loaded[key] = load_few_shot(name, root, **options)
        return loaded[key]

    return load


def _completed(settings: Any) -> dict[str, Any] | None:
    """A record's settings with the defaults of those that it did not have then; None if they are of no cell."""
    try:
        training = TrainingConfig.from_dict(settings["training"])
        examinations = tuple(map(Examination.from_dict, settings["examinations"]))
    except (KeyError, TypeError, ValueError):
        return None
    return FewShotCell("", {}, training, examinations).settings()


def run_few_shot(load: Load, cell: FewShotCell, folder: Path, progress: Progress) -> dict[str, Any]:
    """Train (or resume training) and evaluate; the result for the record."""
    data = load(cell.training.data.name, cell.training.data.options)
    logger.info("%s: training", cell.key)
    trained = train(
        cell.training,
        folder,
        progress=lambda what, fraction: progress(what, 0.8 * fraction),
        resume=_same_training(cell, folder),
        data=data,
    )
    logger.info("%s: evaluating", cell.key)
    started = time.perf_counter()
    learner = load_checkpoint(trained.best).build()
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
            least_errors=part.least_errors,
            out_of_episode=part.out_of_episode,
            robustness=part.robustness,
            progress=lambda what, fraction: progress(what, 0.8 + 0.2 * fraction),
        ).as_dict()
    return {
        "training": {
            "episodes": trained.episodes,
            "best_episodes": trained.best_episodes,
            "validation": None if trained.scores is None else asdict(trained.scores),
            "stopped_early": trained.stopped_early,
            "large_gradients": trained.large_gradients,
            "seconds_of_last_run": trained.seconds,
            "validations": [
                {name: line[name] for name in ("episodes", "accuracy", "nll")}
                for line in read_log(folder)
                if line["kind"] == "validation"
            ],
        },
        "evaluations": evaluations,
        "evaluation_seconds": time.perf_counter() - started,
    }


def _same_training(cell: FewShotCell, folder: Path) -> bool:
    """Whether there is a checkpoint, and it is of the cell's training as it is now.

    If not, the folder is made ready for a new beginning.
    """
    last, noted = folder / LAST_NAME, folder / "preset.json"
    if last.exists():
        then = json.loads(noted.read_text(encoding="utf-8")) if noted.is_file() else {}
        if load_checkpoint(last).config == cell.training.as_dict() and not cell.changed(then):
            return True
        logger.info("%s is of other settings: %s is trained from the start", last, cell.key)
        last.unlink()
    write_json(noted, cell.preset_values())
    return False

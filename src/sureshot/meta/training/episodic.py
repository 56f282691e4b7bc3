"""Meta-training: a few-shot learner on episodes, as the training loop takes it, and one call that does it all.

A step draws tasks and gives the learner's losses on them. All processes draw the same tasks (row numbers only, which
is cheap) and look up their own share. Learners that are trained on single images get as many as the episodes would
have, in batches of one episode's size. The loop, its files and how it ends are those of `sureshot.networks.loop`.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sureshot import networks
from sureshot.data.few_shot import load_few_shot
from sureshot.data.labelled import FewShotData, LabelledSet, digest
from sureshot.meta.episodes import EpisodeSampler
from sureshot.meta.learners.base import ClassLearner
from sureshot.meta.learners.presets import settings_of
from sureshot.meta.training.assembly import build_learner, check_names, parameter_groups
from sureshot.meta.training.checkpoint import KIND, parts_of
from sureshot.meta.training.config import TrainingConfig
from sureshot.meta.training.validation import ValidationScores, Validator
from sureshot.networks import Processes, Progress, Scores, Trainable, differing_settings, processes
from sureshot.networks.log import read_log as read_any_log
from sureshot.networks.seeds import generator_for

_UNIT = "episodes"
_MAY_DIFFER = {("training", "device"), ("training", "tensorboard"), ("training", "episodes")}


@dataclass(frozen=True)
class TrainingResult:
    """What a run came to."""

    best: Path  # checkpoint
    last: Path  # checkpoint
    log: Path
    episodes: int  # trained in all
    best_episodes: int  # trained when the best checkpoint was taken
    scores: ValidationScores | None  # of the best checkpoint; None without validation
    stopped_early: bool
    large_gradients: int  # steps whose gradient was larger than the bound
    seconds: float  # spent in this call

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        values = dataclasses.asdict(self)
        return {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}


def train(
    config: TrainingConfig,
    output: str | os.PathLike[str],  # the run's folder, made if need be
    data_root: str | os.PathLike[str] | None = None,  # as in `sureshot.data.data_root`
    progress: Progress | None = None,  # called after every step
    resume: bool = True,  # from the last checkpoint, if there is one; else start anew and replace what is there
    data: FewShotData | None = None,  # labelled sets to use in place of those that ``config.data`` names
) -> TrainingResult:
    """Meta-train a learner.

    Raises
    ------
    ValueError
        If settings and data do not fit, `output` holds a run with other settings, or training diverges
        (`DivergedError`).
    """
    start = time.perf_counter()
    check_names(config)
    with processes(config.training.device) as group:
        found = load_few_shot(config.data.name, data_root, **config.data.options) if data is None else data
        trainee = EpisodicTraining(build_learner(config, found.train), config, found, group)
        run = networks.train(trainee, config.loop_settings(), Path(output), group, progress, resume)
    return TrainingResult(
        best=run.best,
        last=run.last,
        log=run.log,
        episodes=run.units,
        best_episodes=run.best_units,
        scores=ValidationScores(**run.scores) if run.scores else None,
        stopped_early=run.stopped_early,
        large_gradients=run.large_gradients,
        seconds=time.perf_counter() - start,
    )


class EpisodicTraining(Trainable):
    """A learner, the episodes it is trained on, and the validation classes that choose its checkpoint."""

    kind = KIND
    unit = _UNIT
    advice = "try a lower learning_rate or learning_rate_kernel, or float32"

    def __init__(self, learner: ClassLearner, config: TrainingConfig, data: FewShotData, group: Processes) -> None:
        protocol = config.episodes.to_protocol()
        self.name = config.learner.name
        self.module = self.learner = learner.to(group.device)
        self.config = config.as_dict()
        choosing = {"validation_rows": digest((data.val.x, data.val.y))} if config.validation.every > 0 else {}
        self.parts = {**parts_of(learner), "rows": digest((data.train.x, data.train.y)), **choosing}
        self.units_per_step = config.training.episodes_per_step
        self._settings = config
        try:
            self.sampler = EpisodeSampler(_on(data.train, group.device), protocol, learner.samples_images)
        except ValueError as error:
            raise ValueError(f"training: {error}") from None
        self._validator: Validator | None = None
        if config.validation.every > 0 and group.writes:
            validation = _on(data.val, group.device)
            self._validator = Validator(validation, self.sampler.data, protocol, config.validation)
        if data.train.x.dim() == 4 and learner.network is not None:
            learner.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def parameter_groups(self) -> list[dict[str, Any]]:
        """One learning rate for the learner's network and one for everything else."""
        return parameter_groups(self.learner, self._settings)

    def losses(self, step: int, share: slice, generator: torch.Generator) -> Tensor:
        """The learner's loss on each task, or each batch of single images."""
        seed, n = generator_for(self._settings.training.seed, "tasks", step), self.units_per_step
        if self.learner.samples_images:
            rows = self.sampler.draw_images(self.sampler.protocol.rows_per_task, seed, n)
        else:
            rows = self.sampler.draw(n, seed)
        losses: Tensor = self.learner(self.sampler.gather(rows.select(share)), generator)
        return losses

    def carried(self) -> dict[str, Tensor]:
        """What the learner carries from task to task."""
        return self.learner.task_state or {}

    def take_over(self, carried: Mapping[str, Tensor]) -> None:
        self.learner.task_state = dict(carried)

    def differences(self, header: Mapping[str, Any]) -> list[str]:
        """Of settings, of rows, and of what the learner's preset stands for."""
        found = differing_settings(header["config"], self.config, _MAY_DIFFER)
        if header.get("rows", self.parts["rows"]) != self.parts["rows"]:
            found.append("the rows of the training classes were others then")
        then, now = (parts.get("validation_rows") for parts in (header, self.parts))
        if then is not None and now is not None and then != now:
            found.append("the rows of the validation classes, which choose the best checkpoint, were others then")
        earlier, present = header.get("learner", {}), self.learner.config
        if "settings" in earlier and "settings" in present:
            before, after = dataclasses.asdict(settings_of(earlier["settings"])), present["settings"]
            found += [
                f"{key} = {before[key]!r} by the preset of the learner then, {after[key]!r} now"
                for key in before
                if before[key] != after[key]
            ]
        return found

    def validate(self) -> Scores:
        """Scores on tasks of validation classes, to which the learner's normalisation and temperature are fitted."""
        assert self._validator is not None
        by = self._settings.validation.select_by
        return Scores(dataclasses.asdict(self._validator(self.learner)), by, larger_is_better=by == "accuracy")


def read_log(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The records of a run's log, in order; a last line that was not completed is left out."""
    return read_any_log(folder, _UNIT)


def _on(data: LabelledSet, device: torch.device) -> LabelledSet:
    return data if device.type == "cpu" else LabelledSet(data.x.to(device), data.y, data.class_names)

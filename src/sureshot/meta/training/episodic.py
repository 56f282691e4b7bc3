"""Meta-training: a few-shot learner on episodes, as the training loop takes it, and one call that does it all.

A step draws tasks and gives the learner's losses on them. All processes draw the same tasks (row numbers only, which
is cheap) and look up their own share. Learners that are trained on single images get as many as the episodes would
have, in batches of one episode's size. The loop, its files and how it ends are those of `sureshot.networks.loop`.
"""

from __future__ import annotations

import dataclasses
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sureshot import networks
from sureshot.data.few_shot import load_few_shot
from sureshot.data.labelled import FewShotData, LabelledSet, digest
from sureshot.data.root import Root
from sureshot.meta.episodes import EpisodeSampler
from sureshot.meta.functions import FunctionData, load_functions
from sureshot.meta.learners.base import ClassLearner
from sureshot.meta.learners.registry import check_learner, learns_base_classes, make_learner
from sureshot.meta.training.config import FunctionTrainingConfig, TrainingConfig
from sureshot.meta.training.functions import FunctionScores, FunctionTraining, build_process
from sureshot.meta.training.task_training import UNIT, TaskTraining
from sureshot.meta.training.validation import ValidationScores, Validator
from sureshot.networks import Processes, Progress, Scores, processes
from sureshot.networks.backbones import check_backbone, draws_weights, make_backbone
from sureshot.networks.log import read_log as read_any_log
from sureshot.networks.seeds import generator_for


@dataclass(frozen=True)
class TrainingResult:
    """What a run came to."""

    best: Path  # checkpoint
    last: Path  # checkpoint
    log: Path
    episodes: int  # trained in all
    best_episodes: int  # trained when the best checkpoint was taken
    scores: ValidationScores | FunctionScores | None  # of the best checkpoint; None without validation
    stopped_early: bool
    large_gradients: int  # steps whose gradient was larger than the bound
    seconds: float  # spent in this call

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        values = dataclasses.asdict(self)
        return {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}


def train(
    config: TrainingConfig | FunctionTrainingConfig,
    output: str | os.PathLike[str],  # the run's folder, made if need be
    data_root: str | os.PathLike[str] | None = None,  # as in `sureshot.data.data_root`
    progress: Progress | None = None,  # called after every step
    resume: bool = True,  # from the last checkpoint, if there is one; else start anew and replace what is there
    # To use in place of what ``config.data`` names: labelled sets, or functions for a learner of numbers.
    data: FewShotData | FunctionData | None = None,
) -> TrainingResult:
    """Meta-train a learner.

    Raises
    ------
    ValueError
        If settings and data do not fit, `output` holds a run with other settings, or training diverges
        (`DivergedError`).
    """
    start = time.perf_counter()
    with processes(config.training.device) as group:
        trainee = _trainee(config, data_root, data, group)
        run = networks.train(trainee, config.loop_settings(), Path(output), group, progress, resume)
    return TrainingResult(
        best=run.best,
        last=run.last,
        log=run.log,
        episodes=run.units,
        best_episodes=run.best_units,
        scores=trainee.scores(**run.scores) if run.scores else None,
        stopped_early=run.stopped_early,
        large_gradients=run.large_gradients,
        seconds=time.perf_counter() - start,
    )


def _trainee(
    config: TrainingConfig | FunctionTrainingConfig, root: Root, data: Any, group: Processes
) -> EpisodicTraining | FunctionTraining:
    if isinstance(config, FunctionTrainingConfig):
        found = load_functions(config.data.name, root, **config.data.options) if data is None else data
        return FunctionTraining(build_process(config, found), config, found, group)
    check_names(config)
    found = load_few_shot(config.data.name, root, **config.data.options) if data is None else data
    return EpisodicTraining(build_learner(config, found.train), config, found, group)


def check_names(config: TrainingConfig) -> None:
    """Refuse learners, kernels, backbones and options that do not exist, before any data are read (`ValueError`)."""
    settings = config.learner
    check_learner(settings.name, settings.preset, settings.kernel, settings.options)
    check_backbone(config.backbone.name, config.backbone.options)


def build_learner(config: TrainingConfig, data: LabelledSet) -> ClassLearner:
    """The learner that the settings describe, for inputs like those of a labelled set, with initial weights."""
    seed = {"seed": config.training.seed} if draws_weights(config.backbone.name) else {}
    backbone = make_backbone(config.backbone.name, tuple(data.x.shape[1:]), **(seed | config.backbone.options))
    settings = config.learner
    options = dict(settings.options)
    if learns_base_classes(settings.name, settings.preset, **options):
        options.setdefault("n_base_classes", data.n_classes)
    return make_learner(
        settings.name,
        backbone,
        preset=settings.preset,
        kernel=settings.kernel,
        precision=settings.precision,
        tasks_per_pass=settings.tasks_per_pass,
        **options,
    )


class EpisodicTraining(TaskTraining):
    """A learner, the episodes it is trained on, and the validation classes that choose its checkpoint."""

    learner: ClassLearner
    settings: TrainingConfig
    scores = ValidationScores

    def __init__(self, learner: ClassLearner, config: TrainingConfig, data: FewShotData, group: Processes) -> None:
        protocol = config.episodes.to_protocol()
        choosing = {"validation_rows": digest((data.val.x, data.val.y))} if config.validation.every > 0 else {}
        super().__init__(learner, config, group, {"rows": digest((data.train.x, data.train.y)), **choosing})
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

    def losses(self, step: int, share: slice, generator: torch.Generator) -> Tensor:
        """The learner's loss on each task, or each batch of single images."""
        seed, n = generator_for(self.settings.training.seed, "tasks", step), self.units_per_step
        if self.learner.samples_images:
            rows = self.sampler.draw_images(self.sampler.protocol.rows_per_task, seed, n)
        else:
            rows = self.sampler.draw(n, seed)
        losses: Tensor = self.learner(self.sampler.gather(rows.select(share)), generator)
        return losses

    def validate(self) -> Scores:
        """Scores on tasks of validation classes, to which the learner's normalisation and temperature are fitted."""
        assert self._validator is not None
        by = self.settings.validation.select_by
        return Scores(dataclasses.asdict(self._validator(self.learner)), by, larger_is_better=by == "accuracy")


def read_log(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The records of a run's log, in order; a last line that was not completed is left out."""
    return read_any_log(folder, UNIT)


def _on(data: LabelledSet, device: torch.device) -> LabelledSet:
    return data if device.type == "cpu" else LabelledSet(data.x.to(device), data.y, data.class_names)

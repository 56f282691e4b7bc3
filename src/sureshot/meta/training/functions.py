"""Meta-training on functions: tasks are drawn anew in every step, and a validation scores densities."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from inspect import signature

import torch
from torch import Tensor

from sureshot.meta.functions import FunctionData
from sureshot.meta.learners.functions import Context, RegressionLearner
from sureshot.meta.processes import PROCESSES, make_process
from sureshot.meta.tasks import Tasks
from sureshot.meta.training.config import FunctionTrainingConfig
from sureshot.meta.training.task_training import TaskTraining
from sureshot.networks import Processes, Scores
from sureshot.networks.seeds import generator_for

_TASKS_PER_PASS = 50


@dataclass(frozen=True)
class FunctionScores:
    """Means over the targets of all validation tasks."""

    nll: float  # negative log density of a row, in nats
    rmse: float


def build_process(config: FunctionTrainingConfig, data: FunctionData) -> RegressionLearner:
    """The learner that the settings describe, for such functions, with initial weights."""
    name, options = config.learner.name, config.learner.options
    if name in PROCESSES and "seed" in signature(PROCESSES[name]).parameters:
        options = {"seed": config.training.seed} | options
    return make_process(name, data.train.input_width, data.train.target_width, **options)


class FunctionTraining(TaskTraining):
    """A learner of numbers, the functions it is trained on, and those that choose its checkpoint."""

    learner: RegressionLearner
    settings: FunctionTrainingConfig
    scores = FunctionScores

    def __init__(
        self, learner: RegressionLearner, config: FunctionTrainingConfig, data: FunctionData, group: Processes
    ) -> None:
        choosing = {"validation_rows": data.val.identity} if config.validation.every > 0 else {}
        units = {} if data.units is None else {"units": data.units}
        super().__init__(learner, config, group, {"rows": data.train.identity, **choosing, **units})
        self._source = data.train
        self._exam: Tasks | None = None
        if config.validation.every > 0 and group.writes:
            generator = generator_for(config.validation.seed, "validation tasks")
            self._exam = data.val.sample(config.validation.tasks, config.episodes, generator)

    def losses(self, step: int, share: slice, generator: torch.Generator) -> Tensor:
        seed = generator_for(self.settings.training.seed, "tasks", step)
        tasks = self._source.sample(self.units_per_step, self.settings.episodes, seed).select(share)
        losses: Tensor = self.learner(tasks.to(self.learner.device), generator)
        return losses

    def validate(self) -> Scores:
        """Scores on the validation functions; a ValueError if answers are not finite."""
        assert self._exam is not None
        densities, squares = [], []
        for start in range(0, len(self._exam), _TASKS_PER_PASS):
            tasks = self._exam.select(slice(start, start + _TASKS_PER_PASS)).to(self.learner.device)
            found = self.learner.adapt(tasks).moments(tasks.query_x)
            asked = Context.of(tasks.query)
            densities.append(found.log_density(asked.y)[asked.mask])
            squares.append((found.overall()[0] - asked.y).square()[asked.mask])
        nll, mse = -float(torch.cat(densities).double().mean()), float(torch.cat(squares).double().mean())
        scores = FunctionScores(nll, mse**0.5)
        if not math.isfinite(nll + mse):
            raise ValueError(f"the densities or means of validation tasks are not finite ({scores})")
        return Scores(asdict(scores), "nll", larger_is_better=False)

"""What all meta-training has in common, whatever the targets: the learner, its settings, what is carried and resumed.

Where tasks come from and how a validation scores is said by `sureshot.meta.training.episodic` for classes and by
`sureshot.meta.training.functions` for numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from sureshot.data.few_shot import DATASETS
from sureshot.meta.learners.base import Learner
from sureshot.meta.learners.presets import settings_of
from sureshot.meta.training.checkpoint import KIND, parts_of
from sureshot.meta.training.config import RunConfig
from sureshot.networks import Processes, Trainable, differing_settings, milestones

UNIT = "episodes"
_MAY_DIFFER = {("training", "device"), ("training", "tensorboard"), ("training", "episodes")}


def parameter_groups(learner: Learner, config: RunConfig) -> list[dict[str, Any]]:
    """The optimiser's: one learning rate for the learner's network, or all of it, and one for everything else."""
    network = learner if learner.network is None else learner.network
    learnt, inside = [p for p in learner.parameters() if p.requires_grad], set(map(id, network.parameters()))
    if not learnt:
        raise ValueError(
            f"learner {learner.config['name']!r} has no parameters to learn: choose another backbone, or use it "
            "without meta-training"
        )
    return [
        {"params": [p for p in learnt if id(p) in inside], "lr": config.training.learning_rate},
        {"params": [p for p in learnt if id(p) not in inside], "lr": config.training.learning_rate_kernel},
    ]


class TaskTraining(Trainable):
    """A learner that is trained on tasks; derived classes write `losses` and `validate`."""

    kind = KIND
    unit = UNIT
    advice = "try a lower learning_rate, learning_rate_kernel or inner_rate (if it has an inner loop), or float32"

    def __init__(
        self,
        learner: Learner,
        config: RunConfig,
        group: Processes,
        parts: Mapping[str, Any],  # digests of what is trained on, "rows", and of what validates, "validation_rows"
    ) -> None:
        self.name = str(learner.config["name"])
        self.module = self.learner = learner.to(group.device)
        self.config, self.settings = config.as_dict(), config
        package = {"dataset": found} if (found := DATASETS.package(config.data.name)) else {}
        self.parts = {**parts_of(learner), **parts, **package}
        self.units_per_step = config.training.episodes_per_step

    def parameter_groups(self) -> list[dict[str, Any]]:
        return parameter_groups(self.learner, self.settings)

    def learning_rate_factor(self, units: int) -> float:
        """A tenth from each milestone on."""
        return milestones(units, self.settings.training.milestones)

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

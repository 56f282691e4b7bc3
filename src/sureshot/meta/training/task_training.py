"""What all meta-training has in common, whatever the targets: the learner, its settings, what is carried and resumed.

Where tasks come from and how a validation scores is said by `sureshot.meta.training.episodic` for classes and by
`sureshot.meta.training.functions` for numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from sureshot.meta.learners.base import Learner
from sureshot.meta.learners.presets import settings_of
from sureshot.meta.training.checkpoint import KIND, parts_of
from sureshot.meta.training.config import OptimisationConfig, RunConfig
from sureshot.networks import Trainable, differing_settings, milestones

UNIT = "episodes"
_MAY_DIFFER = {("training", "device"), ("training", "tensorboard"), ("training", "episodes")}


def groups_by_rate(
    learner: Learner,
    network: nn.Module | None,  # a part of it
    rates: OptimisationConfig,
) -> list[dict[str, Any]]:
    """The optimiser's: what is learnt of the network with one learning rate, and everything else with another."""
    of_network = [] if network is None else list(network.parameters())
    inside = {id(parameter) for parameter in of_network}
    others = [p for p in learner.parameters() if p.requires_grad and id(p) not in inside]
    return [
        {"params": [p for p in of_network if p.requires_grad], "lr": rates.learning_rate},
        {"params": others, "lr": rates.learning_rate_kernel},
    ]


class TaskTraining(Trainable):
    """A learner that is trained on tasks; derived classes write `losses`, `parameter_groups` and `validate`."""

    kind = KIND
    unit = UNIT
    advice = "try a lower learning_rate or learning_rate_kernel, or float32"

    def __init__(
        self,
        learner: Learner,  # on the device of the run
        config: RunConfig,
        parts: Mapping[str, Any],  # digests of what is trained on, "rows", and of what validates, "validation_rows"
    ) -> None:
        self.name = str(learner.config["name"])
        self.module = self._learner = learner
        self.config = config.as_dict()
        self.parts = {**parts_of(learner), **parts}
        self.units_per_step = config.training.episodes_per_step
        self._milestones = config.training.milestones

    def learning_rate_factor(self, units: int) -> float:
        """A tenth from each milestone on."""
        return milestones(units, self._milestones)

    def carried(self) -> dict[str, Tensor]:
        """What the learner carries from task to task."""
        return self._learner.task_state or {}

    def take_over(self, carried: Mapping[str, Tensor]) -> None:
        self._learner.task_state = dict(carried)

    def differences(self, header: Mapping[str, Any]) -> list[str]:
        """Of settings, of rows, and of what the learner's preset stands for."""
        found = differing_settings(header["config"], self.config, _MAY_DIFFER)
        if header.get("rows", self.parts["rows"]) != self.parts["rows"]:
            found.append("the rows of the training classes were others then")
        then, now = (parts.get("validation_rows") for parts in (header, self.parts))
        if then is not None and now is not None and then != now:
            found.append("the rows of the validation classes, which choose the best checkpoint, were others then")
        earlier, present = header.get("learner", {}), self._learner.config
        if "settings" in earlier and "settings" in present:
            before, after = dataclasses.asdict(settings_of(earlier["settings"])), present["settings"]
            found += [
                f"{key} = {before[key]!r} by the preset of the learner then, {after[key]!r} now"
                for key in before
                if before[key] != after[key]
            ]
        return found

"""What the loop asks of anything that it trains.

A *trainee* is a module together with its data and its loss. The loop (`sureshot.networks.loop`) asks for the losses of
a step, follows their gradient, and keeps the module whose scores are best.

A run is counted in *units*, such as episodes or rows. A step consumes `units_per_step` of them; several processes
share these, so there must be one for each process. All that is random is drawn from generators that belong to a
place in the run (`sureshot.networks.seeds`): then a resumed run is the run that nothing had disturbed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Scores:
    """What a validation found."""

    values: Mapping[str, float]  # by name; all are logged
    by: str  # the one by which a checkpoint is chosen
    larger_is_better: bool

    def better_than(self, best: Mapping[str, float]) -> bool:
        """Whether this is strictly better than the values of another; anything is better than none."""
        if not best:
            return True
        new, old = self.values[self.by], best[self.by]
        return new > old if self.larger_is_better else new < old


class Trainable(ABC):
    """A module, its data and its loss.

    To write one, give the members without a value theirs in ``__init__`` (with the module on the device of the run),
    and write the abstract methods; `validate` only if the run is to choose its checkpoint by scores.
    """

    name: str
    """By which messages call it."""

    module: nn.Module
    """What is trained; its parameters and buffers are what a checkpoint holds."""

    kind: str
    """Of its checkpoints, as model files (`sureshot.persistence`)."""

    config: dict[str, Any]
    """What identifies the run: sections of settings, as JSON values. Only a run with equal ones is resumed."""

    parts: Mapping[str, Any]
    """Further entries of a checkpoint's header, as JSON values: what builds the module again."""

    unit = "steps"
    """What the run is counted in, in the plural; a key of checkpoints and logs."""

    units_per_step = 1

    advice = "try a lower learning rate"
    """What to try when the training has diverged."""

    @abstractmethod
    def parameter_groups(self) -> list[dict[str, Any]]:
        """The optimiser's: parameters under ``params``, their learning rate under ``lr``, other options by name.

        Raises
        ------
        ValueError
            If there is nothing to learn.
        """

    def optimiser(self) -> torch.optim.Optimizer:
        """What follows the gradient: Adam by default. `sureshot.networks.checkpoint` says whose state is saved."""
        return torch.optim.Adam(self.parameter_groups())

    def learning_rate_factor(self, units: int) -> float:
        """What the learning rates of all groups are multiplied by in the step after so many units; 1 by default.

        A function of the place in the run alone, so a schedule has nothing to save. See `milestones`.
        """
        return 1.0

    @abstractmethod
    def losses(
        self,
        step: int,  # from 0; it determines the units of the step, which are the same for all processes
        share: slice,  # which of the units, of ``range(units_per_step)``
        generator: torch.Generator,  # for noise, on the module's device; every process and step has its own
    ) -> Tensor:
        """Losses (n,) of one process's share, differentiable; their mean over all shares is the loss of the step."""

    def carried(self) -> dict[str, Tensor]:
        """What a step leaves for the next one beside the module: by name, this process's share of the units leading.

        Nothing by default. Checkpoints to resume from hold that of all processes.
        """
        return {}

    def take_over(self, carried: Mapping[str, Tensor]) -> None:
        """Go on from what `carried` gave for this process's share before the run was interrupted.

        Called only if there was something.
        """
        raise NotImplementedError(f"{self.name} carries nothing over")

    @abstractmethod
    def differences(self, header: Mapping[str, Any]) -> list[str]:
        """In what, in words, the run of a checkpoint with this header differs so that it cannot be resumed.

        `differing_settings` compares the settings.
        """

    def validate(self) -> Scores:
        """Scores on data that is not trained on, with the module left in the mode in which it came.

        The writing process alone is asked, and takes into the module's buffers what is fitted here.
        """
        raise NotImplementedError(f"{self.name} has no validation: validate_every must be 0")


def milestones(
    units: int,  # trained
    places: Sequence[int],  # in units
    factor: float = 0.1,
) -> float:
    """A schedule for `Trainable.learning_rate_factor`: rates are multiplied by `factor` at each of the places."""
    return float(factor ** sum(units >= place for place in places))


def differing_settings(
    then: Mapping[str, Any],  # the config of a checkpoint
    now: Mapping[str, Any],
    may_differ: Collection[tuple[str, str]] = (),  # (section, key)
) -> list[str]:
    """The settings that differ, in words."""

    def text(config: Mapping[str, Any], section: str, key: str) -> str:
        return repr(config.get(section, {}).get(key))

    return [
        f"{section}.{key} = {text(then, section, key)} then, {text(now, section, key)} now"
        for section in now
        for key in now[section]
        if (section, key) not in may_differ and now[section][key] != then.get(section, {}).get(key)
    ]

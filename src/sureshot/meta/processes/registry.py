"""Learners of numbers by name. To add one: a module beside this one, whose class states its ``name``; nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sureshot.data.checks import near
from sureshot.data.typed_values import check_call_options
from sureshot.members import members
from sureshot.meta.learners.functions import RegressionLearner, learner_config

_LEARNERS: dict[str, type[RegressionLearner]] = members(RegressionLearner, "sureshot.meta.processes")

PROCESS_NAMES: tuple[str, ...] = tuple(_LEARNERS)


def check_process(name: str, options: Mapping[str, Any]) -> None:
    """Refuse names and options that `make_process` would refuse (`ValueError`)."""
    if name not in _LEARNERS:
        raise ValueError(
            f"unknown learner of numbers {name!r}{near(name, PROCESS_NAMES)}; there are {', '.join(PROCESS_NAMES)}"
        )
    check_call_options(f"learner {name!r}", _LEARNERS[name], options, ("self", "input_width", "target_width"))


def make_process(
    name: str,  # one of `PROCESS_NAMES`
    input_width: int,  # D
    target_width: int,  # K
    **options: Any,  # arguments of its class
) -> RegressionLearner:
    """A learner of numbers by name."""
    check_process(name, options)
    learner = _LEARNERS[name](input_width, target_width, **options)
    learner.config = learner_config(name, input_width, target_width, options)
    return learner


def process_from_config(config: Mapping[str, Any]) -> RegressionLearner:
    """The learner that ``learner.config`` describes, with initial weights."""
    return make_process(config["name"], config["input_width"], config["target_width"], **config["options"])

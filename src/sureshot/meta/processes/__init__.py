"""Few-shot learners of numbers by name: neural processes, and deep kernel transfer.

To add one: a module in this folder, whose class states its ``name``, and nothing else. Those of other packages, and
those that a script has registered (`register_process`), count like ours (`sureshot.plugins`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sureshot.data.typed_values import check_call_options
from sureshot.members import members, stated_name
from sureshot.meta.learners.functions import RegressionLearner
from sureshot.meta.processes.exact import ExactProcess
from sureshot.plugins import Registry

PROCESSES: Registry[type[RegressionLearner]] = Registry(
    "learner of numbers", members(RegressionLearner, __name__), stated_name, RegressionLearner
)

PROCESS_NAMES: tuple[str, ...] = tuple(PROCESSES.ours)

register_process = PROCESSES.register


def make_process(
    name: str,  # one of `PROCESSES`
    input_width: int,  # D
    target_width: int,  # K
    **options: Any,  # arguments of its class
) -> RegressionLearner:
    """A learner of numbers, whose ``config`` has these arguments; ValueError for names and options that are none."""
    PROCESSES.require(name)
    check_call_options(f"learner {name!r}", PROCESSES[name], options, ("input_width", "target_width"))
    learner: RegressionLearner = PROCESSES.make(name, input_width, target_width, **options)
    values = {key: list(value) if isinstance(value, tuple) else value for key, value in options.items()}
    learner.config = {"name": name, "input_width": input_width, "target_width": target_width, **values}
    if package := PROCESSES.package(name):
        learner.config["package"] = package
    return learner


def process_from_config(config: Mapping[str, Any]) -> RegressionLearner:
    """The learner that ``learner.config`` describes, with initial weights."""
    PROCESSES.require(config["name"], config.get("package"))
    return make_process(**{key: value for key, value in config.items() if key != "package"})


__all__ = ["PROCESSES", "PROCESS_NAMES", "ExactProcess", "make_process", "process_from_config", "register_process"]

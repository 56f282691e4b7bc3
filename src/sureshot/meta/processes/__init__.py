"""Few-shot learners of numbers by name: neural processes, and deep kernel transfer.

To add one: a module in this folder, whose class states its ``name``, and nothing else.
"""

from __future__ import annotations

from typing import Any

from sureshot.data.checks import near
from sureshot.data.typed_values import check_call_options
from sureshot.members import members
from sureshot.meta.learners.functions import RegressionLearner
from sureshot.meta.processes.exact import ExactProcess

_LEARNERS: dict[str, type[RegressionLearner]] = members(RegressionLearner, __name__)

PROCESS_NAMES: tuple[str, ...] = tuple(_LEARNERS)


def make_process(
    name: str,  # one of `PROCESS_NAMES`
    input_width: int,  # D
    target_width: int,  # K
    **options: Any,  # arguments of its class
) -> RegressionLearner:
    """A learner of numbers, whose ``config`` has these arguments; ValueError for names and options that are none."""
    if name not in _LEARNERS:
        known = ", ".join(PROCESS_NAMES)
        raise ValueError(f"unknown learner of numbers {name!r}{near(name, PROCESS_NAMES)}; there are {known}")
    check_call_options(f"learner {name!r}", _LEARNERS[name], options, ("input_width", "target_width"))
    learner = _LEARNERS[name](input_width, target_width, **options)
    values = {key: list(value) if isinstance(value, tuple) else value for key, value in options.items()}
    learner.config = {"name": name, "input_width": input_width, "target_width": target_width, **values}
    return learner


__all__ = ["PROCESS_NAMES", "ExactProcess", "make_process"]

"""What a target is learnt as decides what a command asks and shows: `classes` or `numbers`, with the same functions.

Commands read, write and refuse alike; whatever differs is a function of these two modules.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sureshot.cli.options import Classifier
    from sureshot.cli.reading import Reading
    from sureshot.estimators.base import IncrementalEstimator
    from sureshot.meta.training.checkpoint import Checkpoint


def task_of(model: IncrementalEstimator | None = None, numbers: bool = False) -> ModuleType:
    """That of a model, or of targets."""
    from sureshot.cli import classes
    from sureshot.cli import numbers as of_numbers
    from sureshot.estimators.numbers.regressor_base import IncrementalRegressor

    return of_numbers if numbers or isinstance(model, IncrementalRegressor) else classes


def asked_task(asked: Classifier) -> str:
    """The task that is stated, or that of settings which only one of them has (`ValueError`)."""
    given = {name: getattr(asked, name) for name in ("strategy", "likelihood", "inference")}
    chosen = [name for name, value in given.items() if value not in (None, "auto")]
    if chosen and asked.task == "numbers":
        raise ValueError(f"--{chosen[0]} is for classes: leave it out, or --task numbers")
    return "classes" if chosen else asked.task


def task_of_learner(learner: Checkpoint, stated: str) -> str:
    """What a meta-trained learner answers with; `ValueError` where another task is stated."""
    task = "numbers" if learner.answers_with_numbers else "classes"
    if stated not in ("auto", task):
        raise ValueError(f"{learner.described}, and --task is {stated}: leave it out, or name a learner of {stated}")
    return task


def shared_settings(asked: Classifier, how: Reading) -> dict[str, Any]:
    """Arguments that classifiers and regressors have alike."""
    return {
        "kernel": asked.kernel,
        "objective": None if asked.objective == "none" else asked.objective,
        "standardize": "auto" if asked.standardize == "auto" else asked.standardize == "true",
        "ensemble": asked.ensemble,
        "random_state": asked.seed,
        "columns": dict(how.kinds) or "auto",
        "time": asked.time,
        "window": asked.window,
    }

"""Gradient descent from a shared start to each of many tasks, all tasks at once.

A task is adapted to by a few steps ``theta <- theta - rate * gradient of its loss``. Parameters come out with the tasks
leading. What is made of them is differentiable in the start, through every step. The first-order variant takes the
gradients of the inner steps for constants.

Reference: Finn, Abbeel and Levine (2017), Model-agnostic meta-learning, algorithm 2 and section 5.2.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from sureshot.ranges import check_counts, check_positive

Parameters = dict[str, Tensor]

TaskLoss = Callable[[Parameters, int, Any], Tensor]
"""Of the parameters, the number of the step and what a task consists of: its loss, ()."""


@dataclass(frozen=True)
class Descent:
    """How an inner loop steps."""

    steps: int
    rate: float
    first_order: bool = False

    def __post_init__(self) -> None:
        check_counts(1, inner_steps=self.steps)
        check_positive(inner_rate=self.rate)


def adapt(
    start: Parameters,  # shared by the tasks
    loss: TaskLoss,
    tasks: Any,  # a tensor, or tuples of tensors; tasks leading
    descent: Descent,
    who: str,  # the learner, for errors
    at_once: int | None = None,  # tasks whose intermediate numbers are held together; all by default
) -> Parameters:
    """Parameters adapted to each task, tasks leading; ValueError if a loss or gradient is not finite."""

    def one(task: Any) -> tuple[Parameters, Tensor]:
        """Parameters after the steps, and of every step (steps,) a number that is finite if the step is."""
        slope = grad_and_value(lambda parameters, step: loss(parameters, step, task))  # the task takes no gradient
        parameters, sizes = start, []
        for step in range(descent.steps):
            with torch.no_grad() if descent.first_order else nullcontext():
                gradient, reached = slope(parameters, step)
            parameters = {name: value - descent.rate * gradient[name] for name, value in parameters.items()}
            sizes.append(reached.detach() + sum(part.detach().abs().sum() for part in gradient.values()))
        return parameters, torch.stack(sizes)

    found, sizes = vmap(one, chunk_size=at_once)(tasks)
    check_steps(sizes, who)
    return dict(found)


def check_steps(
    sizes: Tensor,  # (T, steps)
    who: str,
) -> None:
    """ValueError for the first inner step of a task that is not finite."""
    broken = ~torch.isfinite(sizes)
    if not bool(broken.any()):
        return
    step = int(broken.any(0).nonzero()[0])
    raise _diverged(who, broken[:, step], f"at step {step + 1} of {sizes.shape[1]} the loss of {{}} or its gradient is")


def check_answers(
    answers: Tensor,  # (T, ...)
    who: str,
) -> None:
    """ValueError for what the adapted networks answer, or its loss, where it is not finite for a task."""
    broken = ~torch.isfinite(answers.detach()).flatten(1).all(1)
    if bool(broken.any()):
        raise _diverged(who, broken, "after the last step the answers to the queries of {} are")


def _diverged(who: str, broken: Tensor, what: str) -> ValueError:
    tasks = broken.nonzero().flatten().tolist()
    return ValueError(
        f"the inner loop of {who} diverged: {what.format(f'task {tasks[0]}')} not finite (of {len(tasks)} of "
        f"{len(broken)} tasks): lower inner_rate, or scale the inputs to about 1"
    )


def check_way(name: str, way: int | None, n_classes: int) -> None:
    """Refuse tasks of another number of classes than a last layer has (`ValueError`); None is for any number."""
    if way not in (None, n_classes):
        raise ValueError(
            f"{name!r} has a last layer for {way} classes, but the task has {n_classes}: pass tasks of {way} classes, "
            "or train it without the option way, for any number"
        )

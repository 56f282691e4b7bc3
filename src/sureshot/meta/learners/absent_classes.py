"""Classes that a task does not have, in a batch whose other tasks do.

Tasks with fewer classes are padded: `Tasks.class_mask` says which are real. To the inference an absent class is one
whose prior mean lies so far below the others that its latent never competes. Every scheme takes its data away
exactly, since a limit of -infinity in floating point would leave large numbers to cancel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from sureshot.gaussian.gram import GramPrior
from sureshot.meta.learners.task_inference import TaskProblem

ABSENT_MEAN = -1e4
"""Prior mean of a class that a task does not have."""


def present_classes(prior_mean: Tensor) -> Tensor:
    """Which classes are real, bool in the shape of the prior mean, (...)."""
    return prior_mean.detach() > ABSENT_MEAN / 10


class WayGroup(NamedTuple):
    """The tasks of a batch that have the same number of classes, without the others' padding."""

    tasks: Tensor  # (t,) their places in the batch
    classes: Tensor  # (t, k) their classes' places among the C
    problem: TaskProblem  # of k classes, labels 0..k-1


def groups_by_way(problem: TaskProblem) -> Iterator[WayGroup]:
    """The batch as groups of equal numbers of classes; one group, as it is, if no class is absent."""
    prior, y, n_classes, weight = problem
    mean = prior.mean.expand(len(y), n_classes, 1)
    present = present_classes(mean).squeeze(-1)
    every = torch.arange(n_classes, device=y.device).expand(len(y), -1)
    if bool(present.all()):
        yield WayGroup(torch.arange(len(y), device=y.device), every, problem)
        return
    ways = present.sum(-1)
    for way in ways.unique().tolist():
        tasks = (ways == way).nonzero().squeeze(-1)
        classes = present[tasks].int().argsort(dim=-1, descending=True, stable=True)[:, :way]
        renumbered = torch.zeros_like(every[tasks]).scatter_(1, classes, every[tasks][:, :way])
        place = classes.unsqueeze(-1)
        gram = prior.gram[tasks]
        if gram.shape[1] > 1:
            gram = gram.gather(1, place.unsqueeze(-1).expand(-1, -1, *gram.shape[2:]))
        of_tasks = None if weight is None else weight[tasks]
        smaller = GramPrior(gram, mean[tasks].gather(1, place))
        yield WayGroup(tasks, classes, TaskProblem(smaller, renumbered.gather(1, y[tasks]), way, of_tasks))

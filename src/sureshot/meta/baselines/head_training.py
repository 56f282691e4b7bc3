"""A new classification layer for each of many tasks, trained by stochastic gradient descent all at once.

All tasks take a step together, with the gradient in closed form.

The layer's rows never leave the span of their start and of the support features. When that has fewer dimensions
than the embedding, the descent runs in coordinates of an orthonormal basis of it, where the iterates are the same.

What a task gets does not depend on its neighbours in the batch or on padding: the random start and the shuffles are
common to all tasks of a call, those of a task with fewer rows or classes being the first of them (on the CPU, where
generators fill tensors in order), and a task with fewer rows pauses while others finish their epoch. Rows of the start
are given to the classes in the order in which they appear in the support: a renumbering of the classes renumbers the
result; another order of the support rows gives other shuffles.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.meta.baselines.heads import Head
from sureshot.meta.baselines.logits import only_present
from sureshot.meta.learners.base import seeded
from sureshot.meta.tasks import TaskRows
from sureshot.ranges import check_counts

_TASKS_AT_ONCE = 250  # their state fits the processor's cache


@dataclass(frozen=True)
class HeadTraining:
    """Settings of the descent, named as in `torch.optim.SGD`; the defaults are those of Chen et al. (2019)."""

    epochs: int = 100
    batch_size: int = 4  # support rows of a step
    learning_rate: float = 0.01
    momentum: float = 0.9
    dampening: float = 0.9
    weight_decay: float = 0.001

    def __post_init__(self) -> None:
        check_counts(0, epochs=self.epochs)
        check_counts(1, batch_size=self.batch_size)
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be positive, got {self.learning_rate}")
        for name in ("momentum", "dampening", "weight_decay"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be in [0, 1), got {getattr(self, name)}")


def train_heads(
    head: Head,
    training: HeadTraining,
    support: TaskRows,  # of embeddings (T, S, D)
    generator: torch.Generator,  # for the start and the shuffles
) -> tuple[Tensor, Tensor]:
    """Matrices (T, C, D) and vectors (T, C) of heads fitted to support embeddings, without gradient."""
    n_rows, width = support.x.shape[1:]
    device = support.x.device
    # Two generators, so that padded classes leave the shuffles alone; float32, so that double precision has the same.
    first, second = torch.randint(2**62, (2,), generator=generator, device=device).tolist()
    start = torch.rand(
        support.n_classes, width + 1, generator=seeded(device, first), device=device, dtype=torch.float32
    )
    keys = torch.rand(n_rows, training.epochs, generator=seeded(device, second), device=device, dtype=torch.float32)
    with torch.no_grad():
        matrix, vector = head.initial(start.to(support.x.dtype))
        fitted = [
            _train_part(head, training, support.select(slice(begin, begin + _TASKS_AT_ONCE)), matrix, vector, keys)
            for begin in range(0, len(support.x), _TASKS_AT_ONCE)
        ]
    return torch.cat([each[0] for each in fitted]), torch.cat([each[1] for each in fitted])


def _train_part(
    head: Head,
    training: HeadTraining,
    support: TaskRows,
    start_matrix: Tensor,  # (C, D)
    start_vector: Tensor,  # (C,)
    keys: Tensor,  # (S, epochs)
) -> tuple[Tensor, Tensor]:
    features, labels, mask = head.features(support.without_padding()), support.one_hot(), support.mask
    real = torch.ones_like(labels[..., 0]) if mask is None else mask.to(labels.dtype)
    if mask is not None:  # real rows first, since the shuffles of a small task are the first of a large one's
        order = mask.long().argsort(dim=1, descending=True, stable=True)
        features, labels = (x.take_along_dim(order[..., None], 1) for x in (features, labels))
        real = real.take_along_dim(order, 1)

    appearance = _order_of_appearance(labels)
    matrix, vector = start_matrix[appearance], start_vector[appearance]
    basis = None
    if features.shape[1] + matrix.shape[1] < features.shape[2]:
        basis, coordinates = torch.linalg.qr(torch.cat([features, matrix], 1).mT)
        features, matrix = coordinates.mT.split([features.shape[1], matrix.shape[1]], 1)

    velocities = torch.zeros_like(matrix), torch.zeros_like(vector)
    fresh = 1.0  # the first gradient enters the momentum undampened
    for epoch_keys in keys.unbind(1):
        order = epoch_keys.expand(real.shape).masked_fill(real == 0, torch.inf).argsort(dim=1)
        shuffled = [x.take_along_dim(order[..., None], 1) for x in (features, labels, real[..., None])]
        for x, y, weight in zip(*(x.split(training.batch_size, 1) for x in shuffled), strict=True):
            rows = weight.sum(1, keepdim=True)
            probabilities = only_present(head.logits(x, matrix, vector), support.class_mask).softmax(-1)
            error = (probabilities - y) * (weight / rows.clamp_min(1))
            gradients = head.gradient(x, error, matrix, vector)
            at_work = None if mask is None else rows[:, 0] > 0
            updated = []
            for value, velocity, gradient in zip((matrix, vector), velocities, gradients, strict=True):
                moved = training.momentum * velocity + fresh * (gradient + training.weight_decay * value)
                if at_work is not None:
                    moving = at_work[..., None] if value.dim() == 3 else at_work
                    new = torch.where(moving, value - training.learning_rate * moved, value)
                    moved = torch.where(moving, moved, velocity)
                else:
                    new = value - training.learning_rate * moved
                updated.append((new, moved))
            (matrix, velocity_matrix), (vector, velocity_vector) = updated
            velocities = velocity_matrix, velocity_vector
            fresh = 1.0 - training.dampening
    return matrix if basis is None else matrix @ basis.mT, vector


def _order_of_appearance(
    labels: Tensor,  # (T, S, C)
) -> Tensor:
    """How many classes appear in the support before each class, (T, C); classes without rows come last."""
    n_rows = labels.shape[1]
    rows = torch.arange(n_rows, device=labels.device)[:, None]
    first = torch.where(labels > 0, rows, n_rows).amin(1)
    return first.argsort(dim=1, stable=True).argsort(dim=1)

"""Heads of many tasks at once against Torch's optimiser and automatic differentiation, one task at a time."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sureshot.meta.baselines import HeadTraining
from sureshot.meta.baselines.head_training import train_heads
from sureshot.meta.baselines.heads import CosineHead, Head, LinearHead
from sureshot.meta.learners.base import seeded
from sureshot.meta.tasks import TaskRows

CPU = torch.device("cpu")
HEADS = [LinearHead(), CosineHead(2.0)]
SHORT = HeadTraining(epochs=7)


def normal(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(*size, generator=seeded(CPU, seed), dtype=torch.float64)


def by_torch(head: Head, training: HeadTraining, support: Tensor, y: Tensor, n_classes: int, seed: int) -> list[Tensor]:
    """One task with `torch.optim.SGD`, from the same start and with the same shuffles."""
    first, second = torch.randint(2**62, (2,), generator=seeded(CPU, seed)).tolist()
    start = torch.rand(n_classes, support.shape[1] + 1, generator=seeded(CPU, first))
    keys = torch.rand(len(support), training.epochs, generator=seeded(CPU, second))
    appearance = list(dict.fromkeys(y.tolist()))
    ranks = [appearance.index(c) for c in range(n_classes)]
    matrix, vector = (value[ranks].clone().requires_grad_() for value in head.initial(start.double()))
    optimiser = torch.optim.SGD(
        [matrix, vector],
        lr=training.learning_rate,
        momentum=training.momentum,
        dampening=training.dampening,
        weight_decay=training.weight_decay,
    )
    for epoch in range(training.epochs):
        for rows in keys[:, epoch].argsort().split(training.batch_size):
            optimiser.zero_grad()
            F.cross_entropy(head.logits(head.features(support[rows]), matrix, vector), y[rows]).backward()
            optimiser.step()
    return [matrix.detach(), vector.detach()]


@pytest.mark.parametrize("width", [5, 40], ids=["full space", "span of the support"])
@pytest.mark.parametrize("head", HEADS, ids=repr)
def test_equals_the_optimiser(head: Head, width: int) -> None:
    support = normal(2, 9, width)
    y = torch.tensor([[2, 0, 1, 1, 2, 0, 0, 1, 2], [0, 0, 0, 1, 1, 1, 2, 2, 2]])
    found = train_heads(head, SHORT, TaskRows(support, y, 3), seeded(CPU, 5))
    for task in range(2):
        expected = by_torch(head, SHORT, support[task], y[task], 3, 5)
        # In the cosine layer only the direction of a row matters, but both are compared.
        torch.testing.assert_close([value[task] for value in found], expected, check_dtype=True)


@pytest.mark.parametrize("head", HEADS, ids=repr)
def test_tasks_of_different_sizes_train_as_if_alone(head: Head) -> None:
    support = normal(2, 9, 6)
    y = torch.tensor([[2, 0, 1, 1, 2, 0, 0, 1, 2], [1, 2, 0, 2, 1, 2, 1, 2, 2]])
    mask = torch.tensor([[True] * 9, [True, False, True, False, True, False, True, False, False]])
    classes = torch.tensor([[True, True, True], [True, True, False]])
    y = torch.where(mask, y, 2)
    found = train_heads(head, SHORT, TaskRows(support, y, 3, mask, classes), seeded(CPU, 5))
    expected = by_torch(head, SHORT, support[1, mask[1]], y[1, mask[1]], 2, 5)
    torch.testing.assert_close([value[1, :2] for value in found], expected)
    torch.testing.assert_close([value[0] for value in found], by_torch(head, SHORT, support[0], y[0], 3, 5))


def test_many_tasks_are_trained_in_parts() -> None:
    support, y = normal(260, 3, 4), torch.tensor([[0, 1, 0]]).expand(260, 3)
    matrix, vector = train_heads(LinearHead(), SHORT, TaskRows(support, y, 2), seeded(CPU))
    alone = train_heads(LinearHead(), SHORT, TaskRows(support[255:256], y[:1], 2), seeded(CPU))
    torch.testing.assert_close([matrix[255:256], vector[255:256]], list(alone))


def test_published_settings_fit_separated_classes() -> None:
    y = torch.arange(5).repeat_interleave(5)[None]
    support = 8 * torch.eye(5, dtype=torch.float64).repeat_interleave(5, 0)[None] + normal(1, 25, 5)
    matrix, vector = train_heads(LinearHead(), HeadTraining(), TaskRows(support, y, 5), seeded(CPU))
    assert LinearHead().logits(support, matrix, vector).argmax(-1).equal(y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": -1}, "epochs must be at least 0, got -1"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"momentum": 1.0}, r"momentum must be in \[0, 1\), got 1.0"),
    ],
)
def test_settings_out_of_range(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HeadTraining(**options)  # type: ignore[arg-type]

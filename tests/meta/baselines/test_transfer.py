"""Feature transfer and Baseline++: pretraining on images, a new layer for each task."""

from __future__ import annotations

import pytest
import torch

from sureshot.meta.baselines import BaselinePlusPlus, FeatureTransfer
from sureshot.meta.baselines.transfer import TransferLearner
from sureshot.meta.learners.base import seeded
from sureshot.meta.tasks import Tasks
from sureshot.networks.backbones import Backbone, make_backbone

CPU = torch.device("cpu")
KINDS = [FeatureTransfer, BaselinePlusPlus]


def projection(n_in: int, n_features: int) -> Backbone:
    """A linear map of vectors."""
    return make_backbone("linear", (n_in,), n_features=n_features)


def images(n_images: int, n_classes: int, width: int, seed: int = 0, batches: int = 1) -> Tasks:
    """Vectors about class means that differ in the first coordinates; no query."""
    generator = seeded(CPU, seed)
    y = torch.randint(n_classes, (batches, n_images), generator=generator)
    x = torch.randn(batches, n_images, width, generator=generator)
    x = x + 4 * torch.eye(n_classes, width)[y]
    return Tasks(x, y, x[:, :0], y[:, :0], n_classes)


@pytest.mark.parametrize("kind", KINDS)
def test_loss_is_the_cross_entropy_of_the_base_classes(kind: type[TransferLearner]) -> None:
    learner = kind(projection(6, 4), n_base_classes=5)  # type: ignore[call-arg]
    tasks = images(8, 5, 6, batches=2)
    layer = learner.base_classes
    logits = layer.head.logits(layer.head.features(learner.embed(tasks.support_x)), layer.matrix, layer.vector)
    chosen = logits.log_softmax(-1).gather(-1, tasks.support_y[..., None])[..., 0]
    torch.testing.assert_close(learner(tasks), -chosen.mean(1))


@pytest.mark.parametrize("kind", KINDS)
def test_pretraining_reaches_new_classes(kind: type[TransferLearner]) -> None:
    """Class means differ in 6 of 60 coordinates; the backbone learns to keep those, which new classes share."""
    learner = kind(projection(60, 6), n_base_classes=6)  # type: ignore[call-arg]
    optimiser = torch.optim.Adam(learner.parameters(), lr=0.02)
    y = torch.arange(3).repeat_interleave(5)[None]
    generator = seeded(CPU, 50)
    means = torch.zeros(40, 3, 60)
    means[..., :6] = torch.randn(40, 3, 6, generator=generator) * 2.5
    x, query = (means.repeat_interleave(5, 1) + torch.randn(40, 15, 60, generator=generator) for _ in range(2))
    y = y.expand(40, 15)

    def accuracy() -> float:
        probabilities = learner.condition(x, y).predict(query)
        return (probabilities.argmax(-1) == y).float().mean().item()

    before = accuracy()
    for step in range(150):
        optimiser.zero_grad()
        learner(images(32, 6, 60, seed=step)).mean().backward()
        optimiser.step()
    assert accuracy() > max(before + 0.1, 0.9)


@pytest.mark.parametrize("kind", KINDS)
def test_episodes_are_refused(kind: type[TransferLearner]) -> None:
    learner = kind(projection(6, 4), n_base_classes=5)  # type: ignore[call-arg]
    tasks = images(8, 5, 6)
    episode = Tasks(tasks.support_x, tasks.support_y, tasks.support_x, tasks.support_y, 5)
    with pytest.raises(ValueError, match=r"is trained on single images: .* got 8 queries and 5 classes"):
        learner(episode)
    with pytest.raises(ValueError, match="labels of 5 base classes, got 0 queries and 3 classes"):
        learner(images(8, 3, 6))


def test_scales_of_the_cosine_follow_the_number_of_classes() -> None:
    assert BaselinePlusPlus(projection(2, 2), n_base_classes=200).base_classes.head.scale == 2.0
    assert BaselinePlusPlus(projection(2, 2), n_base_classes=201).base_classes.head.scale == 10.0
    assert BaselinePlusPlus(projection(2, 2), n_base_classes=201).task_head.scale == 2.0
    assert BaselinePlusPlus(projection(2, 2), n_base_classes=3, base_scale=7.0).base_classes.head.scale == 7.0


def test_settings_out_of_range() -> None:
    with pytest.raises(ValueError, match="n_base_classes must be at least 1, got 0"):
        FeatureTransfer(projection(2, 2), n_base_classes=0)
    with pytest.raises(ValueError, match="task_scale must be positive, got -1"):
        BaselinePlusPlus(projection(2, 2), n_base_classes=3, task_scale=-1)

"""Prototypical networks against distances by hand and against scikit-learn."""

from __future__ import annotations

import pytest
import torch
from sklearn.neighbors import NearestCentroid
from torch import nn

from sureshot.meta.baselines import ProtoNet
from sureshot.meta.learners.base import seeded
from sureshot.meta.tasks import TaskRows, Tasks

CPU = torch.device("cpu")


def learner() -> ProtoNet:
    return ProtoNet(nn.Identity())


def test_logits_are_minus_squared_distances_to_class_means() -> None:
    support = torch.tensor([[[0.0, 0.0], [2.0, 0.0], [4.0, 3.0]]])
    posterior = learner().condition_embedded(TaskRows(support, torch.tensor([[0, 0, 1]]), 2), seeded(CPU))
    query = torch.tensor([[[1.0, 0.0], [1.0, 3.0]]])
    torch.testing.assert_close(posterior.prototypes, torch.tensor([[[1.0, 0.0], [4.0, 3.0]]]))
    torch.testing.assert_close(posterior.logits(query), torch.tensor([[[0.0, -18.0], [-9.0, -9.0]]]))
    torch.testing.assert_close(posterior.predict(query)[0, 1], torch.tensor([0.5, 0.5]))


def test_loss_is_the_cross_entropy_of_the_queries() -> None:
    tasks = Tasks(
        torch.tensor([[[0.0], [1.0]]]),
        torch.tensor([[0, 1]]),
        torch.tensor([[[0.0], [0.5]]]),
        torch.tensor([[0, 1]]),
        2,
    )
    expected = (torch.log1p(torch.tensor(-1.0).exp()) + torch.tensor(2.0).log()) / 2
    torch.testing.assert_close(learner()(tasks), expected.reshape(1))


def test_equals_nearest_mean_classification_of_scikit_learn() -> None:
    generator = seeded(CPU, 3)
    y = torch.arange(3).repeat_interleave(6)
    x = torch.randn(3, 4, generator=generator)[y] + torch.randn(18, 4, generator=generator)
    query = torch.randn(200, 4, generator=generator)
    posterior = learner().condition_embedded(TaskRows(x[None], y[None], 3), seeded(CPU))
    expected = NearestCentroid().fit(x.numpy(), y.numpy()).predict(query.numpy())
    assert posterior.predict(query[None])[0].argmax(-1).tolist() == expected.tolist()


def test_a_class_without_support_has_no_probability() -> None:
    support = torch.tensor([[[0.0], [1.0]]])
    posterior = learner().condition_embedded(TaskRows(support, torch.tensor([[0, 2]]), 3), seeded(CPU))
    probabilities = posterior.predict(torch.tensor([[[0.5]]]))
    torch.testing.assert_close(probabilities, torch.tensor([[[0.5, 0.0, 0.5]]]))


@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_embeddings_far_from_the_origin_keep_their_digits(offset: float) -> None:
    generator = seeded(CPU, 1)
    support = torch.randn(1, 6, 8, generator=generator, dtype=torch.float64)
    query = torch.randn(1, 5, 8, generator=generator, dtype=torch.float64)
    y = torch.tensor([[0, 0, 1, 1, 2, 2]])
    exact = learner().condition_embedded(TaskRows(support, y, 3), seeded(CPU)).logits(query)
    rough = learner().condition_embedded(TaskRows((support + offset).float(), y, 3), seeded(CPU))
    torch.testing.assert_close(rough.logits((query + offset).float()).double(), exact, atol=2e-3, rtol=2e-3)

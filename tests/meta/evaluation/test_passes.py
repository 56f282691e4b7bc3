"""Embeddings once for all tasks, tasks that depend on the seed alone."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from sureshot.data.labelled import LabelledSet
from sureshot.meta.episodes import EpisodeProtocol, EpisodeSampler
from sureshot.meta.evaluation.passes import Exam, default_batch_size, draw_tasks, embed_set, queries_per_pass
from sureshot.meta.learners import ClassLearner, make_learner
from sureshot.networks.backbones import make_backbone


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_embeddings_are_those_of_evaluation_mode_in_any_company() -> None:
    images = torch.randint(0, 256, (600, 1, 16, 16), dtype=torch.uint8, generator=generator())
    learner = make_learner("protonet", make_backbone("conv4", (1, 16, 16), n_filters=4))
    learner.train()
    learner.embed(images[None, :40].float() / 255)  # moves the running statistics
    found = embed_set(learner, images)
    assert learner.training
    learner.eval()
    with torch.no_grad():
        torch.testing.assert_close(found[7:9], learner.backbone(images[7:9].float() / 255), rtol=1e-4, atol=1e-5)


def test_broken_embeddings_are_refused() -> None:
    layer = nn.Linear(3, 2)
    with torch.no_grad():
        layer.weight.fill_(float("nan"))
    with pytest.raises(ValueError, match="not finite"):
        embed_set(make_learner("protonet", layer), torch.zeros(4, 3))


def test_inputs_of_another_shape_are_refused_by_name() -> None:
    learner = make_learner("protonet", make_backbone("conv4", (1, 28, 28), n_filters=2))
    with pytest.raises(ValueError, match=r"1 channel 28x28, got images of 3 channels 32x32"):
        embed_set(learner, torch.zeros(4, 3, 32, 32, dtype=torch.uint8))


def test_the_first_tasks_of_many_are_the_tasks_of_few(data: LabelledSet) -> None:
    sampler = EpisodeSampler(data, EpisodeProtocol(5, 1, 3))
    few, many = draw_tasks(sampler, 40, generator()), draw_tasks(sampler, 600, generator())
    assert len(many) == 600
    assert torch.equal(many.support_x[:40], few.support_x)
    assert torch.equal(many.query_x[:40], few.query_x)
    assert not torch.equal(many.support_x[250:290], few.support_x)


@pytest.mark.parametrize("protocol", [EpisodeProtocol(5, 2, 4), EpisodeProtocol((2, 6), (1, 4), (2, 5), True)])
def test_the_batch_size_changes_nothing(data: LabelledSet, learner: ClassLearner, protocol: EpisodeProtocol) -> None:
    sampler = EpisodeSampler(data, protocol)
    rows, embeddings = draw_tasks(sampler, 11, generator()), embed_set(learner, data.x)

    def run(batch_size: int) -> np.ndarray:
        batches = Exam(sampler, rows, batch_size).adapt(learner, embeddings, generator())
        return np.concatenate([batch.probabilities for batch in batches])

    np.testing.assert_allclose(run(11), run(3), atol=1e-6)


def test_queries_are_predicted_in_parts_when_there_are_many_classes() -> None:
    data = LabelledSet(
        torch.randn(420, 3, generator=generator()), torch.arange(210).repeat(2), tuple(map(str, range(210)))
    )
    sampler = EpisodeSampler(data, EpisodeProtocol(210, 1, 1))
    assert queries_per_pass(210) < 210  # so one task takes several parts
    learner = make_learner("protonet", nn.Identity())
    rows = draw_tasks(sampler, 2, generator())
    (found,) = Exam(sampler, rows, 2).adapt(learner, data.x, generator(), with_latents=True)
    tasks = sampler.gather(rows)
    expected = learner.eval().condition(tasks.support_x, tasks.support_y, 210).predict(tasks.query_x)
    np.testing.assert_allclose(found.probabilities, expected.numpy(), atol=1e-6)
    assert found.mean is not None
    assert found.mean.shape == (2, 210, 210)


def test_batches_shrink_with_the_way() -> None:
    sizes = [default_batch_size(EpisodeProtocol(way, 5, 15)) for way in (2, 5, 20, 75)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 1
    assert default_batch_size(dataclasses.replace(EpisodeProtocol(), way=(2, 75))) == 1

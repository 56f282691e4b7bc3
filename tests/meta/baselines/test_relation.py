"""Relation networks against their definition, pair by pair."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sureshot.meta.baselines import RelationNet
from sureshot.meta.learners import make_learner
from sureshot.meta.tasks import Tasks
from sureshot.networks.backbones import make_backbone

WAY, SHOTS, QUERIES = 3, 2, 2


def learner(side: int = 20, **options: Any) -> RelationNet:
    backbone = make_backbone("conv4", (1, side, side), n_filters=3, n_poolings=2)
    found = make_learner("relationnet", backbone, **options).double()
    assert isinstance(found, RelationNet)
    with torch.no_grad():  # nothing at its initial value, and nothing on a kink
        for place, parameter in enumerate(found.parameters()):
            generator = torch.Generator().manual_seed(place)
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return found


def tasks(side: int = 20) -> Tasks:
    generator = torch.Generator().manual_seed(0)
    labels = [torch.arange(WAY).repeat(rows).expand(2, -1) for rows in (SHOTS, QUERIES)]
    x = [torch.rand(*y.shape, 1, side, side, generator=generator, dtype=torch.float64) for y in labels]
    return Tasks(x[0], labels[0], x[1], labels[1], WAY)


def score(model: RelationNet, class_map: Tensor, query_map: Tensor) -> Tensor:
    """Of one pair of maps (C, H, W), by torch's functions and running statistics."""
    x = torch.cat([class_map, query_map]).unsqueeze(0)
    for block in model.relation.blocks:
        norm = block.normalisation
        x = F.conv2d(x, block.convolution.weight, padding=1)
        x = F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias)
        x = F.relu(x)
        x = F.max_pool2d(x, 2) if min(x.shape[-2:]) > 1 else x
    hidden = F.relu(x.flatten() @ model.relation.hidden.weight.T + model.relation.hidden.bias)
    found: Tensor = (hidden @ model.relation.score.weight.T + model.relation.score.bias).squeeze()
    return found.sigmoid()


@pytest.mark.parametrize("side", [20, 16])  # maps of 5 and of 4 pixels
def test_scores_probabilities_and_loss_by_hand(side: int) -> None:
    model, around = learner(side).eval(), tasks(side)
    maps = model.backbone.map_shape
    with torch.no_grad():
        posterior = model.condition(around.support_x, around.support_y)
        found, losses = posterior.predict(around.query_x), model(around)
        for task in range(2):
            support = model.backbone(around.support_x[task]).unflatten(1, maps)
            query = model.backbone(around.query_x[task]).unflatten(1, maps)
            means = [support[around.support_y[task] == c].mean(0) for c in range(WAY)]
            scores = torch.stack([torch.stack([score(model, mean, row) for mean in means]) for row in query])
            torch.testing.assert_close(found[task], scores / scores.sum(-1, keepdim=True), rtol=1e-9, atol=1e-12)
            latents = posterior.latents(around.query_x).mean[task]
            torch.testing.assert_close(latents.exp(), scores, rtol=1e-9, atol=1e-12)
            target = F.one_hot(around.query_y[task], WAY).double()
            torch.testing.assert_close(losses[task], (scores - target).square().mean(), rtol=1e-9, atol=1e-12)


def test_the_gradient_is_the_slope() -> None:
    model, around = learner().train(), tasks()
    parameters = list(model.parameters())
    slopes = torch.autograd.grad(model(around).sum(), parameters)
    for place, (parameter, slope) in enumerate(zip(parameters, slopes, strict=True)):
        direction = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(place), dtype=torch.float64)
        ends = []
        for step in (1e-6, -2e-6):
            with torch.no_grad():
                parameter.add_(step * direction)
                ends.append(model(around).sum())
        with torch.no_grad():
            parameter.add_(1e-6 * direction)
        torch.testing.assert_close((slope * direction).sum(), (ends[0] - ends[1]) / 2e-6, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("passes", [1, 2])
def test_statistics_in_training_are_those_of_a_pass(passes: int) -> None:
    model, around = learner(tasks_per_pass=passes).train(), tasks()
    alone = torch.cat([model(around.select(slice(task, task + 1))) for task in range(2)])
    assert torch.allclose(model(around), alone, rtol=1e-9) == (passes == 1)


def test_padding_does_not_enter_statistics_of_pairs() -> None:
    model, around = learner().train(), tasks()
    rows = torch.full((2, 2, 1, 20, 20), 7.0, dtype=torch.float64)
    y = torch.cat([around.query_y, torch.zeros(2, 2, dtype=torch.int64)], 1)
    mask = (torch.arange(y.shape[1]) < y.shape[1] - 2).expand_as(y)
    padded = Tasks(around.support_x, around.support_y, torch.cat([around.query_x, rows], 1), y, WAY, None, mask)
    torch.testing.assert_close(model(padded), model(around), rtol=1e-10, atol=1e-12)


def test_backbones_without_maps_are_refused() -> None:
    with pytest.raises(ValueError, match="relationnet compares feature maps, and backbone 'mlp' gives vectors"):
        make_learner("relationnet", make_backbone("mlp", (8,)))
    with pytest.raises(ValueError, match="hidden must be at least 1"):
        learner(hidden=0)

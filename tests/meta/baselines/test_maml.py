"""MAML against loops written by hand, with and without batch normalisation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from sureshot.meta.baselines import MAML
from sureshot.meta.learners import make_learner
from sureshot.meta.tasks import Tasks
from sureshot.networks.backbones import make_backbone
from sureshot.networks.backbones.base import Backbone

WAY, SHOTS, QUERIES = 3, 2, 3


def tasks(*shape: int, n_tasks: int = 2) -> Tasks:
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(n_tasks, WAY, *shape, generator=generator, dtype=torch.float64)
    labels = [torch.arange(WAY).repeat(rows).expand(n_tasks, -1) for rows in (SHOTS, QUERIES)]
    x = [
        centres[:, y[0]] + 0.3 * torch.randn(*y.shape, *shape, generator=generator, dtype=torch.float64) for y in labels
    ]
    return Tasks(x[0], labels[0], x[1], labels[1], WAY)


class Attentive(Backbone):
    """A layer of a transformer on columns, two to a place."""

    name = "attentive"

    def __init__(self, input_shape: tuple[int, ...], *, seed: int = 0) -> None:
        super().__init__(input_shape, 4, {"seed": seed})
        self.embed = nn.Linear(2, 4)
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)

    def encode(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(self.embed(x.unflatten(-1, (-1, 2)))).mean(1)
        return found


def learner(kind: str, **options: Any) -> MAML:
    backbone: Backbone = {
        "attentive": lambda: Attentive((4,)),
        "mlp": lambda: make_backbone("mlp", (4,), n_features=3, hidden=(5,), seed=1),
        "conv4": lambda: make_backbone("conv4", (1, 16, 16), n_filters=3, seed=1),
    }[kind]()
    found = make_learner("maml", backbone, **{"inner_steps": 3, "inner_rate": 0.4} | options).double()
    assert isinstance(found, MAML)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():  # the last layer of the network starts at zero, and hides what is before it
        for parameter in found.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return found


def by_hand(model: MAML, around: Tasks, task: int) -> Tensor:
    """The loss of a task by torch's own batch normalisation, of the support and then of the queries."""
    native = make_backbone(**model.backbone.config).double().train()
    names = [name for name, _ in model.backbone.named_parameters()]
    parameters = list(model.backbone.parameters())
    x, y = around.support_x[task], around.support_y[task]
    if model.way is None:
        parameters += [torch.zeros(WAY, 3, dtype=torch.float64, requires_grad=True), torch.zeros(WAY).double()]
        parameters[-1].requires_grad_()
    else:
        parameters += [model.last.weight, model.last.bias]

    def logits(values: list[Tensor], rows: Tensor) -> Tensor:
        features = functional_call(native, dict(zip(names, values, strict=False)), (rows,))
        return features @ values[-2].T + values[-1]

    for _ in range(model.descent.steps):
        loss = F.cross_entropy(logits(parameters, x), y)
        slopes = torch.autograd.grad(loss, parameters, create_graph=not model.descent.first_order)
        parameters = [value - model.descent.rate * slope for value, slope in zip(parameters, slopes, strict=True)]
    return F.cross_entropy(logits(parameters, around.query_x[task]), around.query_y[task])


@pytest.mark.parametrize("way", [None, WAY])
@pytest.mark.parametrize("first_order", [False, True])
@pytest.mark.parametrize("kind", ["mlp", "conv4"])
def test_loss_and_gradient_are_those_of_a_loop_by_hand(kind: str, first_order: bool, way: int | None) -> None:
    model = learner(kind, first_order=first_order, way=way, query_statistics="query")
    around = tasks(4) if kind == "mlp" else tasks(1, 16, 16)
    parameters = list(model.parameters())
    ours = model(around)
    expected = torch.stack([by_hand(model, around, task) for task in range(2)])
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-12)
    found, other = (torch.autograd.grad(losses.sum(), parameters) for losses in (ours, expected))
    torch.testing.assert_close(found, other, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("kind", ["mlp", "attentive"])
def test_the_gradient_is_the_slope(kind: str) -> None:
    model, around = learner(kind, way=WAY), tasks(4)
    parameters = list(model.parameters())
    slopes = torch.autograd.grad(model(around).sum(), parameters)
    for parameter, slope in zip(parameters, slopes, strict=True):
        direction = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
        ends = []
        for step in (1e-6, -2e-6):
            with torch.no_grad():
                parameter.add_(step * direction)
                ends.append(model(around).sum())
        with torch.no_grad():
            parameter.add_(1e-6 * direction)
        torch.testing.assert_close((slope * direction).sum(), (ends[0] - ends[1]) / 2e-6, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("statistics", ["support", "query"])
def test_a_batch_of_tasks_is_its_tasks_one_at_a_time(statistics: str) -> None:
    model, around = learner("conv4", query_statistics=statistics), tasks(1, 16, 16, n_tasks=3)
    together = model.condition(around.support_x, around.support_y).predict(around.query_x)
    losses = model(around)
    for task in range(3):
        alone = around.select(slice(task, task + 1))
        found = model.condition(alone.support_x, alone.support_y).predict(alone.query_x)
        torch.testing.assert_close(found[0], together[task], rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(model(alone)[0], losses[task], rtol=1e-10, atol=1e-12)


def test_company_matters_only_with_statistics_of_the_queries() -> None:
    around = tasks(1, 16, 16)
    for statistics, changes in (("support", False), ("query", True)):
        model = learner("conv4", query_statistics=statistics)
        assert model.transductive == changes
        posterior = model.condition(around.support_x, around.support_y)
        whole, first = posterior.predict(around.query_x)[:, :2], posterior.predict(around.query_x[:, :2])
        assert torch.allclose(whole, first, rtol=1e-9) != changes


def test_padding_does_not_enter_batch_statistics() -> None:
    model, around = learner("conv4"), tasks(1, 16, 16)
    rows = torch.full((2, 2, 1, 16, 16), 50.0, dtype=torch.float64)
    more = torch.cat([around.support_x, rows], 1), torch.cat([around.query_x, rows], 1)
    labels = [torch.cat([y, torch.zeros(2, 2, dtype=torch.int64)], 1) for y in (around.support_y, around.query_y)]
    masks = [torch.arange(y.shape[1]).expand_as(y) < y.shape[1] - 2 for y in labels]
    padded = Tasks(more[0], labels[0], more[1], labels[1], WAY, *masks)
    torch.testing.assert_close(model(padded), model(around), rtol=1e-10, atol=1e-12)
    posterior = model.condition(more[0], labels[0], WAY, masks[0])
    expected = model.condition(around.support_x, around.support_y).predict(around.query_x)
    torch.testing.assert_close(posterior.predict(around.query_x), expected, rtol=1e-10, atol=1e-12)


def test_a_last_layer_that_starts_at_zero_takes_any_classes() -> None:
    model, around = learner("mlp"), tasks(4)
    number = torch.tensor([2, 0, 1])
    renumbered = replace(around, support_y=number[around.support_y], query_y=number[around.query_y])
    torch.testing.assert_close(model(renumbered), model(around))
    two = around.support_y[0] < 2
    assert model.condition(around.support_x[:, two], around.support_y[:, two]).predict(around.query_x).shape[-1] == 2


def test_a_start_of_each_class_is_for_so_many_classes() -> None:
    model, around = learner("mlp", way=5), tasks(4)
    with pytest.raises(ValueError, match=r"'maml' has a last layer for 5 classes, but the task has 3: .* option way"):
        model(around)


def test_presets() -> None:
    published = make_learner("maml", make_backbone("identity", (3,)), preset="paper")
    assert isinstance(published, MAML)
    assert (published.descent.steps, published.descent.rate, published.way) == (5, 0.01, 5)
    assert published.config["options"] == {"inner_rate": 0.01, "way": 5, "query_statistics": "query"}
    changed = make_learner("maml", make_backbone("identity", (3,)), preset="paper", way=3)
    assert isinstance(changed, MAML)
    assert (changed.way, changed.descent.rate) == (3, 0.01)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"query_statistics": "own"}, "'maml': query_statistics must be one of 'support', 'query', got 'own'"),
        ({"way": 1}, "way must be at least 2"),
        ({"inner_steps": 0}, "inner_steps must be at least 1"),
        ({"tasks_per_pass": 2}, "passes every task by itself"),
        ({"shots": 2}, "learner 'maml' has no option 'shots'; options: inner_steps, "),
        ({"inner_rat": 2}, r"no option 'inner_rat' \(did you mean 'inner_rate'"),
        ({"inner_steps": 1.5}, "inner_steps must be a whole number, got 1.5"),
        ({"first_order": "no"}, "first_order must be true or false, got 'no'"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_learner("maml", make_backbone("identity", (3,)), **options)


def test_recurrent_backbones_and_those_without_weights_are_refused() -> None:
    with pytest.raises(ValueError, match="does not know the recurrent layers of backbone 'lstm'"):
        make_learner("maml", make_backbone("lstm", (5, 2)))
    around = tasks(4)
    with pytest.raises(ValueError, match="no weights to adapt: take another backbone, or the option way"):
        make_learner("maml", make_backbone("identity", (4,))).condition(around.support_x, around.support_y)


def test_answers_that_are_not_finite_are_told_as_a_diverged_loop() -> None:
    model, around = learner("mlp"), tasks(4)
    query = torch.cat([around.query_x[:1], torch.full_like(around.query_x[1:], 1e308)])
    said = r"inner loop of maml diverged: after the last step the answers to the queries of task 1 .* \(of 1 of 2 tasks"
    with pytest.raises(ValueError, match=said):
        model.condition(around.support_x, around.support_y).predict(query)
    with pytest.raises(ValueError, match=said):
        model(replace(around, query_x=query))


def test_images_of_another_size_or_of_bytes_are_refused() -> None:
    model, around = learner("conv4"), tasks(1, 16, 16)
    posterior = model.condition(around.support_x, around.support_y)
    with pytest.raises(ValueError, match=r"like the support, images of 1 channel 16x16 .*, got images .* 20x16"):
        posterior.predict(torch.zeros(2, 3, 1, 20, 16, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"like the support, .* in torch.float64, got .* in torch.uint8"):
        posterior.predict(torch.zeros(2, 3, 1, 16, 16, dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"expected floating-point inputs, got torch.uint8: pixels"):
        model.condition(around.support_x.to(torch.uint8), around.support_y)

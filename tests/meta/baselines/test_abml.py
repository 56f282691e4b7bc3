"""ABML: its divergence and objective against torch's distributions, its gradients against finite differences."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Gamma, Normal, kl_divergence

from sureshot.meta.baselines import ABML
from sureshot.meta.baselines.abml import divergence, minus_log_hyper_prior
from sureshot.meta.gradient.inner_loop import Descent, adapt
from sureshot.meta.gradient.learner import Rows
from sureshot.meta.learners import make_learner
from sureshot.meta.tasks import Tasks
from sureshot.networks.backbones import make_backbone


def learner(**options: Any) -> ABML:
    backbone = make_backbone("mlp", (3,), n_features=4, hidden=(5,))
    given = {"draws": 3, "inner_steps": 2, "initial_deviation": 0.2, "outer_weight": 0.01, "hyper_tasks": 50}
    found = make_learner("abml", backbone, **given | options).double()
    assert isinstance(found, ABML)
    return found


def tasks() -> Tasks:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(2).repeat(3).expand(2, -1)
    x = torch.randn(2, 2, 6, 3, generator=generator, dtype=torch.float64) + 2 * y[..., None]
    return Tasks(x[0], y, x[1], y, 2)


def two_gaussians() -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(0)

    def drawn() -> Tensor:
        return torch.randn(3, 2, generator=generator, dtype=torch.float64)

    q, p = ({"a": drawn(), "log_deviation.a": drawn(), "bias": drawn()} for _ in range(2))
    return q, p


def test_divergence_is_torchs() -> None:
    q, p = two_gaussians()
    ours = divergence(q, p)
    normals = [Normal(each["a"], each["log_deviation.a"].exp()) for each in (q, p)]
    torch.testing.assert_close(ours, kl_divergence(*normals).sum(), rtol=1e-12, atol=0)
    assert divergence(p, p).item() == 0


def test_hyper_prior_is_torchs_up_to_a_constant() -> None:
    def by_torch(p: dict[str, Tensor]) -> Tensor:
        precision = (-2 * p["log_deviation.a"]).exp()
        zero, one = torch.zeros((), dtype=torch.float64), torch.ones((), dtype=torch.float64)
        log_density = Normal(zero, one).log_prob(p["a"]).sum() + Gamma(one, 0.01 * one).log_prob(precision).sum()
        return -log_density

    one, other = two_gaussians()
    difference = by_torch(one) - by_torch(other)
    torch.testing.assert_close(minus_log_hyper_prior(one) - minus_log_hyper_prior(other), difference)


def test_an_inner_step_descends_the_bound_by_common_draws() -> None:
    """One step of size epsilon lowers the bound by epsilon times the squared slope, taken by finite differences."""
    model, rate = learner(), 1e-4
    around = tasks().select(slice(0, 1))
    start = {name: value.detach() for name, value in model.start(2).items()}
    generator = torch.Generator().manual_seed(4)
    noise = model.noise(start, 1, generator)
    rows = Rows.of(around.support)
    task = Rows(*(part[0] for part in rows))
    moved = {name: value + 0.1 for name, value in start.items()}  # away from the prior, where the divergence counts

    def bound(parameters: dict[str, Tensor]) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for draw in range(model.draws):
            weights = dict(parameters)
            for name, drawn in noise[0].items():
                weights[name] = parameters[name] + parameters[f"log_deviation.{name}"].exp() * drawn[draw]
            inside = {name: weights[f"backbone.{name}"] for name, _ in model.backbone.named_parameters()}
            features = torch.func.functional_call(model.backbone, inside, (task.x,))
            logits = features @ weights["matrix"].T + weights["vector"]
            total = total + torch.nn.functional.cross_entropy(logits, task.y) / model.draws
        q = {name: value for name, value in parameters.items() if f"log_deviation.{name}" in start}
        for name, mean in q.items():
            pair = [Normal(p[name], p[f"log_deviation.{name}"].exp()) for p in (parameters, start)]
            assert mean.shape == pair[0].mean.shape
            total = total + model.inner_weight * kl_divergence(*pair).sum()
        return total

    def loss(parameters: dict[str, Tensor], step: int, rows: Rows) -> Tensor:
        networks = model.networks(parameters, noise[step])
        logits = torch.func.vmap(lambda network: model.logits(network, rows.x, rows.real))(networks)
        return rows.surprise(logits) + model.penalty(start, parameters, inner=True)

    torch.testing.assert_close(loss(moved, 0, task), bound(moved), rtol=1e-10, atol=0)
    after = adapt(moved, loss, rows, Descent(1, rate), "ours")
    for name, value in moved.items():
        direction = torch.randn(value.shape, generator=generator, dtype=torch.float64)
        ends = [bound({**moved, name: value + sign * 1e-5 * direction}) for sign in (1, -1)]
        step = (value - after[name][0]) / rate
        torch.testing.assert_close((step * direction).sum(), (ends[0] - ends[1]) / 2e-5, rtol=1e-5, atol=1e-6)


def test_the_outer_loss_is_likelihood_divergence_and_hyper_prior() -> None:
    plain, whole = learner(outer_weight=0.0), learner()
    model_start = whole.start(2)
    noise = whole.noise(model_start, 2, torch.Generator().manual_seed(1))
    support = Rows.of(tasks().support)
    adapted = whole._adapted(model_start, support, noise, whole.descent)
    found = whole(tasks(), torch.Generator().manual_seed(1)) - plain(tasks(), torch.Generator().manual_seed(1))
    for task in range(2):
        own = {name: value[task] for name, value in adapted.items()}
        shared = minus_log_hyper_prior(whole.start(1)) / 50
        expected = 0.01 * (divergence(own, model_start) + shared)
        torch.testing.assert_close(found[task], expected, rtol=1e-8, atol=1e-10)


def test_the_loss_of_queries_is_expected_over_draws() -> None:
    model = learner(outer_weight=0.0)
    start = model.start(2)
    noise = model.noise(start, 2, torch.Generator().manual_seed(1))
    support = Rows.of(tasks().support)
    adapted = {name: value[0] for name, value in model._adapted(start, support, noise, model.descent).items()}
    expected = torch.zeros((), dtype=torch.float64)
    for draw in range(model.draws):
        weights = {
            name: value + adapted[f"log_deviation.{name}"].exp() * noise[-1][name][draw] if name in noise[-1] else value
            for name, value in adapted.items()
        }
        inside = {name: weights[f"backbone.{name}"] for name, _ in model.backbone.named_parameters()}
        features = torch.func.functional_call(model.backbone, inside, (tasks().query_x[0],))
        logits = features @ weights["matrix"].T + weights["vector"]
        expected = expected + torch.nn.functional.cross_entropy(logits, tasks().query_y[0]) / model.draws
    found = model(tasks(), torch.Generator().manual_seed(1))[0]
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=0)


def test_predictions_are_means_over_draws() -> None:
    model = learner(draws=4)
    posterior = model.condition(tasks().support_x, tasks().support_y, generator=torch.Generator().manual_seed(2))
    networks = {name: value[0] for name, value in posterior.networks.items()}  # type: ignore[attr-defined]
    expected = torch.zeros(6, 2, dtype=torch.float64)
    for draw in range(4):
        inside = {name.removeprefix("backbone."): part[draw] for name, part in networks.items() if "." in name}
        features = torch.func.functional_call(model.backbone, inside, (tasks().query_x[0],))
        expected += (features @ networks["matrix"][draw].T + networks["vector"][draw]).softmax(-1) / 4
    torch.testing.assert_close(posterior.predict(tasks().query_x)[0], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("options", [{"draws": 0}, {"initial_deviation": 0.0}, {"inner_weight": -1.0}])
def test_bad_options(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must (be at least 1|be positive|not be negative)"):
        learner(**options)

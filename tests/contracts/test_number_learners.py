"""The contract of every few-shot learner of numbers; a new name fails here until it has a case.

In float64, where whatever should be equal agrees to rounding.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sureshot.meta.functions import FunctionProtocol, load_functions
from sureshot.meta.functions.source import with_context
from sureshot.meta.learners.base import seeded
from sureshot.meta.learners.functions import FunctionPosterior, RegressionLearner
from sureshot.meta.processes import PROCESS_NAMES, ExactProcess, make_process
from sureshot.meta.tasks import Tasks
from sureshot.meta.training import load_learner
from sureshot.meta.training.checkpoint import save_checkpoint

SAME = {"rtol": 1e-10, "atol": 1e-10}
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Case:
    label: str
    name: str
    options: dict[str, Any] = field(default_factory=dict)
    widths: tuple[int, int] = (1, 1)
    samples: bool = False

    def build(self, seed: int = 0) -> RegressionLearner:
        """With weights that say something, the last layers' too."""
        learner = make_process(self.name, *self.widths, seed=seed, **self.options).double()
        generator = seeded(CPU, 5)
        with torch.no_grad():
            for parameter in learner.parameters():
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        return learner


SMALL = {"width": 16, "layers": 2}
CASES = [
    Case("cnp", "cnp", SMALL),
    Case("cnp in two dimensions", "cnp", SMALL, (2, 3)),
    Case("anp", "anp", {**SMALL, "heads": 4}),
    Case("anp in two dimensions", "anp", {**SMALL, "heads": 2, "blocks": 0}, (2, 3)),
    Case("np", "np", {**SMALL, "latent": 6, "draws_prediction": 5}, samples=True),
    Case("convcnp", "convcnp", {"width": 6, "points_per_unit": 8.0, "dilations": (1, 2)}),
    Case("convcnp in two dimensions", "convcnp", {"width": 4, "points_per_unit": 4.0, "dilations": (1,)}, (2, 3)),
    Case("dkt", "dkt_regression", {"hidden": (8,), "lengthscale": 0.5}),
    Case("dkt on normalised targets", "dkt_regression", {"hidden": (8,), "normalise": True}, (2, 3)),
    Case("dkt with a spectral mixture", "dkt_regression", {"hidden": (), "kernel": "spectral_mixture"}),
    Case(
        "dkt of several kernels",
        "dkt_regression",
        {"hidden": (8,), "kernel": "spectral_mixture", "kernels": 3, "mean": (4,)},
    ),
]


def each(cases: list[Case] = CASES) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=[case.label for case in cases])


def tasks_of(case: Case, n_tasks: int = 4, context: tuple[int, int] = (1, 7), targets: int = 5) -> Tasks:
    """Tasks of functions, contexts of different sizes."""
    generator, (inputs, outputs) = seeded(CPU, 3), case.widths
    drawn = load_functions("functions", family="rbf").train.sample(
        n_tasks, FunctionProtocol(context, targets), generator
    )

    def widened(x: torch.Tensor, width: int) -> torch.Tensor:
        return torch.cat([(0.7 + 0.6 * place) * x + 0.1 * place for place in range(width)], -1).double()

    return replace(
        drawn,
        support_x=widened(drawn.support_x, inputs),
        support_y=widened(drawn.support_y, outputs),
        query_x=widened(drawn.query_x, inputs).flip(1),
        query_y=widened(drawn.query_y, outputs).flip(1),
    )


def answers(posterior: FunctionPosterior, tasks: Tasks) -> tuple[np.ndarray, ...]:
    found = posterior.moments(tasks.query_x)
    parts = (found.mean, found.deviation, posterior.log_density(tasks.query_x, tasks.query_y))
    return tuple(part.numpy() for part in parts)


def same(found: tuple[np.ndarray, ...], expected: tuple[np.ndarray, ...]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, **SAME)


def test_every_learner_has_a_case() -> None:
    assert {case.name for case in CASES} == set(PROCESS_NAMES)


@each()
def test_losses_and_their_gradients(case: Case) -> None:
    learner, tasks = case.build(), tasks_of(case)
    losses = learner(tasks, seeded(CPU))
    assert losses.shape == (4,)
    assert bool(losses.isfinite().all())
    losses.mean().backward()
    for name, parameter in learner.named_parameters():
        if not parameter.requires_grad:
            continue
        assert parameter.grad is not None, name
        assert bool(parameter.grad.isfinite().all()), name
        assert float(parameter.grad.abs().sum()) > 0, name


@each()
def test_gradients_are_slopes(case: Case) -> None:
    learner, tasks = case.build(), tasks_of(case, 2)

    def loss() -> torch.Tensor:
        return learner(tasks, seeded(CPU)).sum()

    loss().backward()
    parameters = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    generator = seeded(CPU, 1)
    direction = [torch.randn(p.shape, generator=generator, dtype=torch.float64) for p in parameters]
    slope = sum(float((p.grad * d).sum()) for p, d in zip(parameters, direction, strict=True))  # type: ignore[operator]
    values = []
    with torch.no_grad():
        for step in (1e-6, -2e-6):
            for parameter, towards in zip(parameters, direction, strict=True):
                parameter.add_(step * towards)
            values.append(float(loss()))
    assert slope == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-4, abs=1e-5)


@each([case for case in CASES if not case.samples])
def test_losses_of_tasks_by_themselves(case: Case) -> None:
    learner, tasks = case.build(), tasks_of(case)
    together = learner(tasks, seeded(CPU))
    alone = [learner(tasks.select(slice(t, t + 1)), seeded(CPU)) for t in range(len(tasks))]
    torch.testing.assert_close(together, torch.cat(alone), **SAME)


@each()
def test_contexts_of_different_sizes_as_each_alone(case: Case) -> None:
    """In one batch, padded, and each without padding: the same answers."""
    learner, tasks = case.build(), tasks_of(case)
    together = answers(learner.adapt(tasks), tasks)
    assert tasks.support_mask is not None
    sizes = tasks.support_mask.sum(1).tolist()
    assert len(set(sizes)) > 1
    for t, size in enumerate(sizes):
        one = with_context(tasks.select(slice(t, t + 1)), size)
        posterior = learner.condition(one.support_x, one.support_y)
        alone = answers(posterior, one)
        same(alone[:2], tuple(part[:, t : t + 1] for part in together[:2]))
        np.testing.assert_allclose(alone[2], together[2][t : t + 1], **SAME)


@each()
def test_whatever_padding_holds(case: Case) -> None:
    learner, tasks = case.build(), tasks_of(case)
    mask = tasks.support_mask
    assert mask is not None
    spoilt = [part.masked_fill(~mask.unsqueeze(-1), torch.nan) for part in (tasks.support_x, tasks.support_y)]
    expected = answers(learner.adapt(tasks), tasks)
    same(answers(learner.condition(*spoilt, mask), tasks), expected)


@each()
def test_the_order_of_the_context_does_not_matter(case: Case) -> None:
    learner, tasks = case.build(), tasks_of(case, context=(6, 6))
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    turned = learner.condition(tasks.support_x[:, order], tasks.support_y[:, order])
    same(answers(turned, tasks), answers(learner.adapt(tasks), tasks))


@each()
def test_answers_do_not_depend_on_the_queries_beside(case: Case) -> None:
    learner, tasks = case.build(), tasks_of(case)
    posterior = learner.adapt(tasks)
    whole = posterior.moments(tasks.query_x)
    part = posterior.moments(tasks.query_x[:, 2:3])
    for one, other in zip(part[:2], whole[:2], strict=True):
        torch.testing.assert_close(one, other[:, :, 2:3], **SAME)
    torch.testing.assert_close(part.weight, whole.weight, **SAME)


@each()
def test_predictions_are_moments_of_the_mixture(case: Case) -> None:
    learner, tasks = case.build(), tasks_of(case)
    posterior = learner.adapt(tasks)
    found = posterior.moments(tasks.query_x)
    mean, deviation, weight = (part.numpy() for part in (found.mean, found.deviation, found.weight))
    count = case.options.get("draws_prediction", case.options.get("kernels", 1))
    assert mean.shape == deviation.shape == (count, 4, 5, case.widths[1])
    np.testing.assert_allclose(weight.sum(0), 1, **SAME)
    overall, spread = (part.numpy() for part in posterior.predict(tasks.query_x))
    np.testing.assert_allclose(overall, (weight * mean).sum(0), **SAME)
    np.testing.assert_allclose(spread**2, (weight * (deviation**2 + mean**2)).sum(0) - overall**2, **SAME)
    y = tasks.query_y.numpy()
    parts = np.exp(-0.5 * ((y - mean) / deviation) ** 2) / (np.sqrt(2 * np.pi) * deviation)
    expected = np.log((weight[..., 0] * parts.prod(-1)).sum(0))
    density = posterior.log_density(tasks.query_x, tasks.query_y).numpy()
    np.testing.assert_allclose(density, expected, rtol=1e-8, atol=1e-8)
    assert deviation.min() >= 0.0099


@each()
def test_the_posterior_is_frozen(case: Case) -> None:
    learner, tasks = case.build(), tasks_of(case)
    posterior = learner.adapt(tasks)
    before = answers(posterior, tasks)
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.add_(1.0)
    same(answers(posterior, tasks), before)
    assert learner.training
    assert any(p.requires_grad for p in learner.parameters())
    assert not posterior.moments(tasks.query_x).mean.requires_grad


@each()
def test_without_context_it_is_the_prior(case: Case) -> None:
    learner, tasks = case.build(), tasks_of(case)
    none = learner.condition(tasks.support_x[:, :0], tasks.support_y[:, :0])
    assert bool(none.is_prior.all())
    mask = tasks.support_mask
    assert mask is not None
    some = mask.clone()
    some[1] = False
    mixed = learner.condition(tasks.support_x, tasks.support_y, some)
    assert mixed.is_prior.tolist() == [False, True, False, False]
    found, expected = answers(mixed, tasks), answers(none, tasks)
    same(tuple(part[:, 1] for part in found[:2]), tuple(part[:, 1] for part in expected[:2]))
    assert np.isfinite(expected[2]).all()
    assert np.isfinite(learner(replace(tasks, support_mask=some), seeded(CPU)).detach().numpy()).all()


@each()
def test_saved_and_loaded_it_gives_the_same_answers(case: Case, tmp_path: Path) -> None:
    learner, tasks = case.build(seed=3).float(), tasks_of(case)
    save_checkpoint(tmp_path / "best.safetensors", learner, {"data": {"name": "functions"}}, {"episodes": 1}, {})
    loaded = load_learner(tmp_path)
    assert isinstance(loaded, RegressionLearner)
    assert not loaded.training
    same(answers(loaded.double().adapt(tasks), tasks), answers(learner.double().adapt(tasks), tasks))
    assert json.loads(json.dumps(learner.config)) == learner.config
    make_process(**learner.config)


@each()
def test_the_seed_decides_the_weights(case: Case) -> None:
    one, other, third = (make_process(case.name, *case.widths, seed=s, **case.options) for s in (1, 1, 2))
    same_weights = [torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True)]
    assert all(same_weights)
    if case.options.get("hidden", (1,)):
        assert not all(torch.equal(a, b) for a, b in zip(one.parameters(), third.parameters(), strict=True))


@each()
def test_no_global_generator_is_touched(case: Case) -> None:
    before = torch.get_rng_state()
    tasks = tasks_of(case)
    learner = case.build()
    learner(tasks)
    answers(learner.adapt(tasks), tasks)
    assert torch.equal(before, torch.get_rng_state())


Change = Callable[[Tasks], Any]


@each()
def test_wrong_shapes_and_numbers_are_refused(case: Case) -> None:
    learner, tasks = case.build(), tasks_of(case)
    x, y, mask = tasks.support_x, tasks.support_y, tasks.support_mask
    for arguments, said in (
        ((x[0], y[0]), r"context_x must be \(T, rows"),
        ((x[..., :0], y), "context_x must be"),
        ((x, y[:, :-1]), r"context_y \(T, rows"),
        ((x, torch.cat([y, y], -1)), r"context_y \(T, rows"),
        ((x, y, mask[:, :-1]), "mask"),  # type: ignore[index]
        ((x.masked_fill(x == x[0, 0, 0], torch.nan), y), "context_x has NaN"),
        ((x, y.masked_fill(y == y[0, 0, 0], torch.inf)), "context_y has NaN or infinite"),
    ):
        with pytest.raises(ValueError, match=said):
            learner.condition(*arguments)
    posterior = learner.adapt(tasks)
    with pytest.raises(ValueError, match="query must be"):
        posterior.moments(tasks.query_x[:2])
    with pytest.raises(ValueError, match="query must be"):
        posterior.moments(tasks.query_x[0])
    with pytest.raises(ValueError, match="query has NaN or infinite numbers in 4 rows"):
        posterior.moments(torch.full_like(tasks.query_x[:, :1], torch.nan))
    with pytest.raises(ValueError, match="y must be"):
        posterior.log_density(tasks.query_x, tasks.query_y[:, :2])
    with pytest.raises(ValueError, match="query_y has NaN"):
        learner(replace(tasks, query_y=torch.full_like(tasks.query_y, torch.nan)))


@pytest.mark.parametrize("name", PROCESS_NAMES)
def test_options_that_are_none(name: str) -> None:
    with pytest.raises(ValueError, match="no option 'wdith'"):
        make_process(name, 1, 1, wdith=3)
    with pytest.raises(ValueError, match="floor must be"):
        make_process(name, 1, 1, floor=0.0)
    with pytest.raises(ValueError, match="must be a whole number"):
        make_process(name, 1, 1, seed="1")


def test_a_name_that_is_none() -> None:
    with pytest.raises(ValueError, match=r"unknown learner of numbers 'cnb' \(did you mean 'cnp'"):
        make_process("cnb", 1, 1)


def test_the_exact_process_answers_alike() -> None:
    """What is not learnt has the same posterior."""
    data = load_functions("functions", family="mixture").test
    tasks = data.sample(4, FunctionProtocol((0, 7), 5), seeded(CPU))
    posterior = ExactProcess.of(data).adapt(tasks)
    assert posterior.moments(tasks.query_x).mean.shape == (1, 4, 5, 1)
    assert tasks.support_mask is not None
    assert torch.equal(posterior.is_prior, tasks.support_mask.sum(1) == 0)
    with pytest.raises(ValueError, match="no true kernel"):
        ExactProcess.of(load_functions("sinusoids").test)
    with pytest.raises(ValueError, match="origin"):
        ExactProcess(0.1).adapt(replace(tasks, origin=None))

"""What distinguishes the neural processes: means, attention, bounds, shifts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sureshot.meta.functions import FunctionProtocol, load_functions
from sureshot.meta.learners.base import seeded
from sureshot.meta.learners.functions import Context, RegressionLearner
from sureshot.meta.processes import make_process
from sureshot.meta.processes.anp import Attention
from sureshot.meta.processes.latent import LatentNP
from sureshot.meta.processes.layers import Waves
from sureshot.meta.tasks import Tasks

CPU = torch.device("cpu")


def stirred(learner: RegressionLearner, size: float = 0.1) -> RegressionLearner:
    generator, learner = seeded(CPU, 6), learner.double()
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.add_(size * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return learner


def double_tasks(n: int = 6) -> Tasks:
    tasks = load_functions("functions").train.sample(n, FunctionProtocol((0, 8), 6), seeded(CPU, 2))
    names = ("support_x", "support_y", "query_x", "query_y")
    return replace(tasks, **{name: getattr(tasks, name).double() for name in names})


def test_a_conditional_process_knows_the_mean_of_its_pairs() -> None:
    """Twice the same rows say what once says."""
    learner, tasks = stirred(make_process("cnp", 1, 1, width=16)), double_tasks()
    x, y, mask = tasks.support_x, tasks.support_y, tasks.support_mask
    assert mask is not None
    once = learner.condition(x, y, mask).moments(tasks.query_x)
    twice = learner.condition(*(torch.cat([part, part], 1) for part in (x, y, mask))).moments(tasks.query_x)
    for one, other in zip(once, twice, strict=True):
        torch.testing.assert_close(one, other)


def test_inputs_with_waves() -> None:
    x = np.random.default_rng(0).normal(size=(3, 4, 2))
    waves = Waves(2, 3)
    angles = (x[..., None, :] * np.array([1.0, 2.0, 4.0])[:, None]).reshape(3, 4, 6)
    expected = np.concatenate([x, np.sin(angles), np.cos(angles)], -1)
    np.testing.assert_allclose(waves(torch.from_numpy(x)).numpy(), expected, rtol=1e-12)
    assert waves.width == expected.shape[-1]
    expected[..., 2:] /= np.tile(np.repeat([1.0, 2.0, 4.0], 2), 2)
    np.testing.assert_allclose(Waves(2, 3, fading=True)(torch.from_numpy(x)).numpy(), expected, rtol=1e-12)
    np.testing.assert_array_equal(Waves(2, 0)(torch.from_numpy(x)).numpy(), x)


@pytest.mark.parametrize("floor", [0.01, 0.1])
def test_the_floor_of_deviations(floor: float) -> None:
    learner = make_process("cnp", 1, 1, width=16, floor=floor).double()
    with torch.no_grad():
        learner.decoder[-1].bias[1] = -50.0  # type: ignore[index, union-attr, operator]
    tasks = double_tasks()
    deviation = learner.adapt(tasks).moments(tasks.query_x).deviation
    torch.testing.assert_close(deviation, torch.full_like(deviation, floor), rtol=1e-6, atol=1e-9)
    most = -np.log(floor) - 0.5 * np.log(2 * np.pi)
    assert floor != 0.1 or most == pytest.approx(1.38, abs=0.01)


def test_attention_against_numpy() -> None:
    attention = Attention(6, 2, seeded(CPU)).double()
    generator = seeded(CPU, 1)
    queries, keys, values = (torch.randn(2, n, 6, generator=generator, dtype=torch.float64) for n in (3, 4, 4))
    mask = torch.tensor([[True, True, False, True], [True, False, False, False]])
    found = attention(queries, keys, values, mask).detach().numpy()
    weights = {name: value.detach().numpy() for name, value in attention.named_parameters()}
    for task in range(2):
        q, k, v = (
            part[task].numpy() @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]
            for name, part in (("query", queries), ("key", keys), ("value", values))
        )
        heads = []
        for head in (slice(0, 3), slice(3, 6)):
            scores = np.exp(q[:, head] @ k[:, head].T / np.sqrt(3)) * mask[task].numpy()
            heads.append(scores / scores.sum(1, keepdims=True) @ v[:, head])
        expected = np.concatenate(heads, 1) @ weights["out.weight"].T + weights["out.bias"]
        np.testing.assert_allclose(found[task], expected, atol=1e-12)


def latent_process(**options: Any) -> LatentNP:
    learner = stirred(make_process("np", 1, 1, width=12, layers=2, latent=2, **options))
    assert isinstance(learner, LatentNP)
    return learner


def integrated(learner: LatentNP, tasks: Tasks, rows: Context) -> Tensor:
    """Log density (T,) of all rows of each task given its context, by an integral over z on a grid."""
    axis = torch.linspace(-9, 9, 181, dtype=torch.float64)
    z = torch.cartesian_prod(axis, axis).unsqueeze(1)
    moments = learner.answer(z.expand(-1, len(tasks), -1), rows.x)
    density = torch.distributions.Normal(*moments).log_prob(rows.y).squeeze(-1).masked_fill(~rows.mask, 0).sum(-1)
    prior = learner.latent_given(Context.of(tasks.support)).log_prob(z).sum(-1)
    return torch.logsumexp(density + prior, 0) + 2 * np.log(0.1)


@torch.no_grad()
def test_the_bound_is_below_the_density_of_all_rows() -> None:
    learner, tasks = latent_process(draws=400), double_tasks(3)
    gap = integrated(learner, tasks, Context.of(tasks.merged())) - learner.bound(tasks, seeded(CPU))
    assert float(gap.min()) > -1e-3
    assert float(gap.mean()) > 1e-3


@torch.no_grad()
def test_the_loss_is_the_density_of_all_queries() -> None:
    learner, tasks = latent_process(draws=20_000), double_tasks(3)
    queries = Context.of(tasks.query)
    expected = -integrated(learner, tasks, queries) / queries.mask.sum(1)
    torch.testing.assert_close(learner(tasks, seeded(CPU)), expected, rtol=0, atol=0.01)


def test_the_loss_as_published_is_the_bound_over_all_rows() -> None:
    """With a divergence by hand."""
    learner, tasks = latent_process(draws=2, objective="bound"), double_tasks(3)
    assert tasks.support_mask is not None
    merged = tasks.merged()
    with torch.no_grad():
        loss = learner(tasks, seeded(CPU)).numpy()
        proposal = learner.latent_given(Context.of(tasks.merged()))
        prior = learner.latent_given(Context.of(tasks.support))
        noise = torch.randn(2, 3, 2, generator=seeded(CPU), dtype=torch.float64)
        mean, sd = (part.numpy() for part in learner.answer(proposal.mean + proposal.stddev * noise, merged.x)[:2])
    assert merged.mask is not None
    log = -0.5 * ((merged.y.numpy() - mean) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi)
    expected = (log[..., 0] * merged.mask.numpy()).sum(-1).mean(0)
    m, s, m0, s0 = (part.numpy() for part in (proposal.mean, proposal.stddev, prior.mean, prior.stddev))
    divergence = (np.log(s0 / s) + (s**2 + (m - m0) ** 2) / (2 * s0**2) - 0.5).sum(-1)
    np.testing.assert_allclose(loss, -(expected - divergence) / merged.mask.sum(1).numpy(), rtol=1e-10)


@pytest.mark.parametrize("cells", [1, 7, -160])
def test_shifted_contexts_have_shifted_answers(cells: int) -> None:
    learner, tasks = stirred(make_process("convcnp", 1, 1, width=8, points_per_unit=16.0)), double_tasks()
    shift = cells / 16
    moved = replace(tasks, support_x=tasks.support_x + shift, query_x=tasks.query_x + shift)
    for one, other in zip(
        learner.adapt(tasks).moments(tasks.query_x), learner.adapt(moved).moments(moved.query_x), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
    half = replace(tasks, support_x=tasks.support_x + 0.03, query_x=tasks.query_x + 0.03)
    part = learner.adapt(half).moments(half.query_x).mean
    assert float((part - learner.adapt(tasks).moments(tasks.query_x).mean).abs().max()) > 1e-8


def test_shifted_images_have_shifted_answers() -> None:
    learner = stirred(make_process("convcnp", 2, 1, width=4, points_per_unit=4.0, dilations=(1, 2)))
    axis = torch.arange(8, dtype=torch.float64) / 4 - 1
    places = torch.cartesian_prod(axis, axis).unsqueeze(0)
    y = torch.rand(1, 20, 1, generator=seeded(CPU), dtype=torch.float64)
    shift = torch.tensor([0.5, -0.75], dtype=torch.float64)

    def means(by: Tensor | float) -> Tensor:
        return learner.condition(places[:, 10:30] + by, y).moments(places + by).mean

    torch.testing.assert_close(means(0.0), means(shift), rtol=1e-6, atol=1e-6)


def test_a_set_convolution_against_numpy() -> None:
    """The spread of pairs on the grid, before any network."""
    learner = make_process("convcnp", 1, 1, width=2, points_per_unit=4.0, dilations=(1,)).double()
    seen: list[Tensor] = []
    learner.first.register_forward_pre_hook(lambda module, given: seen.append(given[0]))  # type: ignore[union-attr]
    x, y = np.array([-0.3, 0.2, 0.25]), np.array([1.0, -2.0, 0.5])
    learner.condition(torch.tensor(x)[None, :, None], torch.tensor(y)[None, :, None]).moments(
        torch.zeros(1, 1, 1, dtype=torch.float64)
    )
    density, signal = seen[0][0, :, 0].numpy()
    grid = 0.25 * np.arange(-2 - 14, 1 + 14 + 1)
    weights = np.exp(-0.5 * ((x[:, None] - grid) / 0.5) ** 2) * (np.abs(x[:, None] - grid) <= 12.5 * 0.25)
    np.testing.assert_allclose(density, weights.sum(0) / (1 + weights.sum(0)), atol=1e-7)
    np.testing.assert_allclose(signal, (y @ weights) / (weights.sum(0) + 1e-5), atol=1e-6)


def test_many_tasks_pass_the_grid_in_parts() -> None:
    """Left-out rows of places in a square, say: each is a task of its own."""
    learner, generator = make_process("convcnp", 2, 1, width=2, dilations=(1,)), torch.Generator().manual_seed(0)
    x, y, query = (2 * torch.rand(700, n, width, generator=generator) - 1 for n, width in ((3, 2), (3, 1), (2, 2)))
    together = learner.condition(x, y).predict(query)
    for one, alone in zip(together, learner.condition(x[-5:], y[-5:]).predict(query[-5:]), strict=True):
        torch.testing.assert_close(one[-5:], alone)


@pytest.mark.parametrize(
    ("name", "widths", "options", "said"),
    [
        ("convcnp", (3, 1), {}, "one or two dimensions"),
        ("convcnp", (1, 1), {"kernel": 4}, "kernel must be odd"),
        ("convcnp", (1, 1), {"dilations": (1, 0)}, "each of dilations must be at least 1"),
        ("anp", (1, 1), {"width": 12, "heads": 5}, "multiple of heads"),
        ("np", (1, 1), {"draws": 0}, "draws must be at least 1"),
        ("np", (1, 1), {"objective": "elbo"}, "objective must be one of 'likelihood', 'bound', got 'elbo'"),
        ("cnp", (1, 1), {"layers": 0}, "layers must be at least 1"),
        ("cnp", (1, 1), {"waves": -1}, "waves must be at least 0"),
    ],
)
def test_what_is_refused(name: str, widths: tuple[int, int], options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make_process(name, *widths, **options)


def test_inputs_too_far_for_a_grid() -> None:
    learner = make_process("convcnp", 1, 1)
    far = torch.tensor([[[0.0], [1e7]]])
    with pytest.raises(ValueError, match="scale the inputs, or lower points_per_unit"):
        learner.condition(far, far).moments(far)


@pytest.mark.parametrize("width", [1, 2])
def test_queries_that_see_no_context_are_told_the_same_however_far(width: int) -> None:
    learner = stirred(make_process("convcnp", width, 1, width=4, points_per_unit=4.0, dilations=(1, 2)))
    x = torch.rand(1, 5, width, generator=seeded(CPU), dtype=torch.float64)
    posterior = learner.condition(x, x[..., :1])
    beyond = torch.tensor([-1e300, -1e7, -1e2, -9.0, 0.5, 10.0, 50.0, 1e15], dtype=torch.float64)
    queries = torch.full((1, 8, width), 0.5, dtype=torch.float64)
    queries[..., -1] = beyond
    prior = learner.condition(x[:, :0], x[:, :0, :1]).moments(torch.zeros_like(queries))
    among, near = posterior.moments(queries), posterior.moments(queries[:, 4:5])
    for part in ("mean", "deviation"):
        found, alone, unknown = (getattr(moments, part)[0, 0] for moments in (among, near, prior))
        torch.testing.assert_close(found[4:5], alone, rtol=1e-9, atol=1e-9)
        others = torch.cat([found[:4], found[5:]])
        torch.testing.assert_close(others, unknown[:7], rtol=1e-9, atol=1e-9)
        assert float((alone - unknown[0]).abs()) > 1e-3

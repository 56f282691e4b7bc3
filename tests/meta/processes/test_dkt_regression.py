"""Deep kernel transfer for numbers against dense matrices, evidence and predictions."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import logsumexp

from sureshot.meta.functions import FunctionProtocol, load_functions
from sureshot.meta.learners.base import seeded
from sureshot.meta.processes import make_process
from sureshot.meta.processes.dkt_regression import DKTRegression
from sureshot.meta.tasks import Tasks

CPU = torch.device("cpu")
PARTS = ("weights", "means", "scales")


def double_tasks() -> Tasks:
    tasks = load_functions("functions").train.sample(5, FunctionProtocol((1, 6), 4), seeded(CPU, 1))
    names = ("support_x", "support_y", "query_x", "query_y")
    tasks = replace(tasks, **{name: getattr(tasks, name).double() for name in names})
    return replace(
        tasks,
        support_y=torch.cat([tasks.support_y, 3 - 2 * tasks.support_y], -1),
        query_y=torch.cat([tasks.query_y, 3 - 2 * tasks.query_y], -1),
    )


def learner_of(**options: Any) -> DKTRegression:
    learner = make_process("dkt_regression", 1, 2, **options).double()
    assert isinstance(learner, DKTRegression)
    generator = seeded(CPU, 4)
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return learner


def common(learner: DKTRegression, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What functions have in common at inputs (N, D), by the weights of layers: means (N, K), variances of noise."""
    usual = float(learner.log_noise.detach())
    if learner.mean is None:
        return np.zeros((len(x), 2)), np.full(len(x), 0.01**2 + np.exp(usual))
    frequencies = 2.0 ** np.arange(5)
    angles = x * frequencies
    values = np.concatenate([x, np.sin(angles) / frequencies, np.cos(angles) / frequencies], 1)
    layers = [value.detach().numpy() for value in learner.mean.parameters()]
    for place in range(0, len(layers), 2):
        values = (values if place == 0 else np.maximum(values, 0)) @ layers[place].T + layers[place + 1]
    return values[:, :2], 0.01**2 + np.exp(usual + 6 * np.tanh(values[:, 2] / 6))


def dense_kernel(learner: DKTRegression, x1: np.ndarray, x2: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        z1, z2 = (learner.features(torch.from_numpy(x)).numpy() for x in (x1, x2))
    apart = z1[:, None] - z2[None]
    state = {name: value.detach().numpy() for name, value in learner.kernel.named_parameters()}
    if "raw_outputscale" not in state:
        total = np.zeros(apart.shape[:2])
        weights, means, scales = (np.log1p(np.exp(state[f"raw_mixture_{part}"])) for part in PARTS)
        for weight, frequency, deviation in zip(weights, means[:, 0], scales[:, 0], strict=True):
            waves = np.cos(2 * np.pi * frequency * apart) * np.exp(-2 * (np.pi * apart * deviation) ** 2)
            total += weight * waves.prod(-1)
        return total
    scale = np.exp(state["raw_outputscale"])
    if "base_kernel.raw_lengthscale" not in state:
        return np.asarray(scale * np.exp(state["base_kernel.raw_variance"]) * z1 @ z2.T)
    lengthscale = np.exp(state["base_kernel.raw_lengthscale"])
    return np.asarray(scale * np.exp(-0.5 * ((apart / lengthscale) ** 2).sum(-1)))


OPTIONS: list[dict[str, Any]] = [
    {"hidden": ()},
    {"hidden": (5,), "n_features": 3},
    {"hidden": (5,), "normalise": True, "mean": (3,)},
    {"hidden": (), "kernel": "linear", "mean": ()},
    {"hidden": (5,), "n_features": 2, "kernel": "spectral_mixture", "components": 3},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_against_dense_matrices(options: dict[str, Any]) -> None:
    learner, tasks = learner_of(**options), double_tasks()
    posterior = learner.adapt(tasks)
    mean, deviation = (part.numpy() for part in posterior.predict(tasks.query_x))
    with torch.no_grad():
        evidence, losses = learner.log_evidence(tasks).numpy(), learner(tasks).numpy()
    assert tasks.support_mask is not None
    for task, known in enumerate(tasks.support_mask.numpy()):
        x, y = tasks.support_x[task].numpy()[known], tasks.support_y[task].numpy()[known]
        query, truth = tasks.query_x[task].numpy(), tasks.query_y[task].numpy()
        centre, scale = np.zeros(2), np.ones(2)
        if options.get("normalise"):  # by the context and one more row, at zero and of variance one
            centre = y.sum(0) / (len(y) + 1)
            scale = np.sqrt((((y - centre) ** 2).sum(0) + centre**2 + 1) / (len(y) + 1))
        (at_context, noise), (at_query, of_query) = common(learner, x), common(learner, query)
        covariance = dense_kernel(learner, x, x) + np.diag(noise)
        cross = dense_kernel(learner, query, x)
        inverse = np.linalg.inv(covariance)
        residual = (y - centre) / scale - at_context
        expected = centre + scale * (at_query + cross @ inverse @ residual)
        prior = dense_kernel(learner, query, query).diagonal()
        variance = prior + of_query - np.einsum("qn,nm,qm->q", cross, inverse, cross)
        np.testing.assert_allclose(mean[task], expected, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(deviation[task], np.sqrt(variance)[:, None] * scale, rtol=1e-8)
        every, targets = np.concatenate([x, query]), np.concatenate([y, truth])
        whole = dense_kernel(learner, every, every) + np.diag(np.concatenate([noise, of_query]))
        means = centre + scale * np.concatenate([at_context, at_query])
        total = sum(
            stats.multivariate_normal.logpdf(targets[:, k], means[:, k], scale[k] ** 2 * whole) for k in range(2)
        )
        np.testing.assert_allclose(evidence[task], total, rtol=1e-8)
        np.testing.assert_allclose(losses[task], -total / len(every), rtol=1e-8)


@pytest.mark.parametrize(("kernel", "mean"), [("rbf", (3,)), ("spectral_mixture", None)])
def test_several_kernels_are_weighed_by_what_they_say_of_the_context(kernel: str, mean: tuple[int] | None) -> None:
    options: dict[str, Any] = {"hidden": (5,), "kernel": kernel, "mean": mean}
    learner, tasks = learner_of(kernels=3, normalise=True, **options), double_tasks()
    singles = [learner_of(normalise=True, **options) for _ in range(3)]
    states = {name: value for name, value in learner.state_dict().items() if name != "log_share"}
    for m, single in enumerate(singles):
        shapes = {name: value.shape for name, value in single.state_dict().items()}
        own = {name: v if v.shape == shapes[name] else v.unflatten(0, (3, -1))[m] for name, v in states.items()}
        single.load_state_dict({name: v.view(shapes[name]) for name, v in own.items()})
    share = learner.log_share.detach().numpy()
    share = share - logsumexp(share)
    answers = [single.adapt(tasks) for single in singles]
    posterior = learner.adapt(tasks)
    density, mean = posterior.log_density(tasks.query_x, tasks.query_y), posterior.predict(tasks.query_x)[0]
    assert tasks.support_mask is not None
    for task, known in enumerate(tasks.support_mask.numpy()):
        x, y = tasks.support_x[task].numpy()[known], tasks.support_y[task].numpy()[known]
        centre = y.sum(0) / (len(y) + 1)
        scaled = (y - centre) / np.sqrt((((y - centre) ** 2).sum(0) + centre**2 + 1) / (len(y) + 1))
        log = share.copy()
        for m, single in enumerate(singles):
            means, noise = common(single, x)
            covariance = dense_kernel(single, x, x) + np.diag(noise)
            log[m] += stats.multivariate_normal.logpdf((scaled - means).T, np.zeros(len(x)), covariance).sum()
        log -= logsumexp(log)
        each = [one.log_density(tasks.query_x, tasks.query_y)[task].numpy() for one in answers]
        np.testing.assert_allclose(density[task], logsumexp(log[:, None] + each, 0), rtol=1e-8)
        means = [one.predict(tasks.query_x)[0][task].numpy() for one in answers]
        np.testing.assert_allclose(mean[task], np.tensordot(np.exp(log), means, 1), rtol=1e-8)
    evidence = [single.log_evidence(tasks).detach().numpy() for single in singles]
    np.testing.assert_allclose(learner.log_evidence(tasks).detach(), logsumexp(share[:, None] + evidence, 0), rtol=1e-8)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"hidden": (), "mean": (8,), "kernels": 8, "kernel": "matern52"},
        {"hidden": (), "kernels": 3, "kernel": "spectral_mixture"},
    ],
)
def test_left_out_rows_are_answered_as_by_all_others(options: dict[str, Any]) -> None:
    learner, generator = learner_of(**options), seeded(CPU, 5)
    x, y = (torch.randn(9, width, generator=generator, dtype=torch.float64) for width in (1, 2))
    with torch.no_grad():
        found = learner.condition(x[None], y[None]).left_out()
    assert found is not None
    for row in range(9):
        others = torch.arange(9) != row
        alone = learner.condition(x[None, others], y[None, others]).moments(x[None, [row]])
        torch.testing.assert_close(found.mean[:, [row]], alone.mean, rtol=0, atol=1e-10)
        torch.testing.assert_close(found.deviation[:, [row]], alone.deviation, rtol=0, atol=1e-10)
        torch.testing.assert_close(found.weight[:, [row]], alone.weight, rtol=0, atol=1e-10)
    assert learner_of(normalise=True).condition(x[None], y[None]).left_out() is None


def test_answers_are_those_of_double_precision() -> None:
    """Of functions 400 times as high as the noise, of a hundred rows, single precision would lose the weights, too."""
    learner = make_process("dkt_regression", 1, 1, hidden=(), kernels=3, noise=0.05)
    tasks = load_functions("functions").test.sample(6, FunctionProtocol(100, 50), seeded(CPU))
    x, y, query = tasks.support_x, 20 * tasks.support_y, tasks.query_x
    found = learner.condition(x, y).moments(query)
    exact = copy.deepcopy(learner).double().condition(x.double(), y.double()).moments(query.double())
    for one, other in zip(found, exact, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    assert all(parameter.dtype == torch.float32 for parameter in learner.parameters())


def test_on_inputs_themselves_each_has_a_measure_of_its_own() -> None:
    learner = make_process("dkt_regression", 2, 1, hidden=(), kernels=2, mean=None).double()
    assert isinstance(learner, DKTRegression)
    assert learner.log_relevance is not None
    x, y, query = (torch.randn(3, 6, width, generator=seeded(CPU), dtype=torch.float64) for width in (2, 1, 2))
    factors = torch.tensor([0.5, 3.0], dtype=torch.float64)
    scaled = learner.condition(x * factors, y).predict(query * factors)
    with torch.no_grad():
        learner.log_relevance.copy_(factors.log())
    for one, other in zip(learner.condition(x, y).predict(query), scaled, strict=True):
        torch.testing.assert_close(one, other)
    for options in ({"hidden": (5,)}, {"hidden": (), "kernel": "spectral_mixture"}):
        assert make_process("dkt_regression", 2, 1, **options).log_relevance is None


def test_normalised_answers_move_with_the_targets() -> None:
    """Much context fixes centre and scale: targets in other units have the answers in other units."""
    learner = learner_of(hidden=(), normalise=True)
    tasks = load_functions("functions").train.sample(2, FunctionProtocol(200, 3), seeded(CPU))
    x, y, query = tasks.support_x.double(), tasks.support_y.double().expand(-1, -1, 2), tasks.query_x.double()
    mean, deviation = learner.condition(x, y).predict(query)
    moved, wider = learner.condition(x, 1000 + 50 * y).predict(query)
    torch.testing.assert_close(moved, 1000 + 50 * mean, rtol=0.02, atol=20.0)
    assert bool((wider > 20 * deviation).all())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"hidden": (), "n_features": 3}, "without hidden layers there are 1 features"),
        ({"kernel": "rbg"}, "unknown kernel 'rbg': expected one of .*, spectral_mixture"),
        ({"noise": 0.0}, "noise and highest_frequency must be positive"),
        ({"kernels": 0}, "kernels must be at least 1"),
        ({"kernels": 2, "kernel": "linear"}, "different length-scales, and 'linear' has none: pass 1"),
        ({"components": 0}, "components must be at least 1"),
    ],
)
def test_what_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make_process("dkt_regression", 1, 1, **options)

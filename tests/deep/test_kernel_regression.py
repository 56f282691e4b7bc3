"""Deep kernels for numbers against dense normals by SciPy, and what early stopping is for."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm
from torch import Tensor, nn

from sureshot.deep import kernel_regression
from sureshot.deep.kernel_regression import (
    LEAST_NOISE,
    DeepKernel,
    ExactObjective,
    KernelObjective,
    KernelTraining,
    TrainedKernel,
    train_kernel,
)
from sureshot.networks import DivergedError
from sureshot.networks.backbones import make_backbone

OBJECTIVES: tuple[ExactObjective, ...] = ("leave_one_out", "evidence")
RNG = np.random.default_rng(0)
X, Y = torch.from_numpy(RNG.normal(size=(12, 3))), torch.from_numpy(RNG.normal(size=(2, 12)))
WEIGHT = torch.ones(12, dtype=torch.float64)


def small_kernel() -> DeepKernel:
    """Two features of three columns, all double."""
    torch.manual_seed(0)
    kernel = DeepKernel(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))).double().requires_grad_(False)
    with torch.no_grad():
        kernel.log_lengthscale.fill_(-0.3)
        kernel.log_outputscale.fill_(0.4)
        kernel.log_noise.fill_(-1.5)
    return kernel


def covariance(kernel: DeepKernel, x: Tensor) -> np.ndarray:
    """Of latents, by the formula."""
    z = kernel.network(x).detach().numpy()
    squared = ((z[:, None] - z[None]) ** 2).sum(-1)
    found: np.ndarray = math.exp(0.4) * np.exp(-0.5 * squared / math.exp(-0.3) ** 2)
    return found


def dense(kernel: DeepKernel, x: Tensor) -> np.ndarray:
    """Of numbers."""
    found: np.ndarray = covariance(kernel, x) + (math.exp(-1.5) + LEAST_NOISE) * np.eye(len(x))
    return found


def test_evidence_is_the_density_of_all_numbers() -> None:
    kernel = small_kernel()
    normal = multivariate_normal(np.zeros(12), dense(kernel, X))
    expected = -np.mean([normal.logpdf(y) for y in Y.numpy()]) / 12
    assert float(kernel.loss(X, Y, WEIGHT, "evidence")) == pytest.approx(expected, rel=1e-10)


def test_a_row_of_weight_two_is_two_rows_to_the_evidence() -> None:
    kernel, twice = small_kernel(), torch.tensor([*range(12), 3])
    weight = WEIGHT.index_fill(0, torch.tensor([3]), 2.0)
    expected = kernel.loss(X[twice], Y[:, twice], torch.ones(13, dtype=torch.float64), "evidence")
    assert float(kernel.loss(X, Y, weight, "evidence")) == pytest.approx(float(expected), rel=1e-10)


def given_others(kernel: DeepKernel, row: int, weight: np.ndarray) -> tuple[np.ndarray, float]:
    """Mean (2,) and variance of a row's numbers, given all others'."""
    others = np.delete(np.arange(12), row)
    gram = covariance(kernel, X)
    noise = math.exp(-1.5) + LEAST_NOISE
    pull = np.linalg.solve(gram[np.ix_(others, others)] + np.diag(noise / weight[others]), gram[others, row])
    return Y.numpy()[:, others] @ pull, float(gram[row, row] - pull @ gram[others, row] + noise / weight[row])


@pytest.mark.parametrize("heavy", [1.0, 3.0])
def test_rows_are_left_out_in_closed_form(heavy: float) -> None:
    kernel, weight = small_kernel(), WEIGHT.index_fill(0, torch.tensor([5]), heavy)
    expected = 0.0
    for row in range(12):
        mean, variance = given_others(kernel, row, weight.numpy())
        variance += (1 - 1 / float(weight[row])) * (math.exp(-1.5) + LEAST_NOISE)  # of one number, not of their mean
        expected -= norm(mean, math.sqrt(variance)).logpdf(Y.numpy()[:, row]).mean() / 12
    assert float(kernel.loss(X, Y, weight, "leave_one_out")) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_gradients(objective: ExactObjective) -> None:
    kernel = small_kernel()
    names = [name for name, _ in kernel.named_parameters()]
    weight = WEIGHT.index_fill(0, torch.tensor([5]), 2.0)

    def loss(*values: Tensor) -> Tensor:
        state = dict(zip(names, values, strict=True))
        call: Callable[..., Tensor] = torch.func.functional_call
        return call(_Loss(kernel, objective), {f"kernel.{k}": v for k, v in state.items()}, (X, Y, weight))

    values = tuple(value.detach().clone().requires_grad_() for value in kernel.parameters())
    assert torch.autograd.gradcheck(loss, values)


class _Loss(nn.Module):
    """The loss as a module's own call."""

    def __init__(self, kernel: DeepKernel, objective: ExactObjective) -> None:
        super().__init__()
        self.kernel, self.objective = kernel, objective

    def forward(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        return self.kernel.loss(x, y, weight, self.objective)


def test_predictions_are_those_of_the_joint_normal() -> None:
    kernel, known, asked = small_kernel(), np.arange(9), np.arange(9, 12)
    joint = covariance(kernel, X)
    noise = math.exp(-1.5) + LEAST_NOISE
    pull = np.linalg.solve(joint[:9, :9] + noise * np.eye(9), joint[:9, 9:])
    mean, variance = kernel.predict(X[known], Y[:, known], WEIGHT[known], X[asked])
    np.testing.assert_allclose(mean, Y.numpy()[:, :9] @ pull, rtol=1e-9)
    np.testing.assert_allclose(variance, (joint[9:, 9:] - joint[9:, :9] @ pull).diagonal() + noise, rtol=1e-9)


def waves(n_rows: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Rows of ten columns, and a wave along one direction of them with noise .1."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_rows, 10))
    y = np.sin(1.5 * x[:, :5].sum(1) / math.sqrt(5)) + 0.1 * rng.normal(size=n_rows)
    return torch.from_numpy(x).float(), torch.from_numpy(y / 0.7)[None]


def trained(n_rows: int = 60, name: str = "mlp", **settings: object) -> tuple[TrainedKernel, float]:
    """And its mean log density on fresh rows."""
    x, y = waves(n_rows)
    weight = torch.ones(n_rows, dtype=torch.float64)
    options = {"hidden": (16,)} if name == "mlp" else {}
    network = make_backbone(name, (10,), seed=1, **options)
    found = train_kernel(network, x, y, weight, KernelTraining(**settings))  # type: ignore[arg-type]
    new_x, new_y = waves(300, seed=1)
    mean, variance = found.kernel.predict(x, y, weight, new_x)
    logs = -0.5 * ((new_y - mean) ** 2 / variance + (2 * math.pi * variance).log())
    return found, float(logs.mean())


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_without_rows_kept_aside_either_objective_makes_nothing_of_noise(objective: ExactObjective) -> None:
    settings = {"objective": objective, "learning_rate": 0.01, "steps": 300}
    stopped, honest = trained(**settings)
    freely, sure = trained(**settings, kept_aside=0.0)
    assert float(freely.kernel.noise) < 0.1 * float(stopped.kernel.noise)
    assert sure < honest - 3  # nats a row
    assert (freely.step, freely.scores) == (300, ())
    assert not freely.aside.any()


def test_the_best_step_stays() -> None:
    found, _ = trained(steps=150, learning_rate=0.01)
    x, y = waves(60)
    weight = torch.ones(60, dtype=torch.float64)
    assert int(found.aside.sum()) == 12
    seen = ~found.aside
    mean, variance = found.kernel.predict(x[seen], y[:, seen], weight[seen], x[found.aside])
    error = (y[:, found.aside] - mean).numpy()
    factor = (np.square(error / variance.sqrt().numpy()).sum() + 2) / (12 + 2)  # what suits them, with two rows more
    logs = norm(0, (factor * variance).sqrt()).logpdf(error)
    steps, scores = zip(*found.scores, strict=True)
    assert found.step == steps[int(np.argmax(scores))]
    assert 0 < found.step < steps[-1]
    assert float(np.mean(logs)) == pytest.approx(max(scores), rel=1e-6)


def test_a_learnt_direction_beats_all_columns_alike() -> None:
    found, learnt = trained(150, "linear", steps=200, learning_rate=0.01)
    assert dict(found.scores)[found.step] > dict(found.scores)[0] + 0.5
    assert learnt > dict(found.scores)[0] + 0.5


@pytest.mark.parametrize("objective", ["leave_one_out", "svgp"])
def test_many_rows_come_in_batches(objective: KernelObjective, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_regression, "EXACT_ROWS", 60)
    monkeypatch.setattr(kernel_regression, "BATCH_ROWS", 40)
    monkeypatch.setattr(kernel_regression, "INDUCING", 30)
    found, _ = trained(150, "linear", objective=objective, steps=150, learning_rate=0.01)
    assert dict(found.scores)[found.step] > dict(found.scores)[0] + 0.3


def test_the_bound_learns_as_the_evidence_does() -> None:
    found, logs = trained(150, "linear", objective="svgp", steps=200, learning_rate=0.01)
    assert dict(found.scores)[found.step] > dict(found.scores)[0] + 0.5
    assert logs > dict(found.scores)[0] + 0.5


def test_seeds() -> None:
    state = torch.random.get_rng_state()
    one, other, third = (trained(steps=10, seed=seed)[0] for seed in (0, 0, 1))
    assert torch.equal(torch.random.get_rng_state(), state)
    for name, value in one.kernel.state_dict().items():
        assert torch.equal(value, other.kernel.state_dict()[name])
    assert not torch.equal(one.aside, third.aside)


class Broken(nn.Module):
    """Whose features are what a function makes of rows."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.factor, self.function = nn.Parameter(torch.ones(())), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.factor * x)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x * math.nan, "before any step"),
        (lambda x: x[:, 0], "one line of features for each row"),
        (lambda x: (x, x), "gives tuple"),
        (lambda x: x / (not torch.is_grad_enabled()), "at step 0"),
    ],
)
def test_networks_that_do_not_work(function: Callable[[Tensor], Tensor], message: str) -> None:
    x, y = waves(30)
    with pytest.raises(ValueError, match=message):
        train_kernel(Broken(function), x, y, torch.ones(30, dtype=torch.float64), KernelTraining(steps=3))


def test_a_rate_that_is_too_large_is_named() -> None:
    with pytest.raises(DivergedError, match=r"diverged at step \d+.*lower learning rate than 1e\+06"):
        trained(learning_rate=1e6)


@pytest.mark.parametrize("wrong", [{"objective": "loss"}, {"steps": 0}, {"learning_rate": 0.0}, {"kept_aside": 1.0}])
def test_settings_that_are_none(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="must be"):
        KernelTraining(**wrong)  # type: ignore[arg-type]

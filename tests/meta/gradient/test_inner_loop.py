"""The inner loop against loops written by hand, and what it says of one that diverges."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sureshot.meta.gradient.inner_loop import Descent, Parameters, adapt

TASKS, ROWS, WIDTH = 3, 4, 2
RATE, STEPS = 0.3, 3


def start() -> Parameters:
    generator = torch.Generator().manual_seed(0)
    shapes = {"first": (5, WIDTH), "bias": (5,), "last": (5,)}
    return {
        name: torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
        for name, shape in shapes.items()
    }


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(TASKS, ROWS, WIDTH, generator=generator, dtype=torch.float64)
    return x, torch.randn(TASKS, ROWS, generator=generator, dtype=torch.float64)


def loss(parameters: Parameters, step: int, task: tuple[Tensor, Tensor]) -> Tensor:
    """Squared error of a small network, weighed by the step."""
    x, y = task
    found = torch.tanh(x @ parameters["first"].T + parameters["bias"]) @ parameters["last"]
    return (step + 1) * (found - y).square().mean()


def outer(first_order: bool, initial: Parameters) -> Tensor:
    adapted = adapt(initial, loss, data(), Descent(STEPS, RATE, first_order), "ours")
    return torch.func.vmap(lambda p, task: loss(p, 0, task))(adapted, data()).sum()


def by_hand(first_order: bool, initial: Parameters) -> Tensor:
    """The same, one task after another, by `torch.autograd.grad`."""
    total = torch.zeros((), dtype=torch.float64)
    for task in zip(*data(), strict=True):
        parameters = dict(initial)
        for step in range(STEPS):
            slopes = torch.autograd.grad(
                loss(parameters, step, task), list(parameters.values()), create_graph=not first_order
            )
            parameters = {
                name: value - RATE * slope for (name, value), slope in zip(parameters.items(), slopes, strict=True)
            }
        total = total + loss(parameters, 0, task)
    return total


@pytest.mark.parametrize("first_order", [False, True])
def test_loss_and_gradient_are_those_of_a_loop_by_hand(first_order: bool) -> None:
    initial = start()
    ours, other = outer(first_order, initial), by_hand(first_order, initial)
    torch.testing.assert_close(ours, other, rtol=1e-12, atol=0)
    slopes = [torch.autograd.grad(value, list(initial.values())) for value in (ours, other)]
    torch.testing.assert_close(slopes[0], slopes[1], rtol=1e-10, atol=1e-12)


def test_the_second_order_gradient_is_the_slope() -> None:
    initial = start()
    slopes = dict(zip(initial, torch.autograd.grad(outer(False, initial), list(initial.values())), strict=True))
    constants = dict(zip(initial, torch.autograd.grad(outer(True, initial), list(initial.values())), strict=True))
    for name, value in initial.items():
        direction = torch.randn(value.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        ends = []
        for sign in (1, -1):
            moved = {key: part.detach() for key, part in initial.items()}
            moved[name] = moved[name] + sign * 1e-5 * direction
            ends.append(outer(False, moved))
        slope = (ends[0] - ends[1]) / 2e-5
        torch.testing.assert_close((slopes[name] * direction).sum(), slope, rtol=1e-7, atol=1e-8)
        assert ((constants[name] * direction).sum() - slope).abs() > 1e-2


def test_a_batch_is_its_tasks_one_at_a_time() -> None:
    initial, (x, y) = start(), data()
    together = adapt(initial, loss, (x, y), Descent(STEPS, RATE), "ours")
    in_parts = adapt(initial, loss, (x, y), Descent(STEPS, RATE), "ours", at_once=2)
    for task in range(TASKS):
        alone = adapt(initial, loss, (x[task : task + 1], y[task : task + 1]), Descent(STEPS, RATE), "ours")
        for name, value in alone.items():
            torch.testing.assert_close(together[name][task], value[0], rtol=1e-10, atol=1e-12)
            torch.testing.assert_close(in_parts[name][task], value[0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("first_order", [False, True])
def test_it_works_where_gradients_are_off(first_order: bool) -> None:
    with torch.no_grad():
        found = adapt(start(), loss, data(), Descent(STEPS, RATE, first_order), "ours")
    expected = adapt(start(), loss, data(), Descent(STEPS, RATE, first_order), "ours")
    assert not any(value.requires_grad for value in found.values())
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name])


def test_a_loop_that_diverges_names_step_learner_and_task() -> None:
    x, y = data()
    y[1] = 1e200  # whose square is not finite
    with pytest.raises(ValueError, match=r"inner loop of ours diverged: at step 1 of 3 the loss of task 1 or its"):
        adapt(start(), loss, (x, y), Descent(3, 0.1), "ours")
    with pytest.raises(ValueError, match=r"at step [23] of 6 .* \(of 3 of 3 tasks\): lower inner_rate"):
        adapt(start(), loss, data(), Descent(6, 1e200), "ours")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((0, 0.1), "inner_steps must be at least 1, got 0"), ((1, 0.0), "inner_rate must be positive and finite, got 0")],
)
def test_bad_settings(arguments: tuple[int, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Descent(*arguments)

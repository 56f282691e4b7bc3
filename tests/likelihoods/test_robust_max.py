"""Robust-max against the closed form of two classes, and against draws."""

from __future__ import annotations

import math

import pytest
import torch

from sureshot.likelihoods.robust_max import expected_log_robust_max, largest_probability, robust_max_probabilities

F64 = torch.float64


def latents(n_classes: int, n: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(n_classes)
    mean = torch.randn(n_classes, n, dtype=F64, generator=generator)
    return mean, 0.3 + torch.rand(n_classes, n, dtype=F64, generator=generator)


def test_two_classes_in_closed_form() -> None:
    mean, variance = latents(2)
    expected = torch.special.ndtr((mean[0] - mean[1]) / variance.sum(0).sqrt())
    found = largest_probability(mean, variance, torch.zeros(6, dtype=torch.int64))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_many_classes_by_draws() -> None:
    mean, variance = latents(5)
    n, epsilon = 200_000, 0.1
    noise = torch.randn(n, 5, 6, dtype=F64, generator=torch.Generator().manual_seed(0))
    largest = (mean + variance.sqrt() * noise).argmax(1)
    share = torch.stack([(largest == label).double().mean(0) for label in range(5)])
    error = 5 * (share * (1 - share) / n).sqrt() + 1e-5
    every = torch.arange(5).unsqueeze(-1).expand(5, 6)
    found = largest_probability(mean, variance, every)
    assert bool(((found - share).abs() < error).all())
    torch.testing.assert_close(found.sum(0), torch.ones(6, dtype=F64), rtol=0, atol=1e-4)
    expected = found * 0.9 + (1 - found) * 0.1 / 4
    torch.testing.assert_close(robust_max_probabilities(mean, variance, epsilon), expected, rtol=0, atol=1e-4)
    y = torch.arange(6) % 5
    own = found[y, torch.arange(6)]
    log = expected_log_robust_max(mean, variance, y, epsilon)
    torch.testing.assert_close(log, own * math.log(0.9) + (1 - own) * math.log(0.025))


def test_blocks_of_queries_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    mean, variance = latents(5)
    whole = robust_max_probabilities(mean, variance, 0.01)
    monkeypatch.setattr("sureshot.likelihoods.robust_max.MAX_NUMBERS", 2000)
    torch.testing.assert_close(robust_max_probabilities(mean, variance, 0.01), whole)
    torch.testing.assert_close(whole.sum(0), torch.ones(6, dtype=F64))


def test_gradients_far_out_are_finite() -> None:
    mean = torch.tensor([[-60.0], [60.0], [0.0]], requires_grad=True)
    variance = torch.full((3, 1), 0.01, requires_grad=True)
    expected_log_robust_max(mean, variance, torch.tensor([0]), 1e-3).sum().backward()
    assert bool(torch.isfinite(mean.grad).all())
    assert bool(torch.isfinite(variance.grad).all())


def test_gradients_by_finite_differences() -> None:
    mean, variance = latents(4, 3)
    y = torch.tensor([0, 3, 1])
    assert torch.autograd.gradcheck(
        lambda m, v: expected_log_robust_max(m, v, y, 0.05), (mean.requires_grad_(), variance.requires_grad_())
    )


def test_epsilon_is_a_probability() -> None:
    with pytest.raises(ValueError, match="epsilon must lie between 0 and 1, got 0"):
        robust_max_probabilities(*latents(3), 0.0)


def test_probabilities_sum_to_one_to_the_last_digits() -> None:
    mean = torch.randn(5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = robust_max_probabilities(mean, torch.ones_like(mean), 1e-3)
    torch.testing.assert_close(found.sum(0), torch.ones(7, dtype=torch.float64), rtol=0, atol=1e-14)


def test_one_class_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 classes"):
        robust_max_probabilities(torch.zeros(1, 2), torch.ones(1, 2), 1e-3)

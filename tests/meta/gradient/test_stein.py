"""Stein's direction against a double loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sureshot.meta.gradient.stein import stein_direction


def double_loop(particles: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """``1/M sum_j [k(t_j, t_i) slope_j + d k(t_j, t_i) / d t_j]`` with ``k = exp(-|t_j - t_i|^2 / h)``."""
    m = len(particles)
    distances = [np.linalg.norm(particles[i] - particles[j]) for i in range(m) for j in range(i)]
    h = np.median(distances) ** 2 / np.log(m)
    found = np.zeros_like(particles)
    for i in range(m):
        for j in range(m):
            step = particles[j] - particles[i]
            kernel = np.exp(-(step @ step) / h)
            found[i] += (kernel * slopes[j] - 2 / h * step * kernel) / m
    return found


@pytest.mark.parametrize("m", [2, 3, 6])
def test_direction(m: int) -> None:
    rng = np.random.default_rng(m)
    particles, slopes = rng.normal(5, 1, (2, m, 4)), rng.normal(size=(2, m, 4))
    found = stein_direction(torch.from_numpy(particles), torch.from_numpy(slopes))
    expected = [double_loop(*task) for task in zip(particles, slopes, strict=True)]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-12)


def test_its_derivative_is_the_slope() -> None:
    generator = torch.Generator().manual_seed(0)
    particles, slopes = (torch.randn(4, 3, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(2))
    assert torch.autograd.gradcheck(stein_direction, (particles, slopes))


def test_particles_at_one_place_stay_finite() -> None:
    assert bool(torch.isfinite(stein_direction(torch.ones(3, 2), torch.ones(3, 2))).all())


def test_many_steps_have_the_moments_of_a_gaussian() -> None:
    particles = torch.randn(60, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for _ in range(3000):
        particles = particles + 0.3 * stein_direction(particles, -(particles - 2) / 4)
    assert particles.mean().item() == pytest.approx(2, abs=0.05)
    assert particles.var().item() == pytest.approx(4, rel=0.1)

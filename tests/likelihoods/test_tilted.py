"""Draws of a Gaussian that a logistic factor has seen, against its density on a grid."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import log_expit
from scipy.stats import kstest

from sureshot.likelihoods.tilted import sample_tilted

N_DRAWS = 20_000


def density_on_a_grid(mean: float, variance: float) -> tuple[np.ndarray, np.ndarray]:
    """Points, and the probabilities of what lies below each; fine around 0, the mean, and the mean of ``e^f N``."""
    around = np.linspace(-12, 12, 40_001) * variance**0.5
    f = np.unique(np.concatenate([mean + around, mean + variance + around, np.linspace(-80, 80, 160_001)]))
    log_density = log_expit(f) - 0.5 * (f - mean) ** 2 / variance
    density = np.exp(log_density - log_density.max())
    masses = (density[1:] + density[:-1]) / 2 * np.diff(f)
    below = np.concatenate([[0], masses.cumsum()])
    return f, below / below[-1]


@pytest.mark.parametrize("variance", [1e-4, 0.5, 9.0, 400.0, 1e4])
@pytest.mark.parametrize("mean", [-60.0, -5.0, 0.0, 3.0, 60.0])
def test_it_has_the_density_and_its_moments(mean: float, variance: float) -> None:
    m, v = (torch.full((N_DRAWS,), value, dtype=torch.float64) for value in (mean, variance))
    drawn = sample_tilted(m, v, torch.Generator().manual_seed(0)).numpy()
    f, below = density_on_a_grid(mean, variance)
    assert kstest(np.interp(drawn, f, below), "uniform").pvalue > 1e-4  # 25 cases
    middles, masses = (f[1:] + f[:-1]) / 2, np.diff(below)
    exact = middles @ masses
    spread = (middles - exact) ** 2 @ masses
    kurtosis = (middles - exact) ** 4 @ masses
    assert abs(drawn.mean() - exact) < 4.5 * (spread / N_DRAWS) ** 0.5
    assert abs(drawn.var() - spread) < 4.5 * ((kurtosis - spread**2) / N_DRAWS) ** 0.5


def test_shapes_broadcast_and_the_seed_decides() -> None:
    mean, variance = torch.randn(3, 1, 2), torch.rand(4, 1, dtype=torch.float64) + 0.1
    first, again = (sample_tilted(mean, variance, torch.Generator().manual_seed(1)) for _ in range(2))
    assert first.shape == (3, 4, 2)
    assert first.dtype == torch.float64
    assert torch.equal(first, again)
    assert sample_tilted(torch.zeros(0), torch.ones(0)).shape == (0,)


@pytest.mark.parametrize(("mean", "variance"), [(float("nan"), 1.0), (0.0, float("inf")), (0.0, 0.0), (0.0, -1.0)])
def test_what_has_no_distribution_is_refused(mean: float, variance: float) -> None:
    """A draw would be rejected for ever."""
    with pytest.raises(ValueError, match="must be finite, and the variance positive"):
        sample_tilted(torch.tensor([0.0, mean]), torch.tensor([1.0, variance]))

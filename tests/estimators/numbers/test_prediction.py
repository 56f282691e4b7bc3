"""Predictions on a bent scale, by integrals over the user's numbers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from sureshot.estimators.numbers.mixture import NormalMixture
from sureshot.estimators.numbers.prediction import Prediction
from sureshot.estimators.numbers.target_scale import TRANSFORMS, TargetScale

RNG = np.random.default_rng(0)
SAMPLE = np.exp(RNG.normal(scale=0.5, size=(60, 1)))
MIXTURE = NormalMixture(np.array([0.7, 0.3]), RNG.normal(size=(2, 3, 1)), RNG.uniform(0.2, 0.6, size=(2, 3, 1)))


def integral(found: Prediction, row: int, power: int, high: float | None = None) -> float:
    """Of a power of the number times its density, over all numbers up to one."""
    low, most = (float(found.scale.back(np.array([[end]]))[0, 0]) for end in (-9, 9))
    points = found.scale.back(MIXTURE.means[:, row])[:, 0].tolist()

    def weighed(y: float) -> float:
        return float(y**power * np.exp(found.log_density(np.full((3, 1), y))[row, 0]))

    return float(integrate.quad(weighed, low, most if high is None else high, points=points, limit=400)[0])


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_moments_quantiles_and_draws_are_those_of_the_density(transform: str) -> None:
    found = Prediction(MIXTURE, TargetScale.of(SAMPLE, np.ones(60), transform))
    for row in range(3):
        mean, square = (integral(found, row, power) for power in (1, 2))
        np.testing.assert_allclose(integral(found, row, 0), 1, rtol=1e-6)
        np.testing.assert_allclose(found.mean[row, 0], mean, rtol=1e-5)
        np.testing.assert_allclose(found.deviation[row, 0] ** 2, square - mean**2, rtol=1e-3)
        below = integral(found, row, 0, float(found.quantile(0.3)[row, 0]))
        np.testing.assert_allclose(below, 0.3, atol=1e-6)
    drawn = found.sample(4000, np.random.default_rng(1))
    np.testing.assert_allclose(drawn.mean(-1), found.mean, rtol=0.05)
    lower, upper = found.interval(np.ones(1))
    np.testing.assert_allclose(found.errors(lower), 1)
    np.testing.assert_allclose(found.errors(upper), 1)
    assert (found.errors(0.5 * (lower + upper)) < 1).all()


def test_tails_have_a_mean_on_a_bent_scale() -> None:
    """Numbers beyond the outermost thousandths count as these; the wild normal alone would give exp(200)."""
    scale = TargetScale("log", np.zeros(1), np.ones(1), np.ones(1), np.array([1.0]), np.array([0.5]))
    mixture = NormalMixture(np.array([0.999, 0.001]), np.zeros((2, 1, 1)), np.array([1.0, 40.0])[:, None, None])
    grid = np.linspace(-6, 6, 400_001)[:, None]
    p = stats.norm.pdf(grid) * 0.999 + stats.norm.pdf(grid, 0, 40) * 0.001
    low, high = mixture.quantile(0.001)[0, 0], mixture.quantile(0.999)[0, 0]
    inside = np.trapezoid(np.where((grid > low) & (grid < high), p * scale.back(grid), 0)[:, 0], grid[:, 0])
    expected = inside + 0.001 * (scale.back(np.array([low, high])).sum())
    found = Prediction(mixture, scale, True)
    assert found.mean[0, 0] == pytest.approx(expected, rel=1e-3)
    assert found.deviation[0, 0] < expected

"""Mixtures of normals against scipy, one number at a time."""

from __future__ import annotations

import numpy as np
from scipy import integrate, optimize, stats

from sureshot.estimators.numbers.mixture import NormalMixture

RNG = np.random.default_rng(0)
WEIGHT = np.array([0.5, 0.3, 0.2])
MEANS, DEVIATIONS = RNG.normal(size=(3, 4, 2)), RNG.uniform(0.1, 2, size=(3, 4, 2))
MIXTURE = NormalMixture(WEIGHT, MEANS, DEVIATIONS)
CELL = (2, 1)


def density(y: float) -> float:
    return float(WEIGHT @ stats.norm.pdf(y, MEANS[:, *CELL], DEVIATIONS[:, *CELL]))


def test_moments_are_integrals() -> None:
    mean = integrate.quad(lambda y: y * density(y), -20, 20)[0]
    square = integrate.quad(lambda y: y**2 * density(y), -20, 20)[0]
    np.testing.assert_allclose(MIXTURE.mean[CELL], mean, rtol=1e-8)
    np.testing.assert_allclose(MIXTURE.deviation[CELL], np.sqrt(square - mean**2), rtol=1e-8)


def test_densities_and_quantiles() -> None:
    y = RNG.normal(size=(4, 2))
    np.testing.assert_allclose(MIXTURE.log_density(y)[CELL], np.log(density(y[CELL])), rtol=1e-12)
    for q in (0.01, 0.5, 0.975):

        def below(at: float, q: float = q) -> float:
            return float(WEIGHT @ stats.norm.cdf(at, MEANS[:, *CELL], DEVIATIONS[:, *CELL])) - q

        np.testing.assert_allclose(MIXTURE.quantile(q)[CELL], optimize.brentq(below, -20, 20, xtol=1e-13), atol=1e-10)
    one = NormalMixture(np.ones(1), MEANS[:1], DEVIATIONS[:1])
    np.testing.assert_allclose(one.quantile(0.3), stats.norm.ppf(0.3, MEANS[0], DEVIATIONS[0]))


def test_draws_have_the_mixtures_distribution() -> None:
    drawn = MIXTURE.sample(20_000, np.random.default_rng(1))
    assert drawn.shape == (4, 2, 20_000)
    uniform = MIXTURE.cumulative(drawn.mean(-1))
    np.testing.assert_allclose(drawn.mean(-1), MIXTURE.mean, atol=0.06)
    np.testing.assert_allclose((drawn <= drawn.mean(-1, keepdims=True)).mean(-1), uniform, atol=0.015)

"""The ranked probability score of normals, which has a closed form."""

from __future__ import annotations

import numpy as np
from scipy import integrate, stats

from sureshot.metrics import ranked_probability_score
from sureshot.metrics.numbers import mixture_ranked_probability_score


def test_of_normals() -> None:
    """Gneiting and Raftery 2007, equation 5."""
    mean, deviation, y = np.array([0.0, 1.0, -2.0]), np.array([1.0, 0.5, 3.0]), np.array([0.3, 2.0, -2.0])
    z = (y - mean) / deviation
    exact = deviation * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    found = ranked_probability_score(lambda q: stats.norm.ppf(q, mean, deviation), y)
    np.testing.assert_allclose(found, exact, rtol=0.02)


def test_of_numbers_without_doubt_it_is_the_absolute_error() -> None:
    found = ranked_probability_score(lambda q: np.array([1.0, 2.0]), [3.0, 2.0])
    np.testing.assert_allclose(found, [2.0, 0.0], atol=1e-12)


def test_mixtures_against_an_integral() -> None:
    """The score is the integral of the squared distance of distribution functions."""
    mean = np.array([[0.0, 2.0], [1.5, -1.0], [0.2, 0.1]])
    deviation = np.array([[1.0, 0.3], [0.4, 2.0], [0.7, 0.7]])
    y = np.array([0.7, -1.2])
    weight = np.array([[0.2, 0.6], [0.5, 0.1], [0.3, 0.3]])
    found = mixture_ranked_probability_score(mean, deviation, y, weight)
    for place in range(2):

        def distribution(at: float, place: int = place) -> float:
            return float(weight[:, place] @ stats.norm.cdf(at, mean[:, place], deviation[:, place]))

        below = integrate.quad(lambda at: distribution(at) ** 2, -15, y[place], epsabs=1e-11)[0]
        above = integrate.quad(lambda at: (1 - distribution(at)) ** 2, y[place], 15, epsabs=1e-11)[0]
        assert abs(found[place] - below - above) < 1e-8

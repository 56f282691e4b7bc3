"""The ranked probability score of normals, which has a closed form."""

from __future__ import annotations

import numpy as np
from scipy import stats

from sureshot.metrics import ranked_probability_score


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

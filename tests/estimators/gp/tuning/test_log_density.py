"""Log densities of left-out numbers, and the deviations that suit them."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy import stats

from sureshot.estimators.gp.tuning.log_density import PSEUDO_ROWS, scored_numbers

RNG = np.random.default_rng(0)
MEAN, VARIANCE = RNG.normal(size=(4, 2, 7)), RNG.uniform(0.1, 2, size=(4, 2, 7))
NUMBERS, USABLE = RNG.normal(size=(2, 7)), np.array([1, 1, 0, 1, 1, 2, 1.0])


def test_densities_are_those_of_normals_with_the_factor_that_suits_best() -> None:
    factor, pointwise = scored_numbers(*map(torch.from_numpy, (MEAN, VARIANCE, NUMBERS, USABLE)))
    for k in range(4):
        squared = USABLE * (NUMBERS - MEAN[k]) ** 2 / VARIANCE[k]
        expected = (squared.sum() + PSEUDO_ROWS) / (2 * USABLE.sum() + PSEUDO_ROWS)
        assert math.isclose(float(factor[k]) ** 2, expected, rel_tol=1e-12)
        logs = stats.norm.logpdf(NUMBERS, MEAN[k], np.sqrt(expected * VARIANCE[k])).sum(0)
        np.testing.assert_allclose(pointwise[k], np.where(USABLE > 0, logs, 0), rtol=1e-12)

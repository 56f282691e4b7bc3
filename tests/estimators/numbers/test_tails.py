"""Student's noise: its mixture of normals, when it is taken, and how far rows are trusted."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from sureshot.estimators.numbers.tails import DEGREES, degrees_of, noise_scales, trust

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("degrees", DEGREES)
def test_normals_mix_to_students_density(degrees: float) -> None:
    scales, shares = noise_scales(degrees)
    assert shares.sum() == pytest.approx(1)
    z = np.concatenate([np.linspace(0, 6, 30), [20.0]])
    density = stats.norm.pdf(z[:, None], 0, np.sqrt(scales)) @ shares
    difference = np.log(density) - stats.t.logpdf(z, degrees)
    assert np.abs(difference[:16]).max() < 0.03  # within three deviations
    assert np.abs(difference).max() < 0.8
    # in the normal's own tail the log density at twenty deviations is -200
    assert noise_scales(math.inf)[0].tolist() == noise_scales(math.inf)[1].tolist() == [1.0]


def test_tails_are_seen_where_there_are_any() -> None:
    assert degrees_of(RNG.normal(size=300)) == (math.inf, 1.0)
    degrees, scale = degrees_of(0.5 * stats.t.rvs(3, size=800, random_state=1))
    assert degrees in (2.0, 4.0)
    assert 0.4 < scale < 0.6
    assert degrees_of(np.zeros(40))[0] == math.inf
    assert degrees_of(np.ones(1)) == (math.inf, 1.0)


def test_rows_far_off_are_hardly_trusted() -> None:
    np.testing.assert_allclose(trust(np.array([0.0, 1.0, -10.0]), 4.0), [5 / 4, 1, 5 / 104])

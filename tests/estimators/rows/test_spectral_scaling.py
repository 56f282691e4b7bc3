"""Directions along which rows vary: the map by hand, weights, and lengths."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import normalize

from sureshot.estimators.rows.spectral_scaling import SpectralScaling


def unit_rows(seed: int, n: int = 40, width: int = 12) -> np.ndarray:
    """Of three classes, which the first four columns tell apart."""
    rng = np.random.default_rng(seed)
    centres = np.zeros((3, width))
    centres[:, :4] = np.random.default_rng(9).normal(size=(3, 4))
    return normalize(centres[np.arange(n) % 3] + 0.35 * rng.normal(size=(n, width)))


@pytest.mark.parametrize(("n", "width"), [(40, 12), (8, 12)])
def test_the_map_is_the_fourth_root_of_a_shifted_covariance(n: int, width: int) -> None:
    x, weight = unit_rows(0, n, width), np.arange(n) % 3 + 1.0
    per_class = weight.sum() / 3
    covariance = np.cov(x.T, aweights=weight, bias=True)
    level = 0.2 * per_class * np.trace(covariance) / width
    values, vectors = np.linalg.eigh(covariance + level * np.eye(width))
    expected = normalize(x @ (vectors * values**0.25) @ vectors.T)
    # Directions with next to no gain are left as they are.
    np.testing.assert_allclose(SpectralScaling.of(x, weight, per_class)(x), expected, atol=3e-3)


def test_weights_count_rows() -> None:
    x, weight = unit_rows(1), np.arange(40) % 2 + 1
    repeated = np.repeat(x, weight, 0)
    maps = SpectralScaling.of(x, weight.astype(float), 20.0), SpectralScaling.of(repeated, np.ones(len(repeated)), 20.0)
    np.testing.assert_allclose(maps[0](x), maps[1](x), atol=1e-9)


@given(st.integers(0, 1000), st.floats(1e-290, 1e6))
def test_rows_keep_their_lengths(seed: int, size: float) -> None:
    queries = size * np.random.default_rng(seed).normal(size=(5, 12))
    queries[0] = 0
    mapped = SpectralScaling.of(unit_rows(3), np.ones(40), 13.0)(queries)
    before, after = (np.linalg.norm(rows / size, axis=1) for rows in (queries, mapped))  # squares are numbers
    np.testing.assert_allclose(after, before, rtol=1e-9)


def test_rows_that_are_all_one_have_no_directions() -> None:
    assert not len(SpectralScaling.of(np.tile([[0.6, 0.8]], (5, 1)), np.ones(5), 2.5).gain)

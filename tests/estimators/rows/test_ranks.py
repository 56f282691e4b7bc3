"""Normal scores of ranks: monotone, standard, and blind to how far wild cells lie."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sureshot.estimators.rows.ranks import MAX_KNOTS, Ranks

CELLS = st.integers(-5, 5) | st.floats(-3, 3).map(lambda cell: round(cell, 3)) | st.sampled_from([1e9, -1e50])
COLUMNS = arrays(np.float64, st.tuples(st.integers(2, 90), st.just(2)), elements=CELLS.map(float))


@given(COLUMNS)
def test_any_columns_become_standard_ones(x: np.ndarray) -> None:
    ranks = Ranks.of(x, np.ones(len(x)))
    mapped = ranks(x)
    assert np.isfinite(mapped).all()
    np.testing.assert_allclose(mapped.mean(0), 0, atol=1e-9)
    deviation = mapped.std(0)
    assert all(value == pytest.approx(1) or value == 0 for value in deviation)


@given(COLUMNS, arrays(np.float64, 50, elements=st.floats(-1e60, 1e60, width=64)))
def test_the_map_is_monotone_everywhere(x: np.ndarray, queries: np.ndarray) -> None:
    ordered = np.sort(queries)[:, None] * np.ones(2)
    mapped = Ranks.of(x, np.ones(len(x)))(ordered)
    assert (np.diff(mapped, axis=0) >= -1e-9).all()


def test_a_monotone_distortion_changes_next_to_nothing() -> None:
    x = np.random.default_rng(0).normal(size=(400, 1))
    plain, distorted = (Ranks.of(z, np.ones(400))(z) for z in (x, np.exp(2 * x)))
    inner = np.abs(x[:, 0]) < 2
    np.testing.assert_allclose(distorted[inner], plain[inner], atol=0.05)
    np.testing.assert_allclose(plain[inner], x[inner] / x.std(), atol=0.3)


def test_how_far_a_wild_cell_lies_hardly_matters() -> None:
    x = np.random.default_rng(0).normal(size=(300, 1))
    near, far = x.copy(), x.copy()
    near[7], far[7] = 30.0, 3e9
    a, b = (Ranks.of(z, np.ones(300))(z) for z in (near, far))
    others = np.arange(300) != 7
    np.testing.assert_allclose(a[others], b[others], atol=0.1)
    assert a[7] == a.max() < 4
    assert b[7] == b.max() < 4


def test_weights_are_copies() -> None:
    x = np.array([[0.0], [1.0], [2.0], [5.0]])
    weighted = Ranks.of(x, np.array([1.0, 3.0, 1.0, 2.0]))
    copied = Ranks.of(np.repeat(x, [1, 3, 1, 2], axis=0), np.ones(7))
    assert weighted.knots.shape[1] <= copied.knots.shape[1] <= MAX_KNOTS
    np.testing.assert_allclose(weighted(x).mean(), copied(x).mean(), atol=0.3)


def test_ties_share_a_score_and_constant_columns_become_zero() -> None:
    x = np.column_stack([np.arange(100) < 90, np.full(100, 3.0)]).astype(float)
    ranks = Ranks.of(x, np.ones(100))
    mapped = ranks(x)
    assert len(np.unique(mapped[:, 0])) == 2
    np.testing.assert_allclose(mapped[:, 0], (x[:, 0] - 0.9) / 0.3, atol=1e-9)
    assert not mapped[:, 1].any()
    assert not ranks.bends(x)


def test_columns_that_bend() -> None:
    x = np.random.default_rng(0).normal(size=(300, 2))
    assert not Ranks.of(x, np.ones(300)).bends(x)
    x[:, 1] = np.exp(x[:, 1])
    assert Ranks.of(x, np.ones(300)).bends(x)

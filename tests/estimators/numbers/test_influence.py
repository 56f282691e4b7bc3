"""What labelled rows do to numbers, against what is said without them."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from sureshot import GPRegressor

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, size=(60, 2))
Y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * RNG.normal(size=60)
QUERIES = RNG.uniform(-2, 2, size=(12, 2))
IDS = [f"row {k}" for k in range(60)]


def fitted(y: np.ndarray = Y, **arguments: str) -> GPRegressor:
    return GPRegressor(noise="gaussian", **arguments).fit(X, y, row_id=IDS)


@pytest.fixture(scope="module")
def model() -> GPRegressor:
    return fitted(target_transform="none")


def test_a_pull_is_what_the_answer_falls_by_without_the_row(model: GPRegressor) -> None:
    found = model.influence(QUERIES, n=60)
    np.testing.assert_allclose(found.predictions, model.predict(QUERIES), rtol=1e-10)
    assert (np.diff(np.abs(found.drivers.pulls), axis=1) <= 0).all()
    left = copy.deepcopy(model).forget("row 7")
    seventh = found.drivers.row_ids == "row 7"
    np.testing.assert_allclose(found.drivers.pulls[seventh], model.predict(QUERIES) - left.predict(QUERIES), atol=1e-9)
    np.testing.assert_array_equal(found.drivers.y[seventh], np.full(12, Y[7]))
    np.testing.assert_allclose(found.drivers.inputs[seventh], np.tile(X[7], (12, 1)))
    assert np.isclose(
        found.together.pulls[found.together.row_ids == "row 7"], np.abs(found.drivers.pulls[seventh]).sum()
    )


def test_on_a_bent_scale_to_first_order_where_doubt_stays() -> None:
    bent = fitted(np.exp(Y), target_transform="log")
    found = bent.influence(QUERIES, n=60).drivers
    change = bent.predict(QUERIES) - copy.deepcopy(bent).forget("row 7").predict(QUERIES)
    np.testing.assert_allclose(found.pulls[found.row_ids == "row 7"], change, rtol=0, atol=0.2 * np.abs(change).max())


def test_of_several_targets_one_is_asked_about() -> None:
    both = GPRegressor(noise="gaussian", target_transform="none").fit(X, np.column_stack([Y, -3 * Y]))
    first, second = (both.influence(QUERIES, target=k).drivers.pulls for k in (0, 1))
    np.testing.assert_allclose(second, -3 * first, rtol=1e-6)
    with pytest.raises(ValueError, match="target must be one of 0, 1; got 2"):
        both.influence(QUERIES, target=2)


def test_covariances_belong_to_deviations_and_to_draws(model: GPRegressor) -> None:
    mean, covariance = model.predict(QUERIES, return_cov=True)
    expected, deviation = model.predict(QUERIES, return_std=True)
    np.testing.assert_allclose(mean, expected)
    np.testing.assert_allclose(covariance.diagonal(), deviation**2, rtol=1e-8)
    assert (np.linalg.eigvalsh(covariance) > 0).all()
    near = np.vstack([QUERIES[:1], QUERIES[:1] + 1e-3, [[40.0, 40.0]]])
    _, covariance = fitted(target_transform="yeo_johnson").predict(near, return_cov=True)
    correlation = covariance / np.sqrt(np.outer(covariance.diagonal(), covariance.diagonal()))
    assert correlation[0, 1] > 10 * abs(correlation[0, 2])
    with pytest.raises(ValueError, match="ask for one of them"):
        model.predict(QUERIES, return_std=True, return_cov=True)
    with pytest.raises(ValueError, match="return_cov needs members that see all rows"):
        GPRegressor(approximation="nearest_neighbours").fit(X, Y).predict(QUERIES, return_cov=True)


def test_suggestions_are_where_little_is_known(model: GPRegressor) -> None:
    pool = np.vstack([X[:30], RNG.uniform(-2, 2, size=(40, 2)), RNG.uniform(4, 6, size=(40, 2))])
    found = model.suggest(pool, 6)
    assert (found.rows >= 70).sum() >= 5
    assert (found.rows >= 30).all()
    assert len(set(found.rows.tolist())) == 6
    assert (found.score > 0).all()

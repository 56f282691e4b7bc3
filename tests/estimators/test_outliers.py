"""The outlier score that all estimators share: what is far from every labelled row is unknown, whatever the model."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from sklearn.datasets import load_digits, load_iris

from sureshot import FewShotClassifier, GPClassifier, KernelSearchClassifier, TreeGPClassifier
from sureshot.estimators.classes.classifier_base import IncrementalClassifier
from sureshot.estimators.outliers import Distance, OutlierScore, Spread, scalings_for
from sureshot.estimators.rows.preprocessing import Scaling

X, Y = load_iris(return_X_y=True)
TRAIN = slice(0, None, 5)
UNIT = X / np.linalg.norm(X, axis=1, keepdims=True)
ESTIMATORS: dict[str, tuple[Callable[[], IncrementalClassifier], np.ndarray, np.ndarray]] = {
    "defaults": (GPClassifier, X, Y),
    "linear, two classes": (lambda: GPClassifier(kernel="linear"), X, np.minimum(Y, 1)),
    "rough, two classes": (lambda: GPClassifier(kernel="matern12"), X, np.minimum(Y, 1)),
    "quadratic": (lambda: GPClassifier(kernel="polynomial2", standardize=False), X, Y),
    "of angles": (GPClassifier, UNIT, Y),
    "sessions": (TreeGPClassifier, X, Y),
    "sessions, of angles": (TreeGPClassifier, UNIT, Y),
    "sessions, a tree": (lambda: TreeGPClassifier("session", inference="mean_field"), X, Y),
    "search": (lambda: KernelSearchClassifier(n_particles=3, structure="LINEAR"), X, Y),
}
CLOSE = 1e-9


@cache
def fitted(name: str) -> IncrementalClassifier:
    make, x, y = ESTIMATORS[name]
    return make().fit(x[TRAIN], y[TRAIN])


@pytest.mark.parametrize("name", ESTIMATORS)
@settings(max_examples=10)
@given(
    row=st.integers(0, 149),
    direction=st.lists(st.integers(-9, 9), min_size=4, max_size=4).filter(any),
)
def test_the_score_grows_without_bound_along_any_ray(name: str, row: int, direction: list[int]) -> None:
    _, x, _ = ESTIMATORS[name]
    steps = 10.0 ** np.arange(2, 40)
    along = x[row] + steps[:, None] * (np.asarray(direction) / np.linalg.norm(direction)) * x.std(0)
    scores = fitted(name).outlier_score(along)
    assert (np.diff(scores) > 0).all()
    assert scores[0] > fitted(name).outlier_score(x).max()
    assert scores[-1] > 1e30


@pytest.mark.parametrize("name", ESTIMATORS)
@settings(max_examples=10)
@given(cells=st.lists(st.sampled_from([0.0, 5.0, -1e9, 1e200, -1e300, 1e308]), min_size=4, max_size=4))
def test_every_row_has_a_number(name: str, cells: list[float]) -> None:
    rows = np.array([cells, X[0] + cells])
    assert np.isfinite(fitted(name).outlier_score(rows)).all()


def test_zeros_have_no_direction_among_means_of_directions() -> None:
    """Means of rows of unit length are shorter, and nearer to zero than other rows are."""
    x, y = load_digits(return_X_y=True)
    x = x - x.mean(0)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    model = TreeGPClassifier().fit(x[:800], y[:800])
    assert model.outlier_score(np.zeros((1, 64)))[0] > model.outlier_score(x[800:]).max()


def test_the_order_of_rows_does_not_count() -> None:
    rows = np.random.default_rng(0).permutation(np.arange(150)[TRAIN])
    shuffled = GPClassifier().fit(X[rows], Y[rows])
    np.testing.assert_array_equal(shuffled.outlier_score(X), fitted("defaults").outlier_score(X))


def test_the_sum_of_two_parts() -> None:
    """How far off rows are, and what the model says, which cannot call a row better known than all labelled ones."""
    model = fitted("defaults")
    score: OutlierScore = model._fitted.outlier_score
    said = np.array([-1e9, 0.0])
    far = np.mean([distance(X[:2]) for distance in score.distances], axis=0)
    expected = far + (np.maximum(said, score.least) - score.usual.centre) / score.usual.deviation
    np.testing.assert_allclose(score(X[:2], said), expected, rtol=CLOSE)
    labelled = model._fitted.predictor.outlier_scores(model._fitted.predictor.inputs(X[TRAIN])).numpy()
    assert score.least == pytest.approx(labelled.min())
    assert score.usual.centre == pytest.approx(np.median(labelled))


def test_distance_is_a_kernel_density_by_rows_left_out() -> None:
    generator = np.random.default_rng(0)
    x, queries = generator.normal(size=(40, 2)), generator.normal(size=(9, 2))
    scaling = Scaling(np.arange(2), np.array([1.0, 2.0]), np.array([0.5, 3.0]))
    squared = ((((x[:, None] - x) / scaling.scale) ** 2).sum(-1)) + np.diag(np.full(40, np.inf))
    tried = squared.min(0).mean() * 2.0 ** (np.arange(-12, 7) / 2)
    density = [logsumexp(-squared / (2 * width), axis=0).mean() - np.log(width) for width in tried]
    found = Distance.of(x, scaling, False)
    assert found.width == pytest.approx(2 * tried[np.argmax(density)])
    usual = -found.width * logsumexp(-squared / (2 * found.width), axis=0)
    deviation = np.sqrt(np.pi / 2) * np.abs(usual - np.median(usual)).mean()
    without_themselves = found(x, left_out=np.ones(40, dtype=bool))
    np.testing.assert_allclose(without_themselves, (usual - np.median(usual)) / deviation, rtol=CLOSE, atol=CLOSE)
    squared = (((x[:, None] - queries) / scaling.scale) ** 2).sum(-1)
    expected = -found.width * logsumexp(-squared / (2 * found.width), axis=0)
    np.testing.assert_allclose(found(queries), (expected - np.median(usual)) / deviation, rtol=CLOSE)


@pytest.mark.parametrize("rows", [X[:1], np.repeat(X[:1], 3, 0), X[:2], np.zeros((4, 4)), np.eye(4)])
def test_rows_that_have_no_spread_have_a_distance(rows: np.ndarray) -> None:
    for scaling in scalings_for(rows):
        near, far = Distance.of(np.unique(rows, axis=0), scaling, False)(np.array([rows[0], rows[0] + 100]))
        assert np.isfinite([near, far]).all()
        assert far > near + 10


def test_numbers_that_are_alike_have_a_deviation() -> None:
    assert Spread.of(np.full(5, -200.0), 1.0) == Spread(-200.0, 10.0)
    assert Spread.of(np.zeros(5), 1.0) == Spread(0.0, 0.05)


def test_columns_that_came_standardised_are_measured_once() -> None:
    x = np.random.default_rng(0).normal(size=(50, 9))
    assert len(scalings_for(x)) == 2
    assert len(scalings_for((x - x.mean(0)) / x.std(0))) == 1


def test_columns_of_one_unit_are_scaled_in_common_too() -> None:
    pixels = load_digits().data[:100]
    standard, common = scalings_for(pixels)
    assert np.ptp(common.scale) == 0
    assert len(standard.kept) == len(common.kept) == 64  # those that have been constant so far are no exception
    assert len(scalings_for(X)) == 1
    (as_they_are,) = scalings_for(UNIT)
    assert (as_they_are.scale == 1).all()


def test_a_column_that_was_constant_can_be_wild() -> None:
    x = np.column_stack([X, np.ones(150)])
    with pytest.warns(UserWarning, match="constant"):
        model = GPClassifier().fit(x[TRAIN], Y[TRAIN])
    wild = x.copy()
    wild[:, 4] = 100
    assert model.outlier_score(wild).min() > model.outlier_score(x).max()


@pytest.mark.parametrize("make", [GPClassifier, FewShotClassifier, TreeGPClassifier])
def test_a_single_class_has_scores(make: Any) -> None:
    model = make().partial_fit(X[:30], Y[:30])
    known, unknown = model.outlier_score(X[30:50]), model.outlier_score(X[50:])
    assert np.mean(unknown[:, None] > known) > 0.95


def test_repeated_rows_count_once() -> None:
    """A row that has been seen is no surprise, however often."""
    weight = np.random.default_rng(0).integers(1, 4, 30)
    weighted = Distance.of(X[TRAIN], scalings_for(X[TRAIN])[0], False)
    model = KernelSearchClassifier(n_particles=2, structure="LINEAR").fit(X[TRAIN], Y[TRAIN], sample_weight=weight)
    (found,) = model._fitted.outlier_score.distances
    np.testing.assert_allclose(found(X), weighted(X), rtol=CLOSE)


def test_a_precomputed_kernel_knows_no_distances() -> None:
    x = X[TRAIN]
    model = GPClassifier(kernel="precomputed").fit(x @ x.T, Y[TRAIN])
    assert not model._fitted.has_distances
    latent = model.predict_latent(X @ x.T)
    assert model.outlier_score(X @ x.T).shape == latent.mean.shape[:1]

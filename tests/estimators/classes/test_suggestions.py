"""What to label next: rows between classes, no two alike, none that is labelled; for every estimator."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_iris

from sureshot import FewShotClassifier, GPClassifier, KernelSearchClassifier, TreeGPClassifier
from sureshot.estimators import suggestions
from sureshot.estimators.classes.classifier_base import IncrementalClassifier
from sureshot.estimators.classes.suggestions import margins
from sureshot.estimators.suggestions import CANDIDATES, medoids

X, Y = load_iris(return_X_y=True)
TRAIN = slice(0, None, 10)
UNIT = X / np.linalg.norm(X, axis=1, keepdims=True)
ESTIMATORS: dict[str, tuple[Callable[[], IncrementalClassifier], np.ndarray, np.ndarray]] = {
    "one setting": (lambda: GPClassifier("rbf", "least_squares"), X, Y),
    "two classes": (lambda: GPClassifier("rbf", "logistic"), X, np.minimum(Y, 1)),
    "of angles": (GPClassifier, UNIT, Y),
    "few-shot": (FewShotClassifier, X, Y),
    "sessions": (TreeGPClassifier, X, Y),
    "search": (lambda: KernelSearchClassifier(n_particles=3, structure="LINEAR"), X, Y),
}


@cache
def fitted(name: str) -> IncrementalClassifier:
    make, x, y = ESTIMATORS[name]
    return make().fit(x[TRAIN], y[TRAIN])


@pytest.mark.parametrize("name", ESTIMATORS)
def test_rows_between_classes_none_twice(name: str) -> None:
    model, x = fitted(name), ESTIMATORS[name][1]
    found = model.suggest(x, 5)
    assert len(set(map(bytes, x[found.rows]))) == len(found.rows) == 5
    doubt = 1 - margins(model.predict_proba(x))
    np.testing.assert_allclose(found.score, doubt[found.rows], rtol=0, atol=1e-12)
    smallest = np.sort(doubt)[-CANDIDATES * 5 - len(x[TRAIN])]  # of so many unlabelled rows and all labelled ones
    assert found.score.min() >= smallest - 1e-12
    again = model.suggest(x, 5)
    np.testing.assert_array_equal(found.rows, again.rows)
    np.testing.assert_array_equal(found.score, again.score)


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name != "sessions"])  # which keeps means of rows
def test_labelled_rows_are_not_suggested(name: str) -> None:
    x = ESTIMATORS[name][1]
    found = fitted(name).suggest(np.concatenate([x, x]), 1000).rows
    distinct = set(map(bytes, x)) - set(map(bytes, x[TRAIN]))
    assert len(found) == len(distinct)
    assert set(map(bytes, np.concatenate([x, x])[found])) == distinct
    assert len(fitted(name).suggest(x[TRAIN], 3).rows) == 0


def test_labelled_rows_in_single_precision_are_not_suggested() -> None:
    x = np.random.default_rng(0).normal(size=(20, 3))
    model = GPClassifier(kernel="rbf").fit(x[:10], np.arange(10) % 2)
    assert sorted(model.suggest(x.astype(np.float32), 20).rows) == list(range(10, 20))


def test_near_copies_are_suggested_once() -> None:
    model = fitted("one setting")
    apart = np.array([X[70], X[60], X[106]])
    pool = np.repeat(apart, 9, axis=0) + np.random.default_rng(0).normal(scale=1e-4, size=(27, 4))
    found = model.suggest(pool, 3)
    assert set(found.rows // 9) == {0, 1, 2}
    most_in_doubt = margins(model.predict_proba(pool)).argsort()[:3]
    assert len(set(most_in_doubt // 9)) == 1


def test_beyond_the_rows_that_are_compared_margins_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted("one setting")
    monkeypatch.setattr(suggestions, "MOST_CANDIDATES", 8)
    found = model.suggest(X, 30)
    assert len(set(found.rows)) == 30
    assert (np.diff(found.score[8:]) <= 0).all()
    assert found.score[:8].min() >= found.score[8]


def test_medoids_are_near_the_best_ones() -> None:
    generator = np.random.default_rng(0)
    for _ in range(20):
        x, weight = generator.normal(size=(9, 2)), generator.uniform(size=9)
        distance = ((x[:, None] - x) ** 2).sum(-1)
        alone = weight @ distance
        assert medoids(distance, weight, 1)[0] == alone.argmin()
        start = weight.sum() * distance.max()
        cost = {rows: weight @ distance[list(rows)].min(0) for rows in itertools.combinations(range(9), 3)}
        found = cost[tuple(sorted(medoids(distance, weight, 3).tolist()))]
        assert start - found >= (1 - np.exp(-1)) * (start - min(cost.values()))  # Nemhauser, Wolsey & Fisher 1978
    assert sorted(medoids(distance, np.zeros(9), 20).tolist()) == list(range(9))


@settings(max_examples=25)
@given(
    cells=st.lists(st.sampled_from([0.0, -0.0, 5.0, -1e9, 1e200, -1e300, 1e308]), min_size=8, max_size=40),
    n=st.integers(1, 12),
)
@example(cells=[1e308, 0.0, 1e200, 1e200, 1e200, 0.0, 1e200, 1e200], n=2)  # beyond single precision
def test_any_pool_has_suggestions(cells: list[float], n: int) -> None:
    pool = np.resize(np.array(cells), (len(cells) // 4, 4))
    found = fitted("one setting").suggest(pool, n)
    assert len(found.rows) == min(n, len(np.unique(pool, axis=0)))
    assert len(np.unique(pool[found.rows], axis=0)) == len(found.rows)
    assert np.isfinite(found.score).all()


def test_precomputed_kernels_have_margins_only() -> None:
    gram = np.exp(-((X[:, None] - X) ** 2).sum(-1))
    model = GPClassifier("precomputed").fit(gram[TRAIN, TRAIN], Y[TRAIN])
    found = model.suggest(gram[:, TRAIN], 4)
    assert len(found.rows) == 4
    assert (np.diff(found.score) <= 0).all()


def test_bad_input() -> None:
    model = fitted("one setting")
    for n in (0, -1, 2.0, True, "5"):
        with pytest.raises(ValueError, match="n must be a positive integer"):
            model.suggest(X, n)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="0 sample"):
        model.suggest(X[:0])
    with pytest.raises(ValueError, match="3 features"):
        model.suggest(X[:, :3])
    with pytest.raises(ValueError, match="NaN"):
        model.suggest(np.full((2, 4), np.nan))
    alone = GPClassifier("rbf").partial_fit(X[:9], np.array(["a"] * 9))
    with pytest.raises(ValueError, match=r"needs two classes.*only 'a'.*outlier_score"):
        alone.suggest(X)

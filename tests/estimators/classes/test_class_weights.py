"""Class weights are those of all rows so far, however they came."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris

from sureshot import GPClassifier
from sureshot.estimators.classes.class_weights import weigh_classes
from sureshot.estimators.rows.labelled_rows import LabelledRows

X, Y = load_iris(return_X_y=True)
ROWS = LabelledRows(np.zeros((5, 1)), np.array([0, 0, 0, 1, 1]), np.array([1.0, 2.0, 1.0, 3.0, 1.0]))


OF_MODE = {"rtol": 0, "atol": 1e-7}
"""Of probabilities by modes that were begun at different places: each ends where its gradient is shorter than 1e-8."""


def fixed(**options: Any) -> GPClassifier:
    return GPClassifier(kernel="rbf", objective=None, standardize=False, **options)


def test_balanced_by_hand() -> None:
    """Totals 4 and 4 of 8 are balanced already; without the last row they are 4 and 3 of 7."""
    np.testing.assert_allclose(weigh_classes(ROWS, "balanced", np.arange(2), "auto").weight, ROWS.weight)
    fewer = LabelledRows(ROWS.x[:4], ROWS.y[:4], ROWS.weight[:4])
    expected = ROWS.weight[:4] * 7 / (2 * np.array([4, 4, 4, 3]))
    np.testing.assert_allclose(weigh_classes(fewer, "balanced", np.arange(3), "auto").weight, expected)


def test_a_class_of_weight_zero_is_left_out() -> None:
    kept = weigh_classes(ROWS, {0: 0.0, 1: 2.0}, np.arange(2), "auto")
    np.testing.assert_array_equal(kept.y, [1, 1])
    np.testing.assert_array_equal(kept.weight, [6, 2])


def directions(counts: Sequence[int], spread: float = 0.4) -> tuple[np.ndarray, np.ndarray]:
    """Rows of unit length around an axis for each class."""
    y = np.repeat(np.arange(len(counts)), counts)
    x = np.eye(len(counts), 16)[y] + spread * np.random.default_rng(3).normal(size=(len(y), 16))
    return x / np.linalg.norm(x, axis=1, keepdims=True), y


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([20, 1], [1, 20]),
        ([20, 6, 1, 1], [1, 20 / 6, 20, 20]),
        ([20, 6, 1], [1, 1, 1]),  # most classes have rows that can be left out
        ([20, 2], [1, 1]),
        ([3, 1], [1, 1]),
        ([20, 0, 1], [1, 1, 20]),  # a class without rows is not one with a single row
    ],
)
def test_single_embeddings_count_as_many_where_one_row_tells_a_class(counts: list[int], expected: list[float]) -> None:
    weighed_as(*directions(counts, 0.2), expected)


@pytest.mark.parametrize(("counts", "expected"), [([20, 1], [0.15, 1]), ([20, 6, 1, 1], [0.15, 0.5, 1, 1])])
def test_beside_single_embeddings_of_wide_classes_none_counts_as_more_than_three(
    counts: list[int], expected: list[float]
) -> None:
    """Rows of a class have nothing in common, as those of groups of intents."""
    weighed_as(*directions(counts, 100.0), expected)


def weighed_as(x: np.ndarray, y: np.ndarray, expected: list[float]) -> None:
    counts = np.bincount(y)
    rows = LabelledRows(x, y, np.ones(len(y)))
    weighed = weigh_classes(rows, "auto", np.arange(len(counts)), "auto")
    np.testing.assert_allclose(weighed.weight, np.array(expected)[y])
    np.testing.assert_array_equal(weighed.left_out_shares, 1)
    np.testing.assert_array_equal(weigh_classes(rows, None, np.arange(len(counts)), "auto").weight, 1)


def test_rows_of_tables_and_of_samplers_count_as_they_are() -> None:
    x, y = directions([20, 1])
    table = LabelledRows(2 * x, y, np.ones(len(y)))
    np.testing.assert_array_equal(weigh_classes(table, "auto", np.arange(2), "auto").weight, 1)
    whole = weigh_classes(LabelledRows(x, y, np.ones(len(y))), "auto", np.arange(2), "gibbs")
    np.testing.assert_array_equal(whole.weight, 1)


def test_limits_are_those_of_all_rows_so_far(tmp_path: Path) -> None:
    """The first class has single ones beside it, until these have a second row each."""
    x, y = directions([20, 3, 3], 0.2)
    first = np.concatenate([np.flatnonzero(y == 0), [20, 23]])
    rest = np.setdiff1d(np.arange(len(y)), first)
    model = fixed(likelihood="softmax").fit(x[first], y[first])
    np.testing.assert_allclose(model.class_prior_, np.array([70, 70, 70]) / 210)
    stated = fixed(likelihood="softmax", class_weight=None).fit(x[first], y[first])
    own, own_stated = (one.predict_proba(x[rest])[np.arange(len(rest)), y[rest]] for one in (model, stated))
    assert (own > own_stated).all()
    model.save(tmp_path / "model")
    loaded = GPClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(x), model.predict_proba(x))
    whole = fixed(likelihood="softmax", class_weight=None).fit(x, y)
    grown = loaded.partial_fit(x[rest], y[rest])
    np.testing.assert_allclose(grown.predict_proba(x), whole.predict_proba(x), **OF_MODE)


@pytest.mark.parametrize(
    ("weights", "message"), [({0: -1.0}, "not negative"), ({0: np.nan}, "finite"), ({0: 0.0, 1: 0.0}, "leaves no row")]
)
def test_impossible_weights_are_named(weights: dict[int, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        weigh_classes(ROWS, weights, np.arange(2), "auto")


@pytest.mark.parametrize("class_weight", ["balanced", {0: 0.5, 1: 3.0, 2: 1.0}, {0: 0.0, 1: 1.0, 2: 1.0}])
@pytest.mark.parametrize("likelihood", ["softmax", "least_squares", "one_vs_each"])
def test_rows_in_any_portions_are_weighted_alike(class_weight: Any, likelihood: str, tmp_path: Path) -> None:
    rows = np.concatenate([np.arange(0, 50, 3), np.arange(50, 100, 6), np.arange(100, 150, 12)])
    rows = np.random.default_rng(0).permutation(rows)
    weight = np.random.default_rng(1).uniform(0.5, 2, len(rows))
    whole = fixed(class_weight=class_weight, likelihood=likelihood)
    whole.partial_fit(X[rows], Y[rows], classes=[0, 1, 2], sample_weight=weight)
    parts = fixed(class_weight=class_weight, likelihood=likelihood)
    for part in np.array_split(np.arange(len(rows)), 4):
        parts.partial_fit(X[rows[part]], Y[rows[part]], classes=[0, 1, 2], sample_weight=weight[part])
    np.testing.assert_allclose(parts.predict_proba(X), whole.predict_proba(X), **OF_MODE)
    whole.save(tmp_path / "model")
    loaded = GPClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X), whole.predict_proba(X))
    again = loaded.partial_fit(X[:4], Y[:4]).predict_proba(X)
    np.testing.assert_allclose(again, whole.partial_fit(X[:4], Y[:4]).predict_proba(X), **OF_MODE)

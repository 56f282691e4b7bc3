"""Class weights are those of all rows so far, however they came."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris

from sureshot import GPClassifier
from sureshot.estimators.validation import LabelledRows, weigh_classes

X, Y = load_iris(return_X_y=True)
ROWS = LabelledRows(np.zeros((5, 1)), np.array([0, 0, 0, 1, 1]), np.array([1.0, 2.0, 1.0, 3.0, 1.0]))


def fixed(**options: Any) -> GPClassifier:
    return GPClassifier(kernel="rbf", objective=None, standardize=False, **options)


def test_balanced_by_hand() -> None:
    """Totals 4 and 4 of 8 are balanced already; without the last row they are 4 and 3 of 7."""
    np.testing.assert_allclose(weigh_classes(ROWS, "balanced", np.arange(2)).weight, ROWS.weight)
    fewer = LabelledRows(ROWS.x[:4], ROWS.y[:4], ROWS.weight[:4])
    expected = ROWS.weight[:4] * 7 / (2 * np.array([4, 4, 4, 3]))
    np.testing.assert_allclose(weigh_classes(fewer, "balanced", np.arange(3)).weight, expected)


def test_a_class_of_weight_zero_is_left_out() -> None:
    kept = weigh_classes(ROWS, {0: 0.0, 1: 2.0}, np.arange(2))
    np.testing.assert_array_equal(kept.y, [1, 1])
    np.testing.assert_array_equal(kept.weight, [6, 2])


@pytest.mark.parametrize(
    ("weights", "message"), [({0: -1.0}, "not negative"), ({0: np.nan}, "finite"), ({0: 0.0, 1: 0.0}, "leaves no row")]
)
def test_impossible_weights_are_named(weights: dict[int, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        weigh_classes(ROWS, weights, np.arange(2))


@pytest.mark.parametrize("class_weight", ["balanced", {0: 0.5, 1: 3.0, 2: 1.0}, {0: 0.0, 1: 1.0, 2: 1.0}])
@pytest.mark.parametrize("likelihood", ["softmax", "gaussian", "one_vs_each"])
def test_rows_in_any_portions_are_weighted_alike(class_weight: Any, likelihood: str, tmp_path: Path) -> None:
    rows = np.concatenate([np.arange(0, 50, 3), np.arange(50, 100, 6), np.arange(100, 150, 12)])
    rows = np.random.default_rng(0).permutation(rows)
    weight = np.random.default_rng(1).uniform(0.5, 2, len(rows))
    whole = fixed(class_weight=class_weight, likelihood=likelihood)
    whole.partial_fit(X[rows], Y[rows], classes=[0, 1, 2], sample_weight=weight)
    parts = fixed(class_weight=class_weight, likelihood=likelihood)
    for part in np.array_split(np.arange(len(rows)), 4):
        parts.partial_fit(X[rows[part]], Y[rows[part]], classes=[0, 1, 2], sample_weight=weight[part])
    np.testing.assert_allclose(parts.predict_proba(X), whole.predict_proba(X), atol=1e-10)
    whole.save(tmp_path / "model")
    loaded = GPClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X), whole.predict_proba(X))
    again = loaded.partial_fit(X[:4], Y[:4]).predict_proba(X)
    np.testing.assert_allclose(again, whole.partial_fit(X[:4], Y[:4]).predict_proba(X), atol=1e-10)

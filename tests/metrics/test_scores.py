"""Hand-computed scores, what they cannot depend on, and what they refuse."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import log_loss

from sureshot.metrics import accuracy, brier, negative_log_likelihood, summarise


@st.composite
def predictions(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    n, n_classes = draw(st.integers(1, 30)), draw(st.integers(1, 6))
    raw = draw(hnp.arrays(np.float64, (n, n_classes), elements=st.floats(0.0, 1.0, width=32)))
    raw[raw.sum(axis=1) < 1e-3] = 1.0
    y = draw(hnp.arrays(np.int64, n, elements=st.integers(0, n_classes - 1)))
    return raw / raw.sum(axis=1, keepdims=True), y


def test_hand_computed() -> None:
    probabilities = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
    y = [0, 1]
    assert accuracy(probabilities, y) == 0.5
    assert negative_log_likelihood(probabilities, y) == pytest.approx(-(np.log(0.7) + np.log(0.3)) / 2)
    assert brier(probabilities, y) == pytest.approx((0.09 + 0.04 + 0.01 + 0.01 + 0.49 + 0.36) / 2)


def test_agrees_with_scikit_learn() -> None:
    rng = np.random.default_rng(3)
    probabilities = rng.dirichlet(np.ones(7), size=200)
    y = rng.integers(7, size=200)
    assert negative_log_likelihood(probabilities, y) == pytest.approx(log_loss(y, probabilities), rel=1e-12)


def test_zero_probability_of_the_truth_is_finite() -> None:
    assert negative_log_likelihood([[1.0, 0.0]], [1]) == pytest.approx(-np.log(np.finfo(float).tiny))
    assert brier([[1.0, 0.0]], [1]) == 2.0


def test_first_of_equals_is_the_answer() -> None:
    assert accuracy([[0.5, 0.5], [0.5, 0.5]], [0, 1]) == 0.5


@given(predictions())
def test_bounds(prediction: tuple[np.ndarray, np.ndarray]) -> None:
    scores = summarise(*prediction)
    assert 0.0 <= scores.accuracy <= 1.0
    assert 0.0 <= scores.nll <= 709.0
    assert 0.0 <= scores.brier <= 2.0 + 1e-12
    assert 0.0 <= scores.ece <= scores.mce + 1e-12
    assert scores.mce <= 1.0 + 1e-12
    assert scores.n == prediction[1].size


@given(predictions(), st.integers(0, 2**32 - 1))
def test_order_of_rows_does_not_matter(prediction: tuple[np.ndarray, np.ndarray], seed: int) -> None:
    probabilities, y = prediction
    order = np.random.default_rng(seed).permutation(y.size)
    before, after = summarise(probabilities, y), summarise(probabilities[order], y[order])
    assert after.as_dict() == pytest.approx(before.as_dict(), rel=1e-12, abs=1e-14)


@given(predictions())
def test_order_of_classes_does_not_matter(prediction: tuple[np.ndarray, np.ndarray]) -> None:
    probabilities, y = prediction
    n_classes = probabilities.shape[1]
    flipped, z = probabilities[:, ::-1], n_classes - 1 - y
    assert brier(flipped, z) == pytest.approx(brier(probabilities, y), rel=1e-12, abs=1e-14)
    assert negative_log_likelihood(flipped, z) == negative_log_likelihood(probabilities, y)


@given(st.integers(1, 20), st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_a_perfect_predictor_scores_zero(n: int, n_classes: int, seed: int) -> None:
    y = np.random.default_rng(seed).integers(n_classes, size=n)
    scores = summarise(np.eye(n_classes)[y], y)
    assert scores.as_dict() == {"accuracy": 1.0, "nll": 0.0, "brier": 0.0, "ece": 0.0, "mce": 0.0, "n": n}


def test_labels_through_classes() -> None:
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    by_column = summarise(probabilities, [0, 1, 1])
    assert summarise(probabilities, ["b", "a", "a"], classes=["b", "a"]) == by_column
    assert summarise(probabilities, np.array([10, -5, -5]), classes=np.array([10, -5])) == by_column


def test_float32_rows_are_accepted() -> None:
    raw = np.random.default_rng(0).random((50, 1000), dtype=np.float32)
    summarise(raw / raw.sum(axis=1, keepdims=True), np.zeros(50, dtype=np.int32))


def test_scores_are_json_and_frozen() -> None:
    scores = summarise([[0.6, 0.4]], [0])
    assert json.loads(json.dumps(scores.as_dict()))["accuracy"] == 1.0
    with pytest.raises(AttributeError):
        scores.accuracy = 0.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("probabilities", "y", "classes", "message"),
    [
        ([0.3, 0.7], [0, 1], None, "both columns"),
        (np.empty((0, 3)), [], None, "non-empty"),
        ([["a", "b"]], [0], None, "real numbers"),
        ([[0.5, np.nan]], [0], None, "row 0 holds NaN"),
        ([[0.5, 0.5], [np.inf, 0.0]], [0, 0], None, "row 1 holds NaN or infinity"),
        ([[-0.5, -1.0]], [0], None, "Log-probabilities"),
        ([[0.5, 0.2]], [0], None, "row 0 sums to 0.7"),
        ([[0.5, 0.5]], [0, 1], None, "expected 1 labels"),
        ([[0.5, 0.5]], ["a"], None, "Pass classes="),
        ([[0.5, 0.5]], [2], None, "got 2 to 2"),
        ([[0.5, 0.5]], [-1], None, "got -1 to -1"),
        ([[0.5, 0.5]], ["c"], ["a", "b"], "'c'"),
        ([[0.5, 0.5]], ["a"], ["a"], "expected 2 labels"),
        ([[0.5, 0.5]], ["a"], ["a", "a"], "distinct"),
    ],
)
def test_refuses(probabilities: object, y: object, classes: object, message: str) -> None:
    for metric in (accuracy, negative_log_likelihood, brier, summarise):
        with pytest.raises(ValueError, match=message):
            metric(probabilities, y, classes=classes)  # type: ignore[operator]

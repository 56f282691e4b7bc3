"""Scores class by class, on cases computed by hand and beside scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as oracle

from sureshot.metrics import balanced_accuracy, class_scores, confusion_matrix


def test_by_hand() -> None:
    p = np.eye(3)[[0, 0, 0, 1, 0, 0]]
    y = np.array(["a", "a", "a", "b", "b", "a"])
    classes = ["a", "b", "c"]
    assert confusion_matrix(p, y, classes=classes).tolist() == [[4, 0, 0], [1, 1, 0], [0, 0, 0]]
    found = class_scores(p, y, classes=classes)
    assert found.rows.tolist() == [4, 2, 0]
    assert found.predicted.tolist() == [5, 1, 0]
    np.testing.assert_array_equal(found.precision, [0.8, 1.0, np.nan])
    np.testing.assert_array_equal(found.recall, [1.0, 0.5, np.nan])
    assert balanced_accuracy(p, y, classes=classes) == 0.75


def test_the_commonest_class_alone_is_one_over_their_number() -> None:
    p, y = np.tile([0.9, 0.06, 0.04], (100, 1)), np.repeat([0, 1, 2], [90, 6, 4])
    assert balanced_accuracy(p, y) == pytest.approx(1 / 3)


def test_beside_scikit_learn() -> None:
    generator = np.random.default_rng(0)
    p, y = generator.dirichlet(np.ones(5), 200), generator.integers(0, 5, 200)
    predicted = p.argmax(1)
    np.testing.assert_array_equal(confusion_matrix(p, y), oracle.confusion_matrix(y, predicted))
    assert balanced_accuracy(p, y) == pytest.approx(oracle.balanced_accuracy_score(y, predicted))
    found = class_scores(p, y)
    np.testing.assert_allclose(found.precision, oracle.precision_score(y, predicted, average=None))
    np.testing.assert_allclose(found.recall, oracle.recall_score(y, predicted, average=None))


def test_scores_in_the_place_of_probabilities_are_refused() -> None:
    with pytest.raises(ValueError, match="sum to 1"):
        balanced_accuracy([[0.2, 0.2]], [0])

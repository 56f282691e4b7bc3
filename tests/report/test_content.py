"""What the data classes refuse, and the worst pairs by hand."""

from __future__ import annotations

import numpy as np
import pytest

from sureshot.report import Confusion, Predictions, Report, Table, worst_pairs
from sureshot.report.content import confusion_frame, digest


def test_worst_pairs_by_hand() -> None:
    truth = np.array([0, 0, 0, 0, 1, 1, 2])
    predicted = np.array([1, 1, 0, 2, 0, 1, 0])
    assert worst_pairs(truth, predicted, ["a", "b", "c"]) == [
        Confusion("a", "b", 2, 0.5),
        Confusion("c", "a", 1, 1.0),
        Confusion("b", "a", 1, 0.5),
        Confusion("a", "c", 1, 0.25),
    ]
    assert worst_pairs(truth, truth, ["a", "b", "c"]) == []


def test_the_confusion_matrix_has_unknown_labels_last() -> None:
    p = np.eye(2)[[0, 1, 1, 0]]
    found = confusion_frame(Predictions(p, ["b", "a"], ["b", "b", "a", "new"]))
    assert found.index.tolist() == ["b", "a", "new"]
    assert found.columns.tolist() == ["b", "a"]
    assert found.to_numpy().tolist() == [[1, 1], [0, 1], [1, 0]]


def test_digest() -> None:
    view = digest(Predictions([[0.5, 0.5], [0.1, 0.9], [1.0, 0.0]], ["a", "b"], ["b", "b", "new"]))
    assert view.predicted.tolist() == [0, 1, 0]
    assert view.confidence.tolist() == [0.5, 0.9, 1.0]
    assert view.truth is not None
    assert view.truth.tolist() == [1, 1, -1]
    assert view.known.tolist() == [True, True, False]
    assert view.uncertainty == pytest.approx([np.log(2), -0.1 * np.log(0.1) - 0.9 * np.log(0.9), 0.0])
    given = digest(Predictions([[0.5, 0.5]], [0, 1], uncertainty=[0.25]))
    assert given.uncertainty.tolist() == [0.25]
    assert given.truth is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"probabilities": [[0.5, 0.2]]}, "sums to 0.7"),
        ({"classes": ["a"]}, "classes: expected 2"),
        ({"y": ["a", "b"]}, "y: expected 1"),
        ({"uncertainty": [[1.0]]}, "uncertainty: expected 1"),
        ({"outlier_score": []}, "outlier_score: expected 1"),
        ({"row_names": [1, 2]}, "row_names: expected 1"),
        ({"images": np.zeros((2, 4, 4))}, "images: expected shape"),
        ({"images": np.zeros((1, 4, 4, 2))}, "images: expected shape"),
        ({"images": np.zeros((1, 4))}, "images: expected shape"),
    ],
)
def test_predictions_refuse(arguments: dict[str, object], message: str) -> None:
    good: dict[str, object] = {"probabilities": [[0.5, 0.5]], "classes": ["a", "b"]}
    with pytest.raises(ValueError, match=message):
        Predictions(**{**good, **arguments})  # type: ignore[arg-type]


def test_other_refusals() -> None:
    with pytest.raises(ValueError, match="row 1 has 1"):
        Table(("a", "b"), ((1, 2), (1,)))
    with pytest.raises(ValueError, match="better: expected 2"):
        Table(("a", "b"), ((1, 2),), ("lower",))


def test_frozen() -> None:
    with pytest.raises(AttributeError):
        Report("x").title = "y"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        Predictions([[1.0]], ["a"]).classes = ["b"]  # type: ignore[misc]

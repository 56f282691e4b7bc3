"""Streams: scores of a scripted method by hand, what is asked when, and estimators."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from sureshot import GPClassifier
from sureshot.evaluation.streams import BatchScores, evaluate_batch, evaluate_stream, pooled
from sureshot.metrics import summarise


class Scripted:
    """Says "b" with the probability that a row is, of the classes that it was taught, in the order of their coming."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.classes_ = np.array([], dtype=str)

    def partial_fit(self, X: Any, y: Any, classes: Any = ()) -> None:
        self.calls.append(f"learn {len(y)} {list(classes)}")
        self.classes_ = np.array(list(dict.fromkeys([*self.classes_, *classes, *y])))

    def predict_proba(self, X: Any) -> np.ndarray:
        self.calls.append(f"ask {len(X)}")
        p = np.asarray(X)[:, 0]
        return np.stack([p if name == "b" else (1 - p) / (len(self.classes_) - 1) for name in self.classes_], axis=1)


BATCHES = [
    ([[0.5], [0.5]], ["b", "a"]),
    ([[0.8], [0.6]], ["b", "a"]),
    ([[0.1], [0.2]], ["c", "c"]),
    ([[0.0], [0.9], [0.9]], ["b", "b", "d"]),
]


def test_nothing_is_asked_while_one_class_is_known() -> None:
    method = Scripted()
    found = evaluate_stream(method, [([[0.5]], ["a"]), ([[0.5], [0.5]], ["a", "b"]), *BATCHES[1:2]])
    assert [batch.accuracy is None for batch in found] == [True, True, False]
    assert [batch.new_classes for batch in found] == [("a",), ("b",), ()]


def test_scores_by_hand() -> None:
    method, told = Scripted(), []
    found = evaluate_stream(
        method, BATCHES, ["a", "b"], least_probability=1e-2, progress=lambda k, one: told.append((k, one.rows))
    )
    assert method.calls == ["learn 2 ['a', 'b']", "ask 2", "learn 2 []", "learn 2 []", "ask 3", "learn 3 []"]
    assert told == [(0, 2), (1, 2), (2, 2), (3, 3)]
    first, second, third, fourth = found
    assert (first.accuracy, first.nll, first.scored, first.new_classes) == (None, None, 0, ("a", "b"))
    assert (second.accuracy, second.scored, second.new_classes) == (0.5, 2, ())
    assert second.nll == pytest.approx(-(np.log(0.8) + np.log(0.4)) / 2)
    assert second.brier == pytest.approx((2 * 0.2**2 + 2 * 0.6**2) / 2)
    assert (third.accuracy, third.new_classes) == (None, ("c",))
    assert (fourth.accuracy, fourth.scored, fourth.new_classes) == (0.5, 2, ("d",))
    low = 0.01 / 1.01
    assert fourth.nll == pytest.approx(-(np.log(low) + np.log(0.9)) / 2)
    assert fourth.bins is not None
    assert sum(fourth.bins[0]) == 2
    scores = pooled(found)
    assert scores is not None
    assert (scores.rows, scores.accuracy) == (4, 0.5)
    assert scores.nll == pytest.approx((second.nll + fourth.nll) / 2)


def test_calibration_is_that_of_all_rows_together() -> None:
    generator = np.random.default_rng(0)
    p = generator.random((90, 1))
    y = np.where(generator.random(90) < p[:, 0] ** 2, "b", "a")
    batches = [(p[:10], y[:10]), (p[10:20], y[10:20]), (p[20:], y[20:])]
    scores = pooled(evaluate_stream(Scripted(), batches, ["a", "b"]))
    both = summarise(np.c_[1 - p, p][10:], y[10:], classes=["a", "b"])
    assert scores is not None
    for name in ("accuracy", "nll", "brier", "ece"):
        assert getattr(scores, name) == pytest.approx(getattr(both, name)), name


def test_scores_of_several_batches_are_json() -> None:
    found = evaluate_stream(Scripted(), BATCHES)
    scores = pooled(found)
    assert scores is not None
    assert json.loads(json.dumps(asdict(scores)))["rows"] == 4
    assert pooled([]) is None
    assert pooled(found[:1]) is None


@pytest.mark.parametrize("make", [GaussianNB, GPClassifier])
def test_estimators_learn_a_stream(make: Any) -> None:
    x = np.random.default_rng(1).normal(size=(60, 2))
    y = np.where(x[:, 0] > 0, "up", "down")
    model = make()
    found = evaluate_stream(model, ((x[i : i + 15], y[i : i + 15]) for i in range(0, 60, 15)), np.unique(y))
    scores = pooled(found)
    assert scores is not None
    assert scores.rows == 45
    assert scores.accuracy > 0.7
    assert all(one.learn_seconds > 0 for one in found)
    alone = make().partial_fit(x[:45], y[:45], classes=np.unique(y))
    last = evaluate_batch(alone, x[45:], y[45:])
    assert isinstance(last, BatchScores)
    assert last.scored == 15

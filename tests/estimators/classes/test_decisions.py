"""A label or none of them, and sets of labels: from p-values to answers, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_iris

from sureshot import FewShotClassifier
from sureshot.data.checks import check_share
from sureshot.estimators.classes.decisions import LabelSets, unknown_label, with_unknown
from sureshot.estimators.gp.ensemble import Ensemble

X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])
KNOWN = Y < 2


@pytest.fixture(scope="module")
def model() -> FewShotClassifier:
    return FewShotClassifier().fit(X[KNOWN][::2], NAMES[Y[KNOWN][::2]])


def test_rejected_rows_have_small_p_values(model: FewShotClassifier) -> None:
    p, labels = model.novelty_p_value(X), model.predict(X)
    for rate in (0.05, 0.2):
        decided = model.predict_or_reject(X, rate)
        np.testing.assert_array_equal(decided == "unknown", p <= rate)
        np.testing.assert_array_equal(decided[p > rate], labels[p > rate])
    np.testing.assert_array_equal(model.predict(X), labels)
    assert (model.predict_or_reject(X[Y == 2], 0.05) == "unknown").mean() > 0.3
    assert "none of these" in model.predict_or_reject(X, 0.3, "none of these")


def test_a_decision_is_what_its_parts_say_at_one_go(model: FewShotClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    labels, p, scores = model.predict_or_reject(X, 0.2), model.novelty_p_value(X), model.outlier_score(X)
    asked = list[int]()
    of_rows = Ensemble.outlier_scores
    monkeypatch.setattr(Ensemble, "outlier_scores", lambda self, q: asked.append(len(q)) or of_rows(self, q))
    found = model.decide(X, 0.2)
    assert sum(asked) == len(X)
    assert found.labels.tolist() == labels.tolist()
    np.testing.assert_array_equal(found.p_values, p)
    np.testing.assert_array_equal(found.outlier_scores, scores)


def test_sets_grow_with_coverage(model: FewShotClassifier) -> None:
    narrow, wide = model.predict_set(X, 0.6), model.predict_set(X, 0.99)
    assert (wide.members >= narrow.members).all()
    assert narrow.sizes.min() == 1
    assert model.predict_set(X, 0.5, allow_empty=True).sizes.min() == 0
    assert len(narrow) == len(X)
    assert narrow.tolist()[0] == ["setosa"] == narrow[0].tolist()
    assert all(model.predict(X)[k] in narrow[k] for k in range(len(X)))


def test_too_few_rows_reject_nothing_and_say_so() -> None:
    model = FewShotClassifier().fit(X[KNOWN][::20], Y[KNOWN][::20])
    with pytest.warns(UserWarning, match=r"nothing is rejected at false_alarm=0.05: 5 labelled rows .* 0.167 only"):
        decided = model.predict_or_reject(X + 100, unknown=-1)
    assert (decided >= 0).all()
    with pytest.warns(UserWarning, match="nothing is rejected") as said:
        model.decide(X + 100, unknown=-1)
    assert [one.filename for one in said] == [__file__]
    assert model.predict_set(X, 0.9).members.all()


@pytest.mark.parametrize("method", ["predict_or_reject", "decide", "predict_set"])
@pytest.mark.parametrize("value", [0, 1, -0.1, 1.5, float("nan"), float("inf"), "0.05", None, True, [0.05]])
def test_shares_lie_between_0_and_1(model: FewShotClassifier, method: str, value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="between 0 and 1"):
        getattr(model, method)(X, value)


def test_a_percentage_is_told_what_it_is() -> None:
    with pytest.raises(ValueError, match=r"coverage .* got 90: for 90 % give 0.9"):
        check_share("coverage", 90)


@given(st.one_of(st.floats(), st.integers(), st.text(), st.none(), st.booleans()))
def test_a_share_is_a_number_or_an_error(value: Any) -> None:
    if type(value) in (int, float) and 0 < value < 1:
        assert check_share("coverage", value) == value
    else:
        with pytest.raises((ValueError, TypeError), match="coverage"):
            check_share("coverage", value)


def test_what_rejected_rows_are_called() -> None:
    assert unknown_label(None, NAMES) == "unknown"
    assert unknown_label(-1, np.array([0, 1])) == -1
    for classes in (np.array([0, 1]), np.array([0.5, 1.5]), np.array([False, True])):
        with pytest.raises(ValueError, match=r"unknown must be .* such as unknown=-1"):
            unknown_label(None, classes)
    with pytest.raises(ValueError, match="'setosa' is one of the known classes"):
        unknown_label("setosa", NAMES)
    with pytest.raises(ValueError, match="must be one label"):
        unknown_label([1, 2], NAMES)
    with pytest.raises(ValueError, match="'unknown' is one of the known classes"):
        unknown_label(None, np.array(["known", "unknown"]))


@pytest.mark.parametrize(
    ("labels", "unknown", "kind", "expected"),
    [
        (NAMES, "none of these", "U", ["setosa", "none of these", "virginica"]),
        (np.array([0, 1, 2]), -1, "i", [0, -1, 2]),
        (np.array([0, 1, 2]), "none", "O", [0, "none", 2]),
        (NAMES, -1, "O", ["setosa", -1, "virginica"]),
        (np.array([0, 1, 2]), 0.5, "f", [0.0, 0.5, 2.0]),
        (np.array([0, 1, 2], dtype=np.uint8), -1, "i", [0, -1, 2]),
        (np.array([0, 1, 2], dtype=np.uint64), -1, "i", [0, -1, 2]),
        (np.array([2**63, 1, 2], dtype=np.uint64), -1, "O", [2**63, -1, 2]),
    ],
)
def test_types_are_kept_where_they_go_together(
    labels: np.ndarray, unknown: Any, kind: str, expected: list[Any]
) -> None:
    found = with_unknown(labels, np.array([False, True, False]), unknown)
    assert found.dtype.kind == kind
    assert found.tolist() == expected


def test_sets_are_frozen() -> None:
    sets = LabelSets(np.eye(3, dtype=bool), NAMES)
    with pytest.raises(AttributeError):
        sets.classes = NAMES  # type: ignore[misc]
    assert sets.tolist() == [["setosa"], ["versicolor"], ["virginica"]]

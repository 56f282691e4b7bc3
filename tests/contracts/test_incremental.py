"""What every method of class-incremental learning promises that is no estimator, whatever it keeps.

* Columns are classes in the order of their arrival; a session appends, and old columns never move.
* A call that fails, for whatever reason, changes nothing.
* One example, identical examples, one class (two to train a network): finite probabilities that sum to 1.
* A row's answers depend on that row alone.
"""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from sureshot.evaluation.methods import make_method
from sureshot.incremental.baselines import BASELINES
from sureshot.incremental.method import SessionMethod
from sureshot.incremental.trained import TRAINED

NETWORK: dict[str, Any] = {
    "backbone": {"name": "linear"},
    "base": {"epochs": 10, "batch_size": 8, "learning_rate": 0.1},
    "later": {"epochs": 5},
}
CASES: dict[str, dict[str, Any]] = {
    "empirical_bayes": {},
    "least_squares": {"rows_per_class": 4},
    "nearest_class_mean": {},
    "streaming_lda": {"shrinkage": 0.1},
    "fine_tuning": {**NETWORK, "later": {"epochs": 20, "learning_rate": 0.1}},
    "icarl": {**NETWORK, "n_exemplars": 3},
    "podnet": {**NETWORK, "n_exemplars": 3},
    "sdc": {**NETWORK, "penalty": "mas", "importance_rows": 5},
}
"""A case for every name, with options that suit a few rows."""

FORGETS = {"fine_tuning"}
"""Methods that know the last session only."""


ROUNDING = {False: {"rtol": 1e-9, "atol": 1e-12}, True: {"rtol": 1e-4, "atol": 1e-5}}


@pytest.fixture(params=list(CASES))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def blobs(labels: list[str], n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows around a corner for each label, well apart, the labels in turn."""
    y = np.array(labels * n)
    corners = {label: np.eye(8)[ord(label) - ord("a")] for label in labels}
    noise = np.random.default_rng(seed).normal(scale=0.15, size=(len(y), 8))
    return np.stack([3 * corners[label] for label in y.tolist()]) + noise, y


def taught(name: str) -> SessionMethod:
    method = make_method(name, **CASES[name]).fit(*blobs(["d", "b", "c"], 12, 0))
    return method.partial_fit(*blobs(["f", "a"], 3, 1))


def answers(method: SessionMethod, x: np.ndarray) -> tuple[np.ndarray, ...]:
    return method.classes_, method.predict_proba(x), method.outlier_score(x)


def test_every_method_has_a_case() -> None:
    assert set(CASES) == {*BASELINES, *TRAINED}


def test_columns_are_classes_in_sorted_order(name: str) -> None:
    method = taught(name)
    assert method.classes_.tolist() == ["a", "b", "c", "d", "f"]
    method.partial_fit(*blobs(["e", "a"], 3, 2))
    assert method.classes_.tolist() == ["a", "b", "c", "d", "e", "f"]
    x, y = blobs(["a", "e"] if name in FORGETS else ["a", "b", "c", "d", "e", "f"], 5, 3)
    p = method.predict_proba(x)
    assert (method.classes_[p.argmax(1)] == y).all()


def test_probabilities_sum_to_one_and_far_rows_are_outliers(name: str) -> None:
    method = taught(name)
    x, _ = blobs(["a", "f"] if name in FORGETS else ["a", "b", "f"], 5, 4)
    p = method.predict_proba(x)
    assert p.shape == (len(x), 5)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-12)
    strange, _ = blobs(["h"], 5, 5)
    assert method.outlier_score(x).max() < method.outlier_score(strange).min()


def test_a_row_is_answered_alone(name: str) -> None:
    method = taught(name)
    x, _ = blobs(["a", "b", "c"], 4, 6)
    with_a_wild_one = np.concatenate([x, 1e6 * x[:1]])
    together = answers(method, with_a_wild_one)
    for i in range(len(x)):
        for whole, alone in zip(together[1:], answers(method, x[i : i + 1])[1:], strict=True):
            # A network computes in float32, and a product's rounding depends on its size.
            np.testing.assert_allclose(alone[0], whole[i], **ROUNDING[name in TRAINED])


def test_a_call_that_fails_changes_nothing(name: str) -> None:
    method = taught(name)
    x, _ = blobs(["a", "b", "c"], 4, 7)
    before = copy.deepcopy(answers(method, x))
    rows, labels = blobs(["g", "a"], 2, 8)
    nan = rows.copy()
    nan[1, 3] = np.nan
    for bad, message in (
        ((nan, labels), r"X: NaN or infinite numbers in 1 of 4 rows \(the first is row 1\)"),
        ((rows[:, :5], labels), "X: expected (8 columns|vectors of length 8), as in the base session, got .*5"),
        ((rows, labels[:3]), r"y: expected 4 labels, one for each row of X, got shape \(3,\)"),
        ((rows, [1, 2, 3, 4]), "y has labels such as 1, but the classes known so far are such as 'b'"),
        ((rows, [True, False] * 2), "y has labels such as True, but the classes known so far are such as 'b'"),
        ((rows, np.array([0.5, 1, 2, 3])), "y: expected whole numbers or text, got type float64"),
        ((rows[:0], labels[:0]), r"X: expected rows of numbers \(n, D\).*, got shape \(0, 8\)"),
        ((rows.astype(str), labels), "X: expected rows of numbers"),
        ((rows[None], labels[:1]), "(Baselines take embeddings|X: expected vectors of length 8, .* got sequences)"),
    ):
        with pytest.raises(ValueError, match=message):
            method.partial_fit(*bad)
        with pytest.raises(ValueError):
            method.fit(nan, labels)
        for old, new in zip(before, answers(method, x), strict=True):
            np.testing.assert_array_equal(old, new)


def test_queries_are_checked(name: str) -> None:
    with pytest.raises(ValueError, match=r"has learnt nothing yet: call fit\(\)"):
        make_method(name).predict_proba(np.ones((2, 8)))
    method = taught(name)
    for ask in (method.predict_proba, method.outlier_score):
        with pytest.raises(ValueError, match=r"X: expected (8 columns|vectors of length 8)"):
            ask(np.ones((2, 7)))
        with pytest.raises(ValueError, match="X: NaN or infinite"):
            ask(np.full((2, 8), np.inf))


def test_one_example_identical_examples_and_one_class(name: str) -> None:
    x, _ = blobs(["a", "b"], 3, 9)
    for rows, labels in (
        (x[:1], ["a"]),
        (np.repeat(x[:1], 4, axis=0), ["a", "a", "b", "b"]),
        (x[::2], ["a", "a", "a"]),
        (x[:2], ["a", "b"]),
    ):
        if name in TRAINED and len(set(labels)) < 2:
            with pytest.raises(ValueError, match="y: expected two classes or more to train a network"):
                make_method(name, **CASES[name]).fit(rows, labels)
            continue
        method = make_method(name, **CASES[name]).fit(rows, labels).partial_fit(x[1:2], ["c"])
        classes, p, outlier = answers(method, x)
        assert len(classes) == len(set(labels)) + 1
        assert np.isfinite(p).all()
        assert np.isfinite(outlier).all()
        np.testing.assert_allclose(p.sum(1), 1, rtol=1e-12)


def test_the_first_session_may_come_by_partial_fit(name: str) -> None:
    x, y = blobs(["a", "b"], 5, 10)
    first, second = (make_method(name, **CASES[name]) for _ in range(2))
    for one, other in zip(answers(first.fit(x, y), x), answers(second.partial_fit(x, y), x), strict=True):
        np.testing.assert_array_equal(one, other)


def test_numbers_as_labels_and_fit_forgets(name: str) -> None:
    x, y = blobs(["a", "b"], 5, 11)
    method = taught(name).fit(x, (y == "b").astype(int))
    assert method.classes_.tolist() == [0, 1]
    assert method.predict_proba(x).shape == (10, 2)


def test_memory_grows_with_the_classes(name: str) -> None:
    method = make_method(name, **CASES[name]).fit(*blobs(["b", "c"], 5, 12))
    before = method.memory()
    after = method.partial_fit(*blobs(["d", "e"], 5, 13)).memory()
    assert (before.n_classes, after.n_classes) == (2, 4)
    assert after.of_classes > before.of_classes
    assert after.per_class == after.of_classes / 4
    assert after.shared >= before.shared > 0


def test_a_copy_learns_on_its_own(name: str) -> None:
    method = taught(name)
    x, _ = blobs(["a", "b"], 4, 14)
    before = answers(method, x)
    pickle.loads(pickle.dumps(method)).partial_fit(*blobs(["g"], 3, 15))
    for old, new in zip(before, answers(method, x), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("nearest_class_mean", {"scale": 0.0}),
        ("streaming_lda", {"shrinkage": 0.0}),
        ("streaming_lda", {"temperature": -1.0}),
        ("least_squares", {"rows_per_class": 0}),
        ("least_squares", {"noise": float("inf")}),
        ("empirical_bayes", {"shrinkage": 1.5}),
        ("icarl", {"n_exemplars": 0}),
        ("podnet", {"n_exemplars": 0}),
        ("podnet", {"spatial": -1.0}),
        ("sdc", {"gamma": -1.0}),
        ("sdc", {"sigma": 0.0}),
        ("sdc", {"importance_rows": 0}),
        ("fine_tuning", {"aside": 1.0}),
    ],
)
def test_options_out_of_range_are_named(name: str, options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(options))} must .* got"):
        make_method(name, **options)


def test_unknown_names_and_options_are_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"no method called 'streaming_ldaa' \(did you mean 'streaming_lda'\?\)"):
        make_method("streaming_ldaa")
    with pytest.raises(ValueError, match="least_squares has no option 'rows'"):
        make_method("least_squares", rows=3)
    with pytest.raises(ValueError, match="icarl has no option 'exemplars'"):
        make_method("icarl", exemplars=3)


def test_whole_numbers_of_any_type_are_labels(name: str) -> None:
    x, y = blobs(["a", "b"], 4, 13)
    known = np.where(y == "a", 2**60, 2**60 + 1)
    method = make_method(name, **CASES[name]).fit(x, known)
    method.partial_fit(x[:2] + 3, np.full(2, 7, dtype=np.uint64))
    assert method.classes_.tolist() == [7, 2**60, 2**60 + 1]
    with pytest.raises(ValueError, match="y has labels such as True, but"):
        method.partial_fit(x[:2], [True, False])
    method = make_method(name, **CASES[name]).fit(x, known - 2**61)
    with pytest.raises(ValueError, match="do not fit into one type: use text, or smaller numbers"):
        method.partial_fit(x[:2], np.full(2, 2**63 + 5, dtype=np.uint64))


@pytest.mark.parametrize("name", list(BASELINES), indirect=True)
def test_numbers_beyond_computing_are_refused_and_change_nothing(name: str) -> None:
    method, (x, _) = taught(name), blobs(["a", "b", "c"], 4, 7)
    before = copy.deepcopy(answers(method, x))
    huge = np.full((4, 8), 1.7e308) * np.sign(np.random.default_rng(0).normal(size=(4, 8)))
    for act, labels in (("partial_fit", ["g"] * 4), ("fit", ["g", "g", "h", "h"])):
        refused = ""
        try:
            getattr(method, act)(huge, labels)
        except ValueError as error:
            refused = str(error)
        if refused:
            assert "its numbers are too large" in refused
            for old, new in zip(before, answers(method, x), strict=True):
                np.testing.assert_array_equal(old, new)
        else:  # directions of rows have no size
            assert np.isfinite(method.predict_proba(x)).all()
            method = taught(name)


@pytest.mark.parametrize("name", ["tree", "gp"])
def test_estimators_say_that_they_have_learnt_nothing_and_begin_with_one_class(name: str) -> None:
    x, y = blobs(["a", "b"], 4, 14)
    method = make_method(name)
    for ask in (lambda: method.predict_proba(x), lambda: method.outlier_score(x), method.memory):
        with pytest.raises(ValueError, match=r"has learnt nothing yet: call fit\(\) with the base session"):
            ask()
    method.fit(x[y == "a"], y[y == "a"]).partial_fit(x[y == "b"], y[y == "b"])
    assert method.classes_.tolist() == ["a", "b"]
    assert (method.predict_proba(x).argmax(1) == (y == "b")).all()

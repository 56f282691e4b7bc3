"""What every baseline of class-incremental learning promises, whatever it keeps.

* Columns are classes in the order of their arrival; a session appends, and old columns never move.
* A call that fails, for whatever reason, changes nothing.
* One example, identical examples, one class: finite probabilities that sum to 1.
* A row's answers depend on that row alone.
"""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from sureshot.incremental.baselines import BASELINES, Baseline, make_baseline

CASES: dict[str, dict[str, Any]] = {
    "empirical_bayes": {},
    "label_regression": {"rows_per_class": 4},
    "nearest_class_mean": {},
    "streaming_lda": {"shrinkage": 0.1},
}
"""A case for every name, with options that suit a few rows."""


@pytest.fixture(params=list(CASES))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def blobs(labels: list[str], n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows around a corner for each label, well apart, the labels in turn."""
    y = np.array(labels * n)
    corners = {label: np.eye(8)[ord(label) - ord("a")] for label in labels}
    noise = np.random.default_rng(seed).normal(scale=0.15, size=(len(y), 8))
    return np.stack([3 * corners[label] for label in y.tolist()]) + noise, y


def taught(name: str) -> Baseline:
    method = make_baseline(name, **CASES[name]).fit(*blobs(["d", "b", "c"], 12, 0))
    return method.partial_fit(*blobs(["f", "a"], 3, 1))


def answers(method: Baseline, x: np.ndarray) -> tuple[np.ndarray, ...]:
    return method.classes_, method.predict_proba(x), method.outlier_score(x)


def test_every_baseline_has_a_case() -> None:
    assert set(CASES) == set(BASELINES)


def test_columns_are_classes_in_the_order_of_their_arrival(name: str) -> None:
    method = taught(name)
    assert method.classes_.tolist() == ["b", "c", "d", "a", "f"]
    method.partial_fit(*blobs(["e", "a"], 3, 2))
    assert method.classes_.tolist() == ["b", "c", "d", "a", "f", "e"]
    x, y = blobs(["a", "b", "c", "d", "e", "f"], 5, 3)
    p = method.predict_proba(x)
    assert (method.classes_[p.argmax(1)] == y).all()


def test_probabilities_sum_to_one_and_far_rows_are_outliers(name: str) -> None:
    method = taught(name)
    x, _ = blobs(["a", "b", "f"], 5, 4)
    p = method.predict_proba(x)
    assert p.shape == (15, 5)
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
            np.testing.assert_allclose(alone[0], whole[i], rtol=1e-9, atol=1e-12)


def test_a_call_that_fails_changes_nothing(name: str) -> None:
    method = taught(name)
    x, _ = blobs(["a", "b", "c"], 4, 7)
    before = copy.deepcopy(answers(method, x))
    rows, labels = blobs(["g", "a"], 2, 8)
    nan = rows.copy()
    nan[1, 3] = np.nan
    for bad, message in (
        ((nan, labels), r"X: NaN or infinite numbers in 1 of 4 rows \(the first is row 1\)"),
        ((rows[:, :5], labels), "X: expected 8 columns, as in the base session, got 5"),
        ((rows, labels[:3]), r"y: expected 4 labels, one for each row of X, got shape \(3,\)"),
        ((rows, [1, 2, 3, 4]), "y has labels such as 1, but the classes known so far are such as 'b'"),
        ((rows, np.array([0.5, 1, 2, 3])), "y: expected whole numbers or text, got type float64"),
        ((rows[:0], labels[:0]), r"X: expected rows of numbers \(n, D\), got shape \(0, 8\)"),
        ((rows.astype(str), labels), "X: expected rows of numbers"),
        ((rows[None], labels), "Baselines take embeddings"),
    ):
        with pytest.raises(ValueError, match=message):
            method.partial_fit(*bad)
        with pytest.raises(ValueError):
            method.fit(nan, labels)
        for old, new in zip(before, answers(method, x), strict=True):
            np.testing.assert_array_equal(old, new)


def test_queries_are_checked(name: str) -> None:
    with pytest.raises(ValueError, match=r"has learnt nothing yet: call fit\(\)"):
        make_baseline(name).predict_proba(np.ones((2, 8)))
    method = taught(name)
    for ask in (method.predict_proba, method.outlier_score):
        with pytest.raises(ValueError, match="X: expected 8 columns"):
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
        method = make_baseline(name, **CASES[name]).fit(rows, labels).partial_fit(x[1:2], ["c"])
        classes, p, outlier = answers(method, x)
        assert len(classes) == len(set(labels)) + 1
        assert np.isfinite(p).all()
        assert np.isfinite(outlier).all()
        np.testing.assert_allclose(p.sum(1), 1, rtol=1e-12)


def test_the_first_session_may_come_by_partial_fit(name: str) -> None:
    x, y = blobs(["a", "b"], 5, 10)
    first, second = (make_baseline(name, **CASES[name]) for _ in range(2))
    for one, other in zip(answers(first.fit(x, y), x), answers(second.partial_fit(x, y), x), strict=True):
        np.testing.assert_array_equal(one, other)


def test_numbers_as_labels_and_fit_forgets(name: str) -> None:
    x, y = blobs(["a", "b"], 5, 11)
    method = taught(name).fit(x, (y == "b").astype(int))
    assert method.classes_.tolist() == [0, 1]
    assert method.predict_proba(x).shape == (10, 2)


def test_memory_grows_with_the_classes(name: str) -> None:
    method = make_baseline(name, **CASES[name]).fit(*blobs(["b", "c"], 5, 12))
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
        ("label_regression", {"rows_per_class": 0}),
        ("label_regression", {"noise": float("inf")}),
        ("empirical_bayes", {"shrinkage": 1.5}),
    ],
)
def test_options_out_of_range_are_named(name: str, options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be .* got"):
        make_baseline(name, **options)


def test_unknown_names_and_options_are_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"no baseline called 'streaming_ldaa' \(did you mean 'streaming_lda'\?\)"):
        make_baseline("streaming_ldaa")
    with pytest.raises(ValueError, match="label_regression has no option 'rows'"):
        make_baseline("label_regression", rows=3)

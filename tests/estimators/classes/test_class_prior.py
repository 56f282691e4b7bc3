"""How often classes come: Bayes' rule by hand, its estimate from unlabelled rows, and what is refused."""

from __future__ import annotations

from copy import copy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sureshot import FewShotClassifier, GPClassifier, KernelSearchClassifier, TreeGPClassifier
from sureshot.estimators.classes.class_prior import adapted_prior

RNG = np.random.default_rng(0)
MEANS = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]])


def drawn(counts: list[int], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    y = np.repeat(np.arange(len(counts)), counts)
    return MEANS[y] + 0.8 * np.random.default_rng(seed).normal(size=(len(y), 2)), np.array(["a", "b", "c"])[y]


X, Y = drawn([30, 10, 5])
QUERIES, _ = drawn([8, 8, 8], seed=1)
MODELS = [
    GPClassifier("rbf"),
    GPClassifier("rbf", class_weight={"a": 1, "b": 2, "c": 3}),
    FewShotClassifier(),
    KernelSearchClassifier(4, structure="SQUARED-EXPONENTIAL"),
]


@cache
def learnt(kind: type) -> Any:
    """What is fitted is never changed, so a copy costs nothing."""
    return (GPClassifier("rbf") if kind is GPClassifier else kind()).fit(X, Y)


@pytest.mark.parametrize("model", MODELS)
def test_a_stated_prior_is_bayes_rule(model: Any) -> None:
    plain = model.fit(X, Y).predict_proba(QUERIES)
    stated = model.get_params().get("class_weight")
    weights = stated if isinstance(stated, dict) else {"a": 1, "b": 1, "c": 1}
    frequencies = np.array([30 * weights["a"], 10 * weights["b"], 5 * weights["c"]])
    np.testing.assert_allclose(model.class_prior_, frequencies / frequencies.sum())
    prior = np.array([0.2, 0.3, 0.5])
    expected = plain * prior / frequencies
    expected /= expected.sum(1, keepdims=True)
    for given in (prior, {"c": 5, "a": 2, "b": 3}, [2, 3, 5]):
        model.set_class_prior(given)
        np.testing.assert_allclose(model.predict_proba(QUERIES), expected, atol=1e-12)
        np.testing.assert_allclose(model.class_prior_, prior)
    np.testing.assert_allclose(model.set_class_prior("support").predict_proba(QUERIES), plain)


def test_by_default_few_examples_of_embeddings_say_little_of_frequencies(tmp_path: Path) -> None:
    assert GPClassifier("rbf").fit(X, Y).set_class_prior("auto")._fitted.class_prior is None
    directions = np.hstack([X, np.ones((len(X), 2))])
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    model = GPClassifier().fit(directions, Y)
    np.testing.assert_allclose(model.class_prior_, np.array([80, 60, 55]) / 195)
    model.save(tmp_path / "model")
    loaded = GPClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(directions), model.predict_proba(directions))
    loaded.partial_fit(directions[30:35], Y[30:35])
    np.testing.assert_allclose(loaded.class_prior_, np.array([80, 65, 55]) / 200)
    plain = model.set_class_prior("support").predict_proba(directions)
    np.testing.assert_allclose(GPClassifier(class_prior="support").fit(directions, Y).predict_proba(directions), plain)
    even = np.concatenate([np.arange(first, first + 5) for first in (0, 30, 40)])
    assert GPClassifier().fit(directions[even], Y[even])._fitted.class_prior is None


@pytest.mark.parametrize(
    "model", [GPClassifier("rbf", class_prior="uniform"), FewShotClassifier(class_prior="uniform")]
)
def test_the_argument_holds_from_the_fit_on_and_for_new_classes(model: Any, tmp_path: Path) -> None:
    model.fit(X, Y)
    np.testing.assert_allclose(model.class_prior_, 1 / 3)
    model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(QUERIES), model.predict_proba(QUERIES))
    assert loaded.get_params()["class_prior"] == "uniform"
    loaded.partial_fit(X[:3] + 5, ["d"] * 3)
    np.testing.assert_allclose(loaded.class_prior_, 1 / 4)
    loaded.forget("d")
    np.testing.assert_allclose(loaded.predict_proba(QUERIES), model.predict_proba(QUERIES), atol=1e-9)


@pytest.mark.parametrize("prior", [{"a": 1.0, "b": 2.0, "c": 1.0}, np.array([0.5, 0.25, 0.25])])
def test_stated_priors_survive_a_model_file(prior: Any, tmp_path: Path) -> None:
    model = GPClassifier("rbf", class_prior=prior).fit(X, Y)
    model.save(tmp_path / "model")
    loaded = GPClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(QUERIES), model.predict_proba(QUERIES))
    kept = loaded.get_params()["class_prior"]
    assert kept == prior if isinstance(prior, dict) else np.array_equal(kept, prior)


def test_frequencies_of_unlabelled_rows_are_found() -> None:
    """Rows to learn from are even, rows to come are not: their frequencies and better probabilities follow."""
    x, y = drawn([60, 60, 60], seed=2)
    test_x, test_y = drawn([20, 100, 280], seed=3)
    model = GPClassifier("rbf").fit(x, y)

    def log_loss() -> float:
        p = model.predict_proba(test_x)
        return -float(np.log(p[np.arange(len(p)), np.searchsorted(model.classes_, test_y)]).mean())

    before = log_loss()
    model.adapt_prior(test_x)
    np.testing.assert_allclose(model.class_prior_, [0.05, 0.25, 0.7], atol=0.05)
    assert log_loss() < before - 0.05
    found = model.class_prior_
    np.testing.assert_allclose(model.partial_fit(x[:1], y[:1]).class_prior_, found)


@pytest.mark.parametrize("kind", [GPClassifier, TreeGPClassifier])
def test_a_prior_that_was_set_stays_while_it_says_something_of_every_class(kind: type, tmp_path: Path) -> None:
    model = copy(learnt(kind)).set_class_prior([0.1, 0.3, 0.6])
    model.save(tmp_path / "model")
    for one in (model, kind.load(tmp_path / "model")):
        np.testing.assert_array_equal(one.partial_fit(X[:2], Y[:2]).class_prior_, [0.1, 0.3, 0.6])
        np.testing.assert_allclose(one.forget("a").class_prior_, [1 / 3, 2 / 3])
        with pytest.warns(UserWarning, match="says nothing of some of the classes"):
            one.partial_fit(X[:3] + 5, ["d"] * 3)
        assert one._fitted.class_prior is None
    uniform = copy(learnt(kind)).set_class_prior("uniform").partial_fit(X[:3] + 5, ["d"] * 3)
    np.testing.assert_allclose(uniform.class_prior_, 0.25)


@pytest.mark.parametrize("kind", [GPClassifier, FewShotClassifier])
def test_an_argument_that_changes_comes_before_a_prior_that_was_set(kind: type) -> None:
    model = copy(learnt(kind)).set_class_prior([0.1, 0.3, 0.6]).set_params(class_prior="uniform")
    np.testing.assert_allclose(model.partial_fit(X[:2], Y[:2]).class_prior_, 1 / 3)


def test_the_estimate_is_where_expectations_agree() -> None:
    p = RNG.dirichlet(np.ones(3), size=400)
    frequencies = np.array([3.0, 2.0, 1.0])
    prior = adapted_prior(p, frequencies)
    shares = p * prior / frequencies
    counts = (shares / shares.sum(1, keepdims=True)).sum(0) + frequencies / 6
    np.testing.assert_allclose(prior, counts / 401, atol=1e-6)
    assert prior.sum() == pytest.approx(1)


def test_a_single_row_kills_no_class() -> None:
    assert (adapted_prior(np.array([[1.0, 0.0, 0.0]]), np.ones(3)) > 0.1).all()


def test_classes_of_a_tree_count_alike() -> None:
    model = TreeGPClassifier().fit(X, Y)
    np.testing.assert_allclose(model.class_prior_, 1 / 3)
    plain = model.predict_proba(QUERIES)
    np.testing.assert_allclose(model.set_class_prior("uniform").predict_proba(QUERIES), plain, atol=1e-12)


def test_an_announced_class_has_a_share() -> None:
    model = GPClassifier("rbf").partial_fit(X, Y, classes=["z"])
    assert model.class_prior_[model.classes_.tolist().index("z")] == pytest.approx(1 / 5)
    p = model.set_class_prior("uniform").predict_proba(QUERIES)
    assert np.isfinite(p).all()
    np.testing.assert_allclose(p.sum(1), 1)


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        ("even", "class_prior must be 'auto', 'support', 'uniform', a dict by label or an array"),
        ({"a": 1, "b": 1}, "got none for c"),
        ({"a": 1, "b": 1, "C": 1}, "got none for c, and one for C, which are no classes"),
        ([0.5, 0.5], "for each of the 3 classes, in the order of classes_; got 2"),
        ([1, -1, 1], "not negative"),
        ([0, 0, 0], "not all 0"),
        ([1, np.nan, 1], "finite"),
        (None, "class_prior must be 'auto', 'support'"),
    ],
)
def test_what_is_no_prior_is_refused_and_changes_nothing(prior: Any, message: str) -> None:
    model = GPClassifier("rbf").fit(X, Y)
    before = model.predict_proba(QUERIES)
    with pytest.raises(ValueError, match=message):
        model.set_class_prior(prior)
    with pytest.raises(ValueError, match=message):
        model.set_params(class_prior=prior).partial_fit(X[:5], Y[:5])
    np.testing.assert_array_equal(model.predict_proba(QUERIES), before)


def test_a_prior_by_label_may_know_classes_that_are_forgotten_or_to_come() -> None:
    prior = {"a": 0.5, "b": 0.3, "c": 0.1, "d": 0.1}
    model = GPClassifier("rbf", class_prior=prior, class_weight={"a": 1, "b": 2, "c": 3, "d": 4}).fit(X, Y)
    np.testing.assert_allclose(model.class_prior_, np.array([5, 3, 1]) / 9)
    np.testing.assert_allclose(model.forget(classes=["c"]).class_prior_, [5 / 8, 3 / 8])
    model.partial_fit([[3.0, 3.0]], ["d"])
    np.testing.assert_allclose(model.class_prior_, np.array([5, 3, 1]) / 9)


def test_a_class_without_rows_may_come() -> None:
    """Its first row would have no probability after `adapt_prior`, and the prior that is in use would be another."""
    model = GPClassifier("rbf").fit(X[Y != "c"], Y[Y != "c"])
    model.partial_fit(X[:1], Y[:1], classes=["c"])
    before = model.predict_proba(QUERIES)
    assert model.class_prior_[2] == pytest.approx(1 / 4)
    model.set_class_prior(model.class_prior_)
    np.testing.assert_allclose(model.predict_proba(QUERIES), before, atol=1e-12)
    model.adapt_prior(X)
    assert model.class_prior_[2] > 0
    assert model.predict_proba(QUERIES)[:, 2].min() > 0


def test_a_prior_is_the_same_to_the_last_bit_after_loading(tmp_path: Path) -> None:
    model = GPClassifier("rbf", objective=None).fit(X, Y)
    for seed in range(20):
        model.set_class_prior(np.random.default_rng(seed).random(3)).save(tmp_path / "m")
        loaded = GPClassifier.load(tmp_path / "m")
        np.testing.assert_array_equal(loaded.class_prior_, model.class_prior_)
        np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_priors_of_any_size_are_shares() -> None:
    model = GPClassifier("rbf", objective=None).fit(X, Y)
    np.testing.assert_allclose(model.set_class_prior([1e308, 1e308, 0]).class_prior_, [0.5, 0.5, 0])
    np.testing.assert_allclose(model.set_class_prior([3e-310, 1e-310, 0]).class_prior_, [0.75, 0.25, 0])


def test_scores_of_left_out_rows_are_those_of_what_is_predicted() -> None:
    """Of embeddings of uneven classes "auto" is not the frequencies of the rows."""
    generator = np.random.default_rng(1)
    labels = np.repeat(np.arange(4), [24, 12, 4, 3])
    x = generator.normal(size=(43, 6)) + 0.9 * np.eye(6)[labels]
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    scores = {}
    for prior in ("auto", "support"):
        model = GPClassifier(class_prior=prior, ensemble=False).fit(x, labels)
        fitted = model._fitted
        p = fitted.under_prior(fitted.probabilities_left_out()).numpy()
        nll = -np.log(p[np.arange(43), fitted.learnt.y]).mean()
        assert model.leave_one_out_nll_ == pytest.approx(nll, rel=0.02)
        scores[prior] = model.leave_one_out_nll_
        assert not hasattr(model.set_class_prior([0.1, 0.2, 0.3, 0.4]), "leave_one_out_nll_")
    assert abs(scores["auto"] - scores["support"]) > 0.05

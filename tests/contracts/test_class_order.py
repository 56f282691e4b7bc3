"""Columns follow ``classes_``, which is sorted, in whatever order classes have come and gone.

Scikit-learn's scorers, calibration, voting and thresholds read columns in sorted order without asking.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import get_scorer
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV

from sureshot import FewShotClassifier, GPClassifier, KernelSearchClassifier, TreeGPClassifier
from sureshot.estimators.saved import load_estimator
from sureshot.meta.learners import make_learner
from sureshot.meta.training.checkpoint import save_checkpoint
from sureshot.networks.backbones import make_backbone

RNG = np.random.default_rng(0)
NAMES = np.array(["a", "b", "c"])
Y = np.repeat(NAMES, 10)
MIDDLES = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 9.0]])
X, ASKED = (MIDDLES.repeat(10, axis=0) + RNG.normal(scale=0.7, size=(30, 2)) for _ in range(2))
CHAINS = {"n_chains": 4, "n_sweeps": 8}

MAKERS: dict[str, Callable[[], Any]] = {
    "average": GPClassifier,
    "softmax": lambda: GPClassifier("rbf", "softmax", objective=None),
    "one-vs-each by Gibbs": lambda: GPClassifier("rbf", "one_vs_each", inference="gibbs", objective=None, **CHAINS),
    "least squares": lambda: GPClassifier("rbf", "least_squares"),
    "sessions": TreeGPClassifier,
    "tree of sessions": lambda: TreeGPClassifier("session", **CHAINS),
    "search": lambda: KernelSearchClassifier(3, n_rejuvenation=0, structure="SQUARED-EXPONENTIAL"),
    "search, whitened": lambda: KernelSearchClassifier(4, representation="whitened", structure="SQUARED-EXPONENTIAL"),
}


def rows_of(*names: str) -> tuple[np.ndarray, np.ndarray]:
    chosen = np.isin(Y, names)
    return X[chosen], Y[chosen]


def one_after_another(model: Any, folder: Path) -> Any:
    for name in ("c", "a", "b"):
        model.partial_fit(*rows_of(name))
    return model


def first_of_all_last(model: Any, folder: Path) -> Any:
    return model.fit(*rows_of("b", "c")).partial_fit(*rows_of("a"))


def announced(model: Any, folder: Path) -> Any:
    model.partial_fit(*rows_of("b", "c"), classes=["a"])
    assert model.classes_.tolist() == ["a", "b", "c"]
    return model.partial_fit(*rows_of("a"))


def forgotten_and_back(model: Any, folder: Path) -> Any:
    model.fit(X, Y).forget(["a"])
    assert model.classes_.tolist() == ["b", "c"]
    return model.partial_fit(*rows_of("a"))


def saved(model: Any, folder: Path) -> Any:
    first_of_all_last(model, folder).save(folder / "model")
    return load_estimator(folder / "model")


def saved_between(model: Any, folder: Path) -> Any:
    model.fit(*rows_of("b", "c")).save(folder / "model")
    return load_estimator(folder / "model").partial_fit(*rows_of("a"))


WAYS = (one_after_another, first_of_all_last, announced, forgotten_and_back, saved, saved_between)
ALL_WAYS = ("softmax", "search", "sessions")  # the others have them from these
CASES = [(name, way) for name in MAKERS for way in (WAYS if name in ALL_WAYS else (forgotten_and_back,))]


@pytest.mark.parametrize(("name", "way"), CASES)
def test_columns_follow_the_sorted_classes(name: str, way: Callable[..., Any], tmp_path: Path) -> None:
    model = way(MAKERS[name](), tmp_path)
    assert model.classes_.tolist() == ["a", "b", "c"]
    p = model.predict_proba(ASKED)
    right = np.arange(30), np.repeat([0, 1, 2], 10)  # by hand: the rows' classes in sorted order
    own = p[right]
    assert own.mean() > 0.6
    assert (p.argmax(1) == right[1]).mean() > 0.85  # settings that a single class has chosen are not the best
    assert get_scorer("neg_log_loss")(model, ASKED, Y) == pytest.approx(np.log(own).mean(), rel=1e-9)
    brier = np.square(p - np.eye(3).repeat(10, axis=0)).sum(1).mean()
    assert get_scorer("neg_brier_score")(model, ASKED, Y) == pytest.approx(-brier, rel=1e-9)
    assert get_scorer("roc_auc_ovr")(model, ASKED, Y) > 0.95
    assert get_scorer("accuracy")(model, ASKED, Y) == (p.argmax(1) == right[1]).mean()
    np.testing.assert_array_equal(model.predict(ASKED), NAMES[p.argmax(1)])
    np.testing.assert_array_equal(model.decision_function(ASKED).argmax(1), p.argmax(1))
    np.testing.assert_array_equal(model.predict_topk(ASKED, 1).labels[:, 0], NAMES[p.argmax(1)])
    latents = model.predict_latent(ASKED)
    assert (latents.mean.argmax(1) == right[1]).mean() > 0.85
    if not isinstance(model, TreeGPClassifier):  # which keeps no rows that could be left out
        sets = model.predict_set(ASKED)
        assert sets.members[right].mean() > 0.8
        assert [Y[k] in sets[k] for k in range(30)] == sets.members[right].tolist()
    if isinstance(model, KernelSearchClassifier):
        alone = np.stack(model.particle_proba(ASKED))
        assert (alone.argmax(-1) == right[1]).mean() > 0.85


@pytest.mark.parametrize("name", ["softmax", "one-vs-each by Gibbs", "sessions", "search"])
def test_class_priors_follow_the_sorted_classes(name: str, tmp_path: Path) -> None:
    model = first_of_all_last(MAKERS[name](), tmp_path)
    shares = {"a": 0.7, "b": 0.2, "c": 0.1}
    model.set_class_prior(shares)
    np.testing.assert_allclose(model.class_prior_, [0.7, 0.2, 0.1], rtol=1e-12)
    by_name = model.predict_proba(ASKED)
    np.testing.assert_array_equal(model.set_class_prior([0.7, 0.2, 0.1]).predict_proba(ASKED), by_name)
    model.save(tmp_path / "model")
    loaded = load_estimator(tmp_path / "model")
    np.testing.assert_array_equal(loaded.class_prior_, model.class_prior_)
    np.testing.assert_array_equal(loaded.predict_proba(ASKED), by_name)
    assert model.partial_fit(X[:1], Y[:1]).class_prior_.argmax() == 0


def test_a_prior_that_is_learnt_follows_the_sorted_classes() -> None:
    """It is where the expected shares of the classes agree with it (Saerens et al. 2002, equation 9)."""
    few = np.concatenate([np.arange(4), np.arange(10, 30)])  # four rows of "a", ten of each other class
    model = GPClassifier("rbf", "softmax", objective=None, class_prior="support")
    model.fit(X[few[4:]], Y[few[4:]]).partial_fit(X[:4], Y[:4])
    asked = np.concatenate([ASKED[:10].repeat(8, axis=0), ASKED[10:12], ASKED[20:22]])
    p, support = model.predict_proba(asked), np.array([4, 10, 10]) / 24
    prior = model.adapt_prior(asked).class_prior_
    shares = p * prior / support
    counts = (shares / shares.sum(1, keepdims=True)).sum(0)
    np.testing.assert_allclose(prior, (counts + support) / 85, atol=1e-6)
    assert prior.argmax() == 0


@pytest.mark.parametrize("name", ["softmax", "least squares", "sessions", "search"])
def test_other_tools_read_the_columns_rightly(name: str, tmp_path: Path) -> None:
    model = first_of_all_last(MAKERS[name](), tmp_path)
    calibrated = CalibratedClassifierCV(FrozenEstimator(model), method="temperature").fit(X, Y)
    assert calibrated.score(ASKED, Y) == 1.0
    other = MAKERS[name]().fit(X, Y)
    voters = [(f"voter {k}", FrozenEstimator(voter)) for k, voter in enumerate((model, other))]
    voting = VotingClassifier(voters, voting="soft").fit(X, Y)
    np.testing.assert_allclose(
        voting.predict_proba(ASKED), (model.predict_proba(ASKED) + other.predict_proba(ASKED)) / 2, rtol=1e-12
    )
    assert voting.score(ASKED, Y) == 1.0


@pytest.mark.parametrize(
    ("first", "second"), [("b", "a"), (10, 2), (1, 0), (True, False)], ids=["text", "numbers", "digits", "truth values"]
)
@pytest.mark.parametrize("name", ["logistic", "sessions", "search"])
def test_of_two_classes_the_second_in_sorted_order_is_the_positive_one(name: str, first: Any, second: Any) -> None:
    model = GPClassifier("rbf", "logistic", objective=None) if name == "logistic" else MAKERS[name]()
    labels = np.where(Y == "a", first, second)[:20]  # `first`, which sorts last, lies where "a" does, and comes first
    model.partial_fit(X[:10], labels[:10]).partial_fit(X[10:20], labels[10:20])
    assert model.classes_.tolist() == [second, first]
    asked, positive = ASKED[:20], labels == first
    np.testing.assert_array_equal(model.decision_function(asked) > 0, model.predict_proba(asked)[:, 1] > 0.5)
    assert ((model.decision_function(asked) > 0) == positive).mean() >= 0.9
    assert ((model.predict_latent(asked).mean.argmax(1) == 1) == positive).mean() >= 0.9
    assert get_scorer("roc_auc")(model, asked, positive) == 1.0
    assert get_scorer("neg_log_loss")(model, asked, labels) > -0.5
    frozen = FrozenEstimator(model)
    fixed = FixedThresholdClassifier(frozen, threshold=0.5, pos_label=first).fit(asked, labels)
    np.testing.assert_array_equal(fixed.predict(asked), model.predict(asked))
    tuned = TunedThresholdClassifierCV(frozen, cv="prefit", refit=False).fit(asked, labels)
    assert tuned.score(asked, labels) >= 0.95


def test_a_corrected_label_of_a_class_that_sorts_first() -> None:
    """A row whose label was wrong brings a class that sorts first, and takes it away again."""
    model = GPClassifier("rbf", objective=None)
    model.fit(X[10:], Y[10:], row_id=np.arange(20)).partial_fit(X[10:11], ["a"], row_id=[0])
    assert model.classes_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(model.predict(ASKED[10:]), Y[10:])
    assert model.predict_proba(X[10:11])[0, 0] > model.predict_proba(ASKED[20:21])[0, 0]
    model.partial_fit(X[10:11], ["b"], row_id=[0]).forget(["a"])
    np.testing.assert_allclose(
        model.predict_proba(ASKED),
        GPClassifier("rbf", objective=None).fit(X[10:], Y[10:]).predict_proba(ASKED),
        rtol=1e-6,  # the fit of many classes and of two seek other modes
    )


@pytest.mark.parametrize("learner", ["dkt", "ove_mean_field_pl", "cdkt_pl", "protonet"])
def test_of_a_checkpoint(learner: str, tmp_path: Path) -> None:
    made = make_learner(learner, make_backbone("linear", (2,), rank=2))
    save_checkpoint(tmp_path / "checkpoint", made, {}, {"episodes": 0}, {})
    model = first_of_all_last(FewShotClassifier(tmp_path / "checkpoint"), tmp_path)
    whole = FewShotClassifier(tmp_path / "checkpoint").fit(X, Y)
    assert model.classes_.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(
        model.predict_proba(ASKED), whole.predict_proba(ASKED), atol=2e-3
    )  # integrals by points that number classes
    np.testing.assert_allclose(model.predict_latent(ASKED).mean, whole.predict_latent(ASKED).mean, rtol=1e-3, atol=1e-6)


def test_leaves_of_the_tree_are_numbered_in_sorted_order() -> None:
    """The two classes that lie near each other are a branch, whatever their places."""
    middles = {"a": 0.0, "d": 1.5, "b": 30.0, "c": 33.0, "e": 80.0}
    rows = {
        name: np.column_stack([middle + RNG.normal(size=12), RNG.normal(size=12)]) for name, middle in middles.items()
    }
    model = TreeGPClassifier("session", random_state=0, **CHAINS)
    model.fit(np.concatenate([rows[name] for name in "bce"]), np.repeat(list("bce"), 12))
    model.partial_fit(np.concatenate([rows[name] for name in "da"]), np.repeat(list("da"), 12))
    assert model.classes_.tolist() == list("abcde")
    branches = [set(model.tree_.classes_below(node).tolist()) for node in range(4)]
    assert {1, 2} in branches  # b and c
    assert {0, 3} in branches  # a and d

"""Scores of a scripted method by hand; baselines and estimators on digits."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Self

import numpy as np
import pytest
import torch
from sklearn.linear_model import SGDClassifier
from sklearn.naive_bayes import GaussianNB

from sureshot.data import LabelledSet
from sureshot.evaluation.methods import METHOD_NAMES, EstimatorMethod, make_method
from sureshot.evaluation.sessions import SessionsEvaluation, evaluate_sessions
from sureshot.incremental.method import Memory, SessionMethod
from sureshot.incremental.session_data import load_sessions
from sureshot.incremental.sessions import Session, Sessions, session_classes
from sureshot.incremental.trained import TRAINED
from sureshot.inference import schemes_for
from sureshot.likelihoods import LIKELIHOODS


class Scripted(SessionMethod):
    """Says for a row what its number stands for after each session, with probability .8."""

    def __init__(self, answers: list[dict[int, int]], classes: list[list[int]]) -> None:
        self.answers, self.classes, self.taught = answers, classes, []  # type: ignore[var-annotated]

    def fit(self, X: Any, y: Any) -> Self:
        assert not self.taught
        return self.partial_fit(X, y)

    def partial_fit(self, X: Any, y: Any) -> Self:
        self.taught.append((X[:, 0].tolist(), y.tolist()))
        self.classes_ = np.array(self.classes[len(self.taught) - 1])
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        answer = self.answers[len(self.taught) - 1]
        chosen = np.array([answer[int(row)] for row in X[:, 0]])
        n = len(self.classes_)
        return np.where(self.classes_ == chosen[:, None], 0.8, 0.2 / (n - 1))

    def outlier_score(self, X: Any) -> np.ndarray:
        return X[:, 0]

    def memory(self) -> Memory:
        return Memory(7, 6 * len(self.classes_), len(self.classes_))


def protocol(out_of_scope: bool = True) -> Sessions:
    """Classes 0 and 1, then 2, then 3; training rows 10 to 13, test rows 0 to 8: two of a class, three of the last."""
    names = ("a", "b", "c", "d")
    train = LabelledSet(torch.arange(10.0, 14.0).unsqueeze(1), torch.arange(4), names)
    test = LabelledSet(torch.arange(9.0).unsqueeze(1), torch.tensor([0, 0, 1, 1, 2, 2, 3, 3, 3]), names)
    sessions = (Session((1, 0), (0, 1)), Session((2,), (2,)), Session((3,), (3,)))
    outside = torch.tensor([[3.5], [100.0]]) if out_of_scope else None
    return Sessions(train, test, sessions, "hand", "", outside)


ANSWERS = [
    {0: 0, 1: 0, 2: 1, 3: 1},
    {0: 0, 1: 2, 2: 1, 3: 1, 4: 2, 5: 0},
    {0: 0, 1: 2, 2: 3, 3: 1, 4: 2, 5: 2, 6: 0, 7: 3, 8: 3},
]
CLASSES = [[1, 0], [1, 0, 2], [1, 0, 2, 3]]


def test_scores_by_hand() -> None:
    method = Scripted(ANSWERS, CLASSES)
    found = evaluate_sessions(method, protocol())
    assert method.taught == [([10, 11], [0, 1]), ([12], [2]), ([13], [3])]
    nan = np.nan
    np.testing.assert_allclose(found.matrix, [[1, nan, nan], [0.75, 0.5, nan], [0.5, 1, 2 / 3]])
    np.testing.assert_allclose(found.accuracies, [1, 4 / 6, 6 / 9])
    assert found.average_accuracy == pytest.approx((1 + 4 / 6 + 6 / 9) / 3)
    assert found.performance_drop == pytest.approx(3 / 9)
    base, first, last = found.sessions
    assert (base.novel_accuracy, base.harmonic_mean, base.forgetting) == (None, None, None)
    assert (first.base_accuracy, first.novel_accuracy) == (0.75, 0.5)
    assert first.harmonic_mean == pytest.approx(2 * 0.75 * 0.5 / 1.25)
    assert first.forgetting == pytest.approx(0.25)
    assert last.novel_accuracy == 0.8  # classes 2 and 3 together, rows count alike: 2, 2, 0, 3, 3
    assert last.forgetting == pytest.approx((1 - 0.5 + 0.5 - 1) / 2)
    assert last.nll == pytest.approx(-(6 * np.log(0.8) + 3 * np.log(0.2 / 3)) / 9)
    assert last.ece == pytest.approx(0.8 - 6 / 9)
    right, wrong = 0.2**2 + 3 * (0.2 / 3) ** 2, (1 - 0.2 / 3) ** 2 + 0.8**2 + 2 * (0.2 / 3) ** 2
    assert last.brier == pytest.approx((6 * right + 3 * wrong) / 9)
    # 3.5 is above 4 of the 9 known rows (0 to 3), 100 above all.
    assert last.out_of_scope_auroc == pytest.approx(13 / 18)
    assert (last.shared_numbers, last.numbers_per_class, last.n_classes, last.n_rows) == (7, 6, 4, 9)
    assert last.learn_seconds >= 0


def test_without_rows_out_of_scope_there_is_no_auroc() -> None:
    found = evaluate_sessions(Scripted(ANSWERS, CLASSES), protocol(out_of_scope=False))
    assert found.last.out_of_scope_auroc is None


def test_a_method_that_knows_other_classes_is_an_error() -> None:
    with pytest.raises(
        ValueError, match=r"after session 1 the method knows 2 classes, expected the 3 that .* number 2"
    ):
        evaluate_sessions(Scripted(ANSWERS, [[1, 0], [1, 0], [1, 0]]), protocol())


def test_as_dict_is_json_values() -> None:
    evaluation = evaluate_sessions(Scripted(ANSWERS, CLASSES), protocol())
    found = json.loads(json.dumps(evaluation.as_dict()))
    again = SessionsEvaluation.from_dict(found)
    assert again.sessions == evaluation.sessions
    np.testing.assert_array_equal(again.matrix, evaluation.matrix)
    assert found["matrix"] == [[1.0], [0.75, 0.5], [0.5, 1.0, pytest.approx(2 / 3)]]
    assert found["sessions"][2]["session"] == 2
    assert found["performance_drop"] == pytest.approx(3 / 9)


@pytest.mark.filterwarnings("ignore:ignored .* constant columns:UserWarning")
@pytest.mark.parametrize("name", [name for name in METHOD_NAMES if name != "tree"])
def test_methods_on_digits(name: str) -> None:
    network = {"backbone": {"name": "linear"}, "base": {"epochs": 20, "batch_size": 16, "learning_rate": 0.03}}
    options: dict[str, Any] = dict.fromkeys(TRAINED, network).get(name, {})
    if name == "gp":
        options = {"kernel": "unit_rbf", "likelihood": "least_squares", "objective": None}
    heard: list[float] = []
    method, sessions = make_method(name, **options), load_sessions("digits", base_shots=20)
    found = evaluate_sessions(method, sessions, lambda what, fraction: heard.append(fraction))
    assert heard == sorted(heard)
    assert found.accuracies[0] > 0.93
    bar = {"fine_tuning": 0.1, "podnet": 0.6}.get(name, 0.8)  # one overwrites what it knew, one has five rows a class
    assert found.last.accuracy > bar
    assert found.last.harmonic_mean is not None
    assert found.last.harmonic_mean > bar
    assert found.last.shared_numbers is not None
    assert found.last.numbers_per_class is not None
    assert found.last.numbers_per_class >= 64


def test_settings_of_trees_are_options() -> None:
    options = {"strategy": "session", "n_representatives": 2, "kernel": "cosine", "inference": "mean_field"}
    options |= {"n_chains": 3, "n_sweeps": 2, "construction": "label_order"}
    method = make_method("tree", 4, **options)
    assert isinstance(method, EstimatorMethod)
    assert method.estimator.get_params().items() >= {**options, "random_state": 4}.items()


def test_any_estimator_with_partial_fit() -> None:
    # Scikit-learn's wants all classes in its first call; a base session of all of them is a protocol too.
    sessions = load_sessions("digits", n_base=10, way=1)
    found = evaluate_sessions(EstimatorMethod(GaussianNB(var_smoothing=1e-2)), sessions)
    assert len(found.sessions) == 1
    assert found.last.accuracy > 0.8
    assert found.last.out_of_scope_auroc is None
    assert found.last.shared_numbers is None


def many_classes() -> Sessions:
    """Twelve base classes of eight rows, and one that comes later."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(13).repeat_interleave(8)
    means = 2 * torch.randn(13, 4, generator=generator)
    parts = [
        LabelledSet(means[y] + torch.randn(len(y), 4, generator=generator), y, tuple(f"{c:02}" for c in range(13)))
        for _ in range(2)
    ]
    names = parts[0].class_names
    return Sessions.drawn(*parts, base=names[:12], novel=[names[12:]], shots=3)


def test_the_recommended_tree_is_told_what_the_network_has_not_learnt() -> None:
    sessions = many_classes()
    mask = torch.arange(len(sessions.train)) % 8 < 3
    found = {
        (strategy, told, masked): evaluate_sessions(
            make_method("tree", strategy=strategy, unseen=told, n_chains=2, n_sweeps=2),
            replace(sessions, unseen=mask) if masked else sessions,
        ).last.nll
        for strategy in ("recommended", "shared_root")
        for told in (True, False)
        for masked in (True, False)
    }
    plain = found["recommended", False, False]
    assert found["recommended", True, False] == found["recommended", False, True] == plain
    assert found["recommended", True, True] != plain
    assert len({loss for (strategy, *_), loss in found.items() if strategy == "shared_root"}) == 1
    for name in ("nearest_class_mean", "least_squares"):
        assert evaluate_sessions(make_method(name), replace(sessions, unseen=mask)).last.accuracy > 0


def test_an_estimator_is_copied() -> None:
    estimator = SGDClassifier(loss="log_loss", random_state=0)
    x, y = np.eye(4), np.array([0, 1, 0, 1])
    method = EstimatorMethod(estimator).fit(x, y)
    assert not hasattr(estimator, "coef_")
    before = method.predict_proba(x)
    method.partial_fit(x, y)
    assert (method.predict_proba(x) != before).any()


def test_names_and_options_are_checked() -> None:
    with pytest.raises(ValueError, match=r"no method called 'gpp' \(did you mean 'gp'\?\); names: empirical_bayes"):
        make_method("gpp")
    with pytest.raises(ValueError, match="gp has no option 'kernels'"):
        make_method("gp", kernels="rbf")
    with pytest.raises(ValueError, match="tree: strategy must be one of 'recommended', 'shared_root'"):
        make_method("tree", strategy="shared")
    with pytest.raises(ValueError, match="gp: kernel must be text, got 3"):
        make_method("gp", kernel=3)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gp", {"kernel": "cosin"}, r"kernel must be one of .*; got 'cosin' \(did you mean 'cosine'"),
        ("gp", {"kernel": "precomputed"}, "a precomputed kernel does not go with sessions"),
        ("gp", {"objective": "margin"}, "objective must be one of"),
        ("gp", {"likelihood": "least_squares", "inference": "gibbs"}, "inference='gibbs' does not apply"),
        ("gp", {"likelihood": "one_vs_each", "inference": "laplace"}, "does not work with likelihood='one_vs_each'"),
        ("gp", {"inference": "gibbs", "objective": "evidence"}, "does not work with inference='gibbs'"),
        ("gp", {"rows_per_class": 0}, "rows_per_class must be at least 1"),
        ("tree", {"n_representatives": -1}, "n_representatives must be a positive integer; got -1"),
        ("tree", {"strategy": "session", "kernel": "rbf"}, "kernel must be one of"),
        ("tree", {"inference": "gibbs"}, "inference='gibbs' is for the strategies of trees"),
    ],
)
def test_options_of_estimators_are_checked_without_rows(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_method(name, **options)


@pytest.mark.parametrize("likelihood", ["auto", *LIKELIHOODS])
def test_what_goes_together_for_some_number_of_classes_is_left_to_the_data(likelihood: str) -> None:
    for inference in ("auto", *schemes_for(likelihood)):
        if inference != "exact":
            assert isinstance(make_method("gp", likelihood=likelihood, inference=inference), EstimatorMethod)


def test_classes_that_fill_no_session_are_mentioned(caplog: pytest.LogCaptureFixture) -> None:
    names = [f"class {k}" for k in range(8)]
    with caplog.at_level("INFO", logger="sureshot"):
        assert len(session_classes(names, 4, 3)[1]) == 1
    assert caplog.messages == ["1 of 8 classes are left out: fewer than way=3 make no session"]
    caplog.clear()
    with caplog.at_level("INFO", logger="sureshot"):
        session_classes(names, 4, 2)
        session_classes(names, 4, 3, 1)
    assert not caplog.messages

"""What every estimator promises, whatever its kernel, likelihood or learner.

* A row's answers depend on that row alone: not on the rows beside it, however wild, their order, or how many come in
  one block.
* A call that fails, at any point and for any reason, changes nothing.
* Everything that predictions are computed from has one layout in memory.

A new estimator is a few lines of `CASES`.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gpytorch.kernels as gk
import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import Kernel
from sklearn.datasets import load_iris

from sureshot import FewShotClassifier, GPClassifier, KernelSearchClassifier, TreeGPClassifier
from sureshot.estimators import saved
from sureshot.estimators.classes.classifier_base import IncrementalClassifier
from sureshot.estimators.gp.fitted import GPFitted
from sureshot.likelihoods.base import Likelihood
from sureshot.meta.learners import make_learner
from sureshot.meta.training.checkpoint import save_checkpoint
from sureshot.networks.backbones import make_backbone
from tests.contracts.states import content, interrupted

X, Y = load_iris(return_X_y=True)
X = X + np.random.default_rng(0).normal(scale=0.01, size=X.shape)  # no duplicates
UNIT = X / np.linalg.norm(X, axis=1, keepdims=True)
MANY = np.tile(X, (3, 1)) + np.random.default_rng(1).normal(scale=0.1, size=(450, 4))  # 65 rows to learn from
NOISY = np.hstack([MANY, np.random.default_rng(2).normal(size=(450, 12))])
TRAIN, QUERY = slice(0, None, 7), slice(3, None, 11)

CHAINS = {"n_chains": 3, "n_sweeps": 4}
GP_CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "defaults, two classes": {},
    "cosine": {},
    **{f"kernel {name}": {"kernel": name} for name in ("rbf", "matern12", "matern52", "linear", "polynomial2")},
    "kernel unit_rbf": {"kernel": "unit_rbf"},
    "kernel of GPyTorch": {"kernel": gk.ScaleKernel(gk.RQKernel() * gk.PeriodicKernel()) + gk.LinearKernel()},
    "columns as they are": {"kernel": "matern32", "standardize": False},
    "inducing": {"kernel": "matern12", "approximation": "inducing", "n_inducing": 9},
    "regression": {"likelihood": "least_squares"},
    "logistic-softmax by mean field": {"likelihood": "logistic_softmax", "kernel": "rbf", "predictive": "integral"},
    "logistic-softmax by Gibbs": {"likelihood": "logistic_softmax", "inference": "gibbs", "kernel": "rbf", **CHAINS},
    "one-vs-each by mean field": {"likelihood": "one_vs_each", "kernel": "rbf", "predictive": "expected_log"},
    "one-vs-each by Gibbs": {"likelihood": "one_vs_each", "inference": "gibbs", "kernel": "rbf", **CHAINS},
    "one-vs-each by natural gradients": {
        "likelihood": "one_vs_each",
        "inference": "natural_gradient",
        "kernel": "rbf",
    },
    "balanced classes": {"class_weight": "balanced", "kernel": "linear"},
}
LEARNERS = (
    "ove_mean_field_pl",
    "ove_gibbs_pl",
    "cdkt_pl",
    "dkt",
    "protonet",
    "matchingnet",
    "baseline_plus_plus",
    "maml",
    "abml",
    "bayesian_maml",
)
FEW_SHOT_CASES = {
    "few-shot, table": None,
    "few-shot, unit rows": None,
    **{f"few-shot, {name}": name for name in LEARNERS},
}
TREE_CASES: dict[str, dict[str, Any]] = {
    "sessions": {},
    "sessions, unit rows": {},
    "sessions, shared root": {"strategy": "shared_root", "n_representatives": 3, **CHAINS},
    "sessions, shared root by mean field": {"strategy": "shared_root", "inference": "mean_field"},
    "sessions, shared root by natural gradients": {"strategy": "shared_root", "inference": "natural_gradient"},
    "sessions, a sub-tree each": {"strategy": "session", "kernel": "cosine", **CHAINS},
    "sessions, rebuilt": {"strategy": "rebuild", "kernel": "unit_matern32", **CHAINS},
    "sessions, balanced trees": {"strategy": "session", "construction": "balanced_random", **CHAINS},
}
SMALLEST_SEARCH = {"n_particles": 2, "n_rejuvenation": 1, "schedule": "once"}
SEARCH_CASES: dict[str, dict[str, Any]] = {
    "kernel search": {"n_particles": 4, "n_rejuvenation": 1},
    "kernel search, two classes": {
        "n_particles": 3,
        "n_rejuvenation": 1,
        "grammar": "paper",
        "representation": "whitened",
    },
    "kernel search, inducing inputs": {"n_particles": 4, "n_rejuvenation": 1, "n_inducing": 5},
    "kernel search, one structure": {
        "n_particles": 3,
        "n_rejuvenation": 1,
        "structure": "LINEAR + PERIODIC",
        "schedule": [4, 10],
    },
}


@dataclass(frozen=True)
class Case:
    """An estimator, the arguments that it is made with, and rows and labels that suit it."""

    estimator: type[IncrementalClassifier]
    arguments: dict[str, Any] = field(default_factory=dict)
    rows: np.ndarray = field(default_factory=lambda: X)
    labels: np.ndarray = field(default_factory=lambda: Y)
    learner: str | None = None  # whose checkpoint is an argument too


CASES: dict[str, Case] = {
    **{
        name: Case(
            GPClassifier,
            arguments,
            UNIT if name in ("cosine", "kernel unit_rbf") else X,
            np.minimum(Y, 1) if "two classes" in name else Y,
        )
        for name, arguments in GP_CASES.items()
    },
    "ensemble": Case(GPClassifier, {"ensemble": True}, np.exp(MANY), np.tile(Y, 3)),
    "relevance": Case(GPClassifier, {"relevance": True}, NOISY, np.tile(Y, 3)),
    "relevance, an average for two classes": Case(
        GPClassifier, {"relevance": True, "ensemble": True}, np.exp(NOISY), np.minimum(np.tile(Y, 3), 1)
    ),
    "ensemble, two classes": Case(GPClassifier, {"ensemble": True}, MANY, np.minimum(np.tile(Y, 3), 1)),
    **{
        name: Case(FewShotClassifier, rows=UNIT if "unit rows" in name else X, learner=learner)
        for name, learner in FEW_SHOT_CASES.items()
    },
    **{
        name: Case(TreeGPClassifier, arguments, UNIT if "unit" in name else X) for name, arguments in TREE_CASES.items()
    },
    **{
        name: Case(KernelSearchClassifier, arguments, labels=np.minimum(Y, 1) if "two classes" in name else Y)
        for name, arguments in SEARCH_CASES.items()
    },
}

METHODS = ("predict_proba", "predict_latent", "outlier_score", "uncertainty")  # others are functions of these


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("checkpoints")
    paths = {}
    for name in LEARNERS:
        options: dict[str, Any] = {"n_chains": 3, "n_sweeps_prediction": 4} if "gibbs" in name else {}
        options |= {"n_base_classes": 3} if name == "baseline_plus_plus" else {}
        paths[name] = folder / f"{name}.safetensors"
        learner = make_learner(name, make_backbone("linear", (4,), rank=2), **options)
        save_checkpoint(paths[name], learner, {}, {"episodes": 0}, {})
    return paths


def unfitted(case: str, checkpoints: dict[str, Path]) -> tuple[IncrementalClassifier, np.ndarray, np.ndarray]:
    """An estimator that has not been fitted, and rows and labels that suit it."""
    made = CASES[case]
    arguments = made.arguments if made.learner is None else made.arguments | {"checkpoint": checkpoints[made.learner]}
    return made.estimator(**arguments), made.rows, made.labels


FITTED: dict[str, IncrementalClassifier] = {}  # by case, for `fitted` to copy


def fitted(case: str, checkpoints: dict[str, Path]) -> tuple[Any, np.ndarray, np.ndarray]:
    """One that has learnt the rows in `TRAIN`."""
    model, rows, labels = unfitted(case, checkpoints)
    if case not in FITTED:
        FITTED[case] = model.fit(np.asfortranarray(rows[TRAIN]), labels[TRAIN])  # no layout of rows is kept
    return copy.deepcopy(FITTED[case]), rows, labels


def test_every_estimator_has_a_case() -> None:
    asked = {case.estimator for case in CASES.values()}
    every = {kind for kind in saved.estimators_with_files().values() if issubclass(kind, IncrementalClassifier)}
    assert asked == every


def answers(model: IncrementalClassifier, rows: np.ndarray) -> dict[str, np.ndarray]:
    """All that a model says of rows, each with rows first."""
    found = {}
    for name in METHODS:
        result = getattr(model, name)(rows)
        if dataclasses.is_dataclass(result):
            found |= {f"{name}.{field.name}": getattr(result, field.name) for field in dataclasses.fields(result)}
        else:
            found[name] = result
    return found


def wild_rows(rows: np.ndarray) -> np.ndarray:
    """Rows as a broken sensor or a typing error makes them."""
    wild = rows[:8].copy()
    for k, value in enumerate((1e9, 1e15, -1e15, 1e200, -1e200, 1e300)):
        wild[k, k % rows.shape[1]] = value
    wild[6] = 1e200
    wild[7] *= -1e15
    return wild


@pytest.mark.parametrize("case", CASES)
def test_a_rows_answers_depend_on_that_row_alone(
    case: str, checkpoints: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, rows, _ = fitted(case, checkpoints)
    queries, wild = rows[QUERY], wild_rows(rows)
    together = np.concatenate([wild, queries, rows[TRAIN][:5]])
    some = [5, 7, 8]  # of the rows, asked one by one: two wild ones and a query
    alone = [answers(model, row[None]) for row in together[some]]
    shuffled = np.random.default_rng(1).permutation(len(together))
    whole = answers(model, together)
    monkeypatch.setattr("sureshot.estimators.base.LARGEST_BLOCK", 15)
    mixed = answers(model, together[shuffled])  # in two blocks
    for name, expected in whole.items():
        assert expected.dtype.kind not in "fc" or np.isfinite(expected).all(), name
        for other, same in (
            (np.concatenate([row[name] for row in alone]), expected[some]),
            (mixed[name][shuffled.argsort()], expected),
        ):
            if expected.dtype.kind == "f":
                np.testing.assert_allclose(other, same, rtol=1e-10, atol=1e-10, err_msg=name)
            else:
                np.testing.assert_array_equal(other, same, err_msg=name)


@pytest.mark.parametrize("case", CASES)
def test_decisions_and_leading_classes_are_those_of_the_probabilities(case: str, checkpoints: dict[str, Path]) -> None:
    model, rows, _ = fitted(case, checkpoints)
    queries = rows[QUERY]
    p, decided, top = model.predict_proba(queries), model.decision_function(queries), model.predict_topk(queries, 2)
    log_p = model.predict_log_proba(queries)
    np.testing.assert_allclose(np.exp(log_p), p, atol=1e-12)
    np.testing.assert_array_equal(decided, log_p[:, 1] - log_p[:, 0] if len(model.classes_) == 2 else log_p)
    np.testing.assert_allclose(top.probabilities, np.sort(p, axis=1)[:, :-3:-1], atol=1e-6)
    np.testing.assert_array_equal(top.labels[:, 0], model.predict(queries))
    assert model.predict_topk(queries, 99).labels.shape == p.shape
    with pytest.raises(ValueError, match="k must be a positive integer; got 0"):
        model.predict_topk(queries, 0)
    found = model.suggest(queries, 3)
    assert len(set(found.rows.tolist())) == 3
    np.testing.assert_allclose(
        found.score, 1 - (top.probabilities[:, 0] - top.probabilities[:, 1])[found.rows], atol=1e-6
    )


@pytest.mark.parametrize("case", CASES)
def test_rows_of_each_class_are_counted(case: str, checkpoints: dict[str, Path]) -> None:
    model, _, labels = fitted(case, checkpoints)
    came = np.unique(labels[TRAIN], return_counts=True)[1]
    if isinstance(model, TreeGPClassifier):
        assert (model.class_count_ > 0).all()
        assert (model.class_count_ <= came).all()
    else:
        np.testing.assert_allclose(model.class_count_, came)


@pytest.mark.parametrize(
    "estimator", dict.fromkeys(case.estimator for case in CASES.values()), ids=lambda kind: kind.__name__
)
def test_what_makes_numbers_of_columns_can_be_asked_for(estimator: type[IncrementalClassifier]) -> None:
    colours = np.array(["red", "green", "blue"])[np.arange(len(X)) % 3]
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"]).assign(colour=colours)
    few = {KernelSearchClassifier: SMALLEST_SEARCH, GPClassifier: {"kernel": "rbf"}}.get(estimator, {})
    model = estimator(**few).fit(frame[TRAIN], Y[TRAIN])
    assert model.encoder_.kinds == model.columns_
    assert model.encoder_(frame[QUERY]).shape == (len(frame[QUERY]), len(model.encoder_.names))
    np.testing.assert_array_equal(model.encoder_(frame)[:, :4], X)
    numbers = estimator(**few).fit(frame[TRAIN][["a", "b", "c", "d"]], Y[TRAIN])
    assert not hasattr(numbers, "encoder_")
    assert not hasattr(numbers, "reading_")


@pytest.mark.parametrize("case", CASES)
def test_rejections_and_sets_are_those_of_left_out_rows(case: str, checkpoints: dict[str, Path]) -> None:
    model, rows, labels = fitted(case, checkpoints)
    if isinstance(model, TreeGPClassifier):
        with pytest.raises(ValueError, match="keeps means of rows, not the rows"):
            model.novelty_p_value(rows)
        return
    queries, smallest = rows[QUERY], 1 / (1 + len(rows[TRAIN]))
    predicted, p, sets = model.predict(queries), model.novelty_p_value(queries), model.predict_set(queries, 0.8)
    assert p.min() >= smallest - 1e-12
    assert p.max() <= 1
    np.testing.assert_array_equal(model.novelty_p_value(queries[::-1])[::-1], p)
    np.testing.assert_allclose(model.novelty_p_value(wild_rows(rows)), smallest)
    decided = model.predict_or_reject(queries, 0.2, unknown=-1)
    np.testing.assert_array_equal(decided, np.where(p <= 0.2, -1, predicted))
    assert all(label in sets[place] for place, label in enumerate(predicted))
    np.testing.assert_array_equal(model.predict(queries), predicted)
    assert (p > 0.1).mean() > 0.7
    covered = sets.members[np.arange(len(queries)), np.searchsorted(model.classes_, labels[QUERY])]
    assert covered.mean() > 0.6


CHANGES: dict[str, Callable[[Any, np.ndarray, np.ndarray], object]] = {
    "fit": lambda model, rows, labels: model.fit(rows[QUERY], labels[QUERY] + 10),
    "partial_fit": lambda model, rows, labels: model.partial_fit(rows[QUERY], labels[QUERY] + 1, classes=[0, 7]),
    "calibrate": lambda model, rows, labels: model.calibrate(rows[QUERY], labels[QUERY]),
    "forget": lambda model, rows, labels: model.forget([0]),
}
CORRECTIONS: dict[str, Callable[[Any, np.ndarray, np.ndarray], object]] = {
    "replace": lambda model, rows, labels: model.partial_fit(rows[QUERY], labels[QUERY], row_id=np.arange(14)),
    "forget rows": lambda model, rows, labels: model.forget(rows=[2, 5]),
}
FAILING_CASES = (
    "defaults",
    "inducing",
    "one-vs-each by Gibbs",
    "one-vs-each by natural gradients",
    "balanced classes",
    "few-shot, ove_gibbs_pl",
    "few-shot, protonet",
    "sessions",
    "sessions, shared root",
)
PLACES = 8  # of a call at which it is made to fail


@pytest.mark.parametrize(
    ("case", "change"),
    [
        *((case, change) for case in FAILING_CASES for change in CHANGES),
        *(("balanced classes", change) for change in CORRECTIONS),
        ("few-shot, protonet", "replace"),
        ("few-shot, table", "forget"),  # otherwise as "defaults"
    ],
)
def test_a_failed_call_changes_nothing(case: str, change: str, checkpoints: dict[str, Path]) -> None:
    call = (CHANGES | CORRECTIONS)[change]
    if change in CORRECTIONS:
        model, rows, labels = unfitted(case, checkpoints)
        model.fit(rows[TRAIN], labels[TRAIN], row_id=np.arange(len(rows[TRAIN])))
    else:
        model, rows, labels = fitted(case, checkpoints)
    model.set_params(random_state=np.random.RandomState(0))
    before, objects = content(vars(model)), {name: id(value) for name, value in vars(model).items()}
    expected, threads = model.predict_proba(rows[QUERY]), torch.get_num_threads()
    twin, other = copy.deepcopy(model), copy.deepcopy(model)
    call(twin, rows, labels)  # what is made once in a process is no call the next time
    with interrupted(0, RuntimeError) as calls:
        call(other, rows, labels)
    errors = (KeyboardInterrupt, MemoryError, RuntimeError)
    for k, at in enumerate(np.unique(np.geomspace(1, calls[0], PLACES).astype(int))):
        with interrupted(int(at), errors[k % 3]), pytest.raises(BaseException, match="injected"):
            call(model, rows, labels)
        assert content(vars(model)) == before, f"after a failure at call {at} of {calls[0]}"
        assert {name: id(value) for name, value in vars(model).items()} == objects
    np.testing.assert_array_equal(model.predict_proba(rows[QUERY]), expected)
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("case", [*FAILING_CASES, "few-shot, table"])
def test_a_refused_call_changes_nothing(case: str, checkpoints: dict[str, Path]) -> None:
    model, rows, labels = fitted(case, checkpoints)
    before = content(vars(model))
    whole = rows[QUERY]
    refused: list[Callable[[], object]] = [
        lambda: model.fit(whole, np.zeros(len(whole))),
        lambda: model.fit(whole[:, :2], labels[QUERY][:5]),
        lambda: model.partial_fit(whole, labels[QUERY], sample_weight=[0.5]),
        lambda: model.partial_fit(whole[:3], ["text"] * 3),
        lambda: model.partial_fit(np.full_like(whole, np.nan), labels[QUERY]),
        lambda: model.calibrate(whole, labels[QUERY] + 50),
        lambda: model.forget([99]),
        lambda: model.forget(model.classes_),
    ]
    for call in refused:
        with pytest.raises((ValueError, TypeError)):
            call()
        assert content(vars(model)) == before


def test_weights_that_a_sampler_refuses_leave_it_as_it_was() -> None:
    model = GPClassifier(inference="gibbs", kernel="rbf", **CHAINS).fit(X[Y < 2][::7], Y[Y < 2][::7])
    before = model.predict_proba(X[QUERY])
    with pytest.raises(ValueError, match="whole numbers"):
        model.partial_fit(X[Y == 2][:3], Y[Y == 2][:3], sample_weight=[0.5, 0.5, 0.5])
    assert model.classes_.tolist() == [0, 1]
    np.testing.assert_array_equal(model.predict_proba(X[QUERY]), before)


def tensors_in(value: Any, seen: set[int]) -> Iterator[torch.Tensor]:
    """Every tensor that an object holds, its kernels and likelihoods apart."""
    if isinstance(value, torch.Tensor):  # one that several parts share counts for each
        yield value
        return
    if id(value) in seen or isinstance(value, Kernel | Likelihood | torch.nn.Module | str | bytes):
        return
    seen.add(id(value))
    if isinstance(value, dict):
        for part in value.values():
            yield from tensors_in(part, seen)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from tensors_in(part, seen)
    elif dataclasses.is_dataclass(value):  # without what it has computed for who asked
        for part in dataclasses.fields(value):
            yield from tensors_in(getattr(value, part.name), seen)
    elif hasattr(value, "__dict__"):
        yield from tensors_in(vars(value), seen)


@pytest.mark.parametrize("case", [case for case in CASES if "GPyTorch" not in case])
def test_one_layout_on_fitting_and_on_loading(case: str, checkpoints: dict[str, Path], tmp_path: Path) -> None:
    _, rows, _ = fitted(case, checkpoints)
    model: Any = FITTED[case]  # a copy has a layout of its own
    model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model")
    # A file holds no features of labelled rows; they are made of these when they are asked for.
    for each in (model, loaded):
        each.predict_proba(rows[:2])
    held, read = (
        [
            [vars(member.process.approximation), member.process.coefficients, vars(member.process.posterior)]
            for member in each._fitted.members
        ]
        if isinstance(each._fitted, GPFitted)
        else vars(each)
        for each in (model, loaded)
    )
    held, read = (list(tensors_in(each, set())) for each in (held, read))
    assert held
    assert [(t.shape, t.stride(), t.dtype) for t in held] == [(t.shape, t.stride(), t.dtype) for t in read]
    if isinstance(model._fitted, GPFitted):
        fits = [member.process for member in (*model._fitted.members, *loaded._fitted.members)]
        parts = [vars(part) for fitted in fits for part in (fitted.approximation, fitted.posterior)]
        parts += [{"coefficients": fitted.coefficients} for fitted in fits]
        for tensor in (value for part in parts for value in part.values() if isinstance(value, torch.Tensor)):
            assert tensor.is_contiguous()
            assert tensor.data_ptr() % 64 == 0
    found = answers(loaded, rows[QUERY])
    for name, expected in answers(model, np.asfortranarray(rows[QUERY])).items():
        np.testing.assert_array_equal(found[name], expected, err_msg=name)

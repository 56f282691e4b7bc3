"""Corrections: a row that is replaced or forgotten leaves no trace, whatever came before, between and after."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_iris

from sureshot import FewShotClassifier, GPClassifier, KernelSearchClassifier, TreeGPClassifier, kernels
from sureshot.estimators.classes.classifier_base import IncrementalClassifier
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.rows.labelled_rows import LabelledRows, merge_rows
from sureshot.estimators.rows.row_ids import RowsAsTheyCame, check_known, check_row_ids
from sureshot.estimators.saved import load_estimator
from sureshot.meta.learners import make_learner
from sureshot.meta.training.checkpoint import save_checkpoint
from sureshot.networks.backbones import make_backbone
from sureshot.persistence import ArtifactError, load_artifact, save_artifact

X, Y = load_iris(return_X_y=True)
TEXT = np.array(["setosa", "versicolor", "virginica"])[Y]
ROWS, QUERIES = np.arange(0, 150, 6), X[3::11]
IDS = np.array([f"flower {k}" for k in ROWS])
RBF = 9.0 * kernels.RBF(0.8)

MODELS: dict[str, IncrementalClassifier] = {
    "regression": GPClassifier(kernel="rbf", likelihood="least_squares"),
    "average": GPClassifier(),
    "balanced": GPClassifier(kernel="linear", class_weight="balanced"),
    "inducing": GPClassifier(kernel=RBF, objective=None, approximation="inducing", n_inducing=9),
    "one-vs-each by Gibbs": GPClassifier(
        kernel=RBF, objective=None, likelihood="one_vs_each", inference="gibbs", n_chains=2, n_sweeps=3
    ),
}
FIXED = GPClassifier(kernel=RBF, objective=None)
SEARCH = KernelSearchClassifier(n_particles=4, n_rejuvenation=1, structure="SQUARED-EXPONENTIAL", random_state=0)


@cache
def learnt(ids: str | None) -> GPClassifier:
    """With ids that are "numbers" or "names". What is fitted is never changed, so a copy costs nothing."""
    named = {"numbers": ROWS, "names": IDS, None: None}[ids]
    return clone(FIXED).fit(X[ROWS], Y[ROWS], row_id=named)


def few_shot(folder: Path) -> FewShotClassifier:
    save_checkpoint(folder / "learner", make_learner("dkt", make_backbone("identity", (4,))), {}, {"episodes": 0}, {})
    return FewShotClassifier(folder / "learner")


def conditioned(model: IncrementalClassifier, x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """What a model says when it is conditioned on other rows, its settings kept."""
    known = model._fitted
    codes = np.searchsorted(known.classes, y)
    rows = merge_rows(x, codes, weight)
    twin = clone(model)
    twin._commit(TrainingSet(known.reader, known.columns, known.classes, rows, None), known)
    return twin.predict_latent(QUERIES).mean


@pytest.mark.parametrize("name", MODELS)
def test_a_corrected_model_is_that_of_the_corrected_rows(name: str) -> None:
    weight = np.ones(len(ROWS))
    weight[3] = 2.0
    model = clone(MODELS[name]).fit(X[ROWS], TEXT[ROWS], weight, row_id=IDS)
    x, y, stays = X[ROWS].copy(), TEXT[ROWS].copy(), np.arange(len(ROWS)) != 7
    before = model._fitted
    x[[2, 3]], y[20], weight[3] = X[[4, 5]], "versicolor", 1.0
    expected = conditioned(model, x[stays], y[stays], weight[stays])
    model.partial_fit(x[[20, 3, 2]], y[[20, 3, 2]], row_id=IDS[[20, 3, 2]]).forget(rows=IDS[7])
    # A mode is begun at that before, and ends where its gradient is shorter than 1e-8; latents are some ten times that.
    np.testing.assert_allclose(model.predict_latent(QUERIES).mean, expected, rtol=0, atol=1e-6)
    assert model.row_ids_.tolist() == sorted(IDS[stays])
    back = model.partial_fit(X[ROWS], TEXT[ROWS], sample_weight=np.where(np.arange(len(ROWS)) == 3, 2, 1), row_id=IDS)
    for part in ("x", "y", "weight"):
        np.testing.assert_array_equal(getattr(back._fitted.rows, part), getattr(before.rows, part))


@pytest.mark.parametrize("name", [*MODELS, "search"])
def test_a_call_that_is_repeated_changes_nothing(name: str) -> None:
    model = clone(MODELS.get(name, SEARCH)).fit(X[ROWS], Y[ROWS], row_id=ROWS)
    p, rows = model.predict_proba(QUERIES), model._fitted.rows
    model.partial_fit(X[ROWS][::-1], Y[ROWS][::-1], row_id=ROWS[::-1]).partial_fit(
        X[ROWS[:4]], Y[ROWS[:4]], row_id=ROWS[:4]
    )
    assert model._fitted.rows is rows
    np.testing.assert_array_equal(model.predict_proba(QUERIES), p)
    model.partial_fit(X[ROWS[:4]], Y[ROWS[:4]])  # without ids they count twice
    assert model._fitted.distinct_rows.weight.sum() == len(ROWS) + 4
    assert len(model.row_ids_) == len(ROWS)


@pytest.mark.parametrize(
    ("model", "argument", "value"),
    [
        (GPClassifier(kernel="linear"), "class_weight", {0: 5.0, 1: 1.0, 2: 0.5}),
        (GPClassifier(kernel="linear"), "class_prior", {0: 0.8, 1: 0.1, 2: 0.1}),
    ],
)
def test_a_call_that_is_repeated_heeds_arguments_that_every_update_does(
    model: IncrementalClassifier, argument: str, value: Any, tmp_path: Path
) -> None:
    rows = ROWS[:-5]
    model = clone(model).fit(X[rows], Y[rows], row_id=rows)
    expected = clone(model).set_params(**{argument: value})
    training = TrainingSet(model._fitted.reader, model._fitted.columns, model._fitted.classes, model._fitted.rows, None)
    expected._commit(training, model._fitted)
    model.set_params(**{argument: value}).partial_fit(X[rows], Y[rows], row_id=rows)
    np.testing.assert_array_equal(model.predict_proba(QUERIES), expected.predict_proba(QUERIES))
    model.set_class_prior([0.2, 0.3, 0.5])
    p = model.predict_proba(QUERIES)
    assert np.abs(p - expected.predict_proba(QUERIES)).max() > 0.01
    model.save(tmp_path / "m.safetensors")
    for one in (model, load_estimator(tmp_path / "m.safetensors")):  # what was set stays, where there is nothing new
        np.testing.assert_array_equal(one.partial_fit(X[rows], Y[rows], row_id=rows).predict_proba(QUERIES), p)


def test_order_of_arrival_does_not_matter_and_rows_without_ids_stay() -> None:
    weight = np.random.default_rng(0).uniform(0.1, 2, len(ROWS))
    parts = np.array_split(np.random.default_rng(1).permutation(len(ROWS)), 4)
    found = []
    for order in (parts, parts[::-1]):
        model = GPClassifier(kernel=RBF, objective=None, likelihood="least_squares")
        model.partial_fit(X[1:150:50], Y[1:150:50])
        for part in [*order, parts[2]]:
            model.partial_fit(X[ROWS[part]], Y[ROWS[part]], sample_weight=weight[part], row_id=ROWS[part])
        found.append(model)
    for part in ("x", "y", "weight"):
        np.testing.assert_array_equal(getattr(found[0]._fitted.rows, part), getattr(found[1]._fitted.rows, part))
    np.testing.assert_array_equal(found[0].predict_proba(QUERIES), found[1].predict_proba(QUERIES))
    found[0].forget(rows=ROWS)
    assert len(found[0]._fitted.rows.y) == 3
    assert found[0]._fitted.row_ids is None
    with pytest.raises(AttributeError, match="no row_ids_"):
        _ = found[0].row_ids_


def test_equal_rows_are_forgotten_one_by_one() -> None:
    x, y = np.repeat(X[[0, 60]], 3, axis=0), np.repeat(Y[[0, 60]], 3)
    model = clone(FIXED).fit(x, y, row_id=["a", "b", "c", "d", "e", "f"])
    model.forget(rows=["a", "f"]).partial_fit(x[:1], y[:1], sample_weight=[0.5], row_id=["b"])
    np.testing.assert_array_equal(model._fitted.rows.weight[np.argsort(model._fitted.rows.y)], [1.5, 2.0])
    model.partial_fit(x[[0, 3]], y[[0, 3]], sample_weight=[0, 1], row_id=["b", "g"])  # of weight 0: removed
    np.testing.assert_array_equal(model._fitted.rows.weight[np.argsort(model._fitted.rows.y)], [1.0, 3.0])
    assert model.row_ids_.tolist() == ["c", "d", "e", "g"]


def test_classes_and_rows_are_forgotten_together() -> None:
    model = clone(FIXED).fit(X[ROWS], TEXT[ROWS], row_id=ROWS)
    last = ROWS[Y[ROWS] == 2]
    model.forget(classes="setosa", rows=last)
    assert model.classes_.tolist() == ["versicolor", "virginica"]  # a class without rows predicts from its prior
    assert model.row_ids_.tolist() == ROWS[Y[ROWS] == 1].tolist()
    assert (model.predict(QUERIES) == "versicolor").all()


@pytest.mark.parametrize("more", [{}, {"n_inducing": 6}, {"representation": "whitened"}])
def test_particles_let_go_of_what_is_corrected(more: dict[str, Any]) -> None:
    model = clone(SEARCH).set_params(**more).fit(X[ROWS], Y[ROWS] > 0, row_id=ROWS)
    model.partial_fit(X[[0, 1]], [True, False], row_id=[0, 1])
    kept = model._fitted.rows
    assert len(kept.y) == len(model._fitted.state.y) == len(ROWS) + 1
    assert kept.y[(kept.x == X[0]).all(1)].tolist() == [1]
    np.testing.assert_array_equal(model._fitted.state.y.numpy(), kept.y)
    model.forget(rows=[0])
    assert not (model._fitted.rows.x == X[0]).all(1).any()
    assert model.row_ids_.tolist() == sorted([1, *ROWS[1:]])
    with pytest.raises(ValueError, match=r"row 0 has an id: forget\(rows=\.\.\.\)"):
        model.remove(X[1:2])
    model.partial_fit(X[2:3], [False]).remove(X[2:3])
    assert len(model._fitted.state.y) == len(ROWS)


def test_the_last_row_of_a_class_is_corrected_among_particles() -> None:
    model = clone(SEARCH).fit(X[[0, 6, 100]], [0, 0, 1], row_id=[1, 2, 3])
    model.partial_fit(X[[101]], [1], row_id=[3])
    assert sorted(model._fitted.rows.y) == [0, 0, 1]
    model.forget(rows=[3])
    assert model._fitted.waits  # as if there had been rows of one class only
    assert (model.predict_proba(X[[0, 6]])[:, 0] > 0.5).all()
    model.partial_fit(X[[102]], [1], row_id=[4])
    assert model.row_ids_.tolist() == [1, 2, 4]
    assert sorted(model._fitted.rows.y) == [0, 0, 1]
    with pytest.raises(ValueError, match="row_id and window exclude each other"):
        clone(SEARCH).set_params(window=9).fit(X[ROWS], Y[ROWS], row_id=ROWS)


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        *(("regression", ids) for ids in (IDS, ROWS, pd.Series(IDS), ROWS.tolist(), torch.from_numpy(ROWS))),
        ("few-shot", IDS),
        ("search", IDS),
    ],
)
def test_ids_are_in_files_and_pickles(name: str, ids: Any, tmp_path: Path) -> None:
    model = few_shot(tmp_path) if name == "few-shot" else clone(MODELS.get(name, SEARCH))
    model.fit(X[ROWS], Y[ROWS], row_id=ids)
    model.partial_fit(X[ROWS[:3]], Y[ROWS[:3]])
    model.save(tmp_path / "model")
    for again in (load_estimator(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        assert again.row_ids_.tolist() == model.row_ids_.tolist() == sorted(np.asarray(ids).tolist())
        again.forget(rows=ids[:2])
        assert again._fitted.distinct_rows.weight.sum() == len(ROWS) + 1
        for part in ("row", "weight", "unnamed"):
            before, after = (getattr(one._fitted.row_ids, part) for one in (model, again))
            assert before.dtype == after.dtype


@pytest.mark.parametrize(
    "damage",
    [
        lambda header, arrays: arrays.update({"row_ids.row": arrays["row_ids.row"] + 1}),
        lambda header, arrays: arrays.update({"row_ids.weight": arrays["row_ids.weight"] * 2}),
        lambda header, arrays: arrays.update({"row_ids.unnamed": arrays["row_ids.unnamed"] - 1}),
        lambda header, arrays: arrays.pop("row_ids.weight"),
        lambda header, arrays: arrays.update({"row_ids.names": arrays["row_ids.names"][::-1].copy()}),
        lambda header, arrays: header["row_ids"].update(names="float64"),
        lambda header, arrays: header.update(row_ids=7),
    ],
)
def test_damaged_ids_are_refused(damage: Callable[[dict[str, Any], dict[str, Any]], object], tmp_path: Path) -> None:
    path = tmp_path / "model"
    learnt("numbers").save(path)
    found = load_artifact(path)
    assert load_estimator(path).row_ids_.tolist() == ROWS.tolist()
    header, arrays = dict(found.header), dict(found.arrays)
    damage(header, arrays)
    save_artifact(path, found.kind, header, arrays)
    with pytest.raises(ArtifactError):
        load_estimator(path)


def test_trees_keep_no_rows_and_say_so() -> None:
    fresh = TreeGPClassifier()
    with pytest.raises(ValueError, match=r"row_id: TreeGPClassifier keeps means.*forget\(classes="):
        fresh.fit(X[ROWS], Y[ROWS], row_id=ROWS)
    model = fresh.fit(X[ROWS], Y[ROWS])
    with pytest.raises(ValueError, match="use GPClassifier or FewShotClassifier"):
        model.partial_fit(X[ROWS], Y[ROWS], row_id=ROWS)
    with pytest.raises(ValueError, match="cannot forget rows: TreeGPClassifier"):
        model.forget(rows=[1])
    assert model.forget(classes=0).classes_.tolist() == [1, 2]


def test_precomputed_kernels_take_ids_of_a_fit_only() -> None:
    gram = X[ROWS] @ X[ROWS].T
    model = GPClassifier(kernel="precomputed").fit(gram, Y[ROWS], row_id=ROWS)
    assert model.row_ids_.tolist() == ROWS.tolist()
    with pytest.raises(ValueError, match="forget does not work with kernel='precomputed'"):
        model.forget(rows=[0])


REFUSED: list[tuple[Callable[[Any], object], type[Exception], str]] = [
    (
        lambda m: m.partial_fit(X[:3], Y[:3], row_id=["a", "a", "b"]),
        ValueError,
        "these come more than once.*'a'",
    ),
    (lambda m: m.partial_fit(X[:3], Y[:3], row_id=["a"]), ValueError, "X has 3 rows, row_id 1"),
    (
        lambda m: m.partial_fit(X[:1], Y[:1], row_id=[3]),
        TypeError,
        "the model knows text such as 'flower 0'",
    ),
    (lambda m: m.partial_fit(X[:2], Y[:2], row_id=["a", None]), ValueError, "lacks the ids of rows 1"),
    (lambda m: m.partial_fit(X[:2], Y[:2], row_id=["a", np.nan]), ValueError, "lacks the ids of rows 1"),
    (lambda m: m.partial_fit(X[:2], Y[:2], row_id=["", "b"]), ValueError, "lacks the ids of rows 0"),
    (lambda m: m.partial_fit(X[:2], Y[:2], row_id=["a", 2]), TypeError, "mixes text and other ids"),
    (lambda m: m.partial_fit(X[:2], Y[:2], row_id=[0.5, 2.0]), TypeError, "text or whole numbers"),
    (lambda m: m.partial_fit(X[:2], Y[:2], row_id=[True, False]), TypeError, "text or whole numbers"),
    (lambda m: m.partial_fit(X[:2], Y[:2], row_id=[2**70, 1]), TypeError, "of 64 bits"),
    (lambda m: m.partial_fit(X[:2], Y[:2], row_id=[["a", "b"], ["c", "d"]]), ValueError, "a list of ids"),
    (lambda m: m.partial_fit(X[:2], Y[:2], row_id=object()), TypeError, "text or whole numbers"),
    (lambda m: m.fit(X[ROWS], Y[ROWS], row_id=["a"] * len(ROWS)), ValueError, "more than once"),
    (lambda m: m.forget(rows=["flower 1"]), ValueError, r"not know: 'flower 1' \(did you mean.*25 ids"),
    (lambda m: m.forget(rows=[1]), TypeError, "ids changed type"),
    (lambda m: m.forget(rows=IDS), ValueError, "cannot forget every row: at least one must stay"),
    (lambda m: m.forget(classes=[0, 1], rows=IDS[Y[ROWS] == 2]), ValueError, "cannot forget every row"),
    (lambda m: m.forget(classes=[9], rows=IDS[:1]), ValueError, "classes the model does not know: 9"),
    (lambda m: m.forget(), ValueError, "say what to forget"),
]


@pytest.mark.parametrize(("call", "kind", "message"), REFUSED)
def test_ids_that_cannot_be_are_refused_and_change_nothing(
    call: Callable[[Any], object], kind: type[Exception], message: str
) -> None:
    model = copy(learnt("names"))
    before = model._fitted
    with pytest.raises(kind, match=message):
        call(model)
    assert model._fitted is before


def test_a_model_without_ids_has_none_to_forget_and_takes_some() -> None:
    model = copy(learnt(None))
    with pytest.raises(ValueError, match="no row that the model knows has an id"):
        model.forget(rows=["a"])
    model.partial_fit(X[1:3], Y[1:3], row_id=["a", "b"]).forget(rows="a")
    assert model.row_ids_.tolist() == ["b"]
    assert model._fitted.rows.weight.sum() == len(ROWS) + 1


# Against a dictionary of rows, over any sequence of calls

NAMES = st.sampled_from(["a", "b", "c", "d"])
ROW = st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 2), st.sampled_from([0.0, 0.25, 1.0, 3.0]))
CALLS = st.lists(
    st.one_of(
        st.dictionaries(NAMES, ROW, min_size=1),
        st.lists(ROW, min_size=1, max_size=3),
        st.sets(NAMES, min_size=1),
    ),
    max_size=8,
)


def labelled(rows: list[tuple[int, int, int, float]]) -> LabelledRows:
    cells = np.array([row for row in rows if row[3] > 0], dtype=np.float64).reshape(-1, 4)
    return LabelledRows(cells[:, :2], cells[:, 2].astype(np.int64), cells[:, 3])


@given(CALLS)
@settings(max_examples=150)
def test_any_sequence_of_corrections_is_that_of_a_dictionary(
    calls: list[dict[str, tuple[int, int, int, float]] | list[tuple[int, int, int, float]] | set[str]],
) -> None:
    named: dict[str, tuple[int, int, int, float]] = {}
    unnamed: list[tuple[int, int, int, float]] = []
    rows, ids = RowsAsTheyCame.of(labelled([]), None).merged()
    for call in calls:
        came = RowsAsTheyCame.apart(rows, ids)
        if isinstance(call, dict):
            names = check_row_ids(list(call), len(call), ids)
            counted = np.array([row[3] > 0 for row in call.values()])
            came = came.with_rows(RowsAsTheyCame.of(labelled(list(call.values())), names[counted]), names)
            named |= call
            named = {name: row for name, row in named.items() if row[3] > 0}
        elif isinstance(call, list):
            came = came.with_rows(RowsAsTheyCame.of(labelled(call), None), None)
            unnamed += call
        else:
            leaving = call & set(named)
            if leaving:
                came = came.without(check_known(sorted(leaving), ids))
            named = {name: row for name, row in named.items() if name not in leaving}
        rows, ids = came.merged()
        every = labelled([*unnamed, *named.values()])
        expected = merge_rows(every.x, every.y, every.weight)
        for part in ("x", "y", "weight"):
            np.testing.assert_array_equal(getattr(rows, part), getattr(expected, part))
        assert ([] if ids is None else ids.names.tolist()) == sorted(named)

"""`TreeGPClassifier`: sessions, what is kept, what stays as it was."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, load_iris
from sklearn.metrics import log_loss

from sureshot import TreeGPClassifier
from sureshot.estimators import TREE_PRESETS
from sureshot.incremental.two_covariances import ClassSums, TwoCovariances
from sureshot.persistence import ArtifactError, load_artifact, save_artifact

D = 6
CENTRES = 2 * np.random.default_rng(0).normal(size=(20, D))
NAMES = np.array([f"class {k:02}" for k in range(20)])
FAST: dict[str, Any] = {"n_chains": 3, "n_sweeps": 3, "n_representatives": 3}
STRATEGIES = ("recommended", "shared_root", "session", "rebuild")
QUERIES = 2 * np.random.default_rng(1).normal(size=(30, D))


def rows(classes: Any, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    labels = np.repeat(np.asarray(classes), n)
    return CENTRES[labels] + np.random.default_rng(seed).normal(size=(len(labels), D)), NAMES[labels]


def fitted(strategy: str = "recommended", n_classes: int = 12, **settings: Any) -> TreeGPClassifier:
    return TreeGPClassifier(strategy=strategy, **FAST, **settings).fit(*rows(range(n_classes), 8))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_sessions_of_new_classes(strategy: str, tmp_path: Path) -> None:
    model = fitted(strategy)
    model.partial_fit(*rows([15, 13], 5)).partial_fit(*rows([14], 1))
    assert model.classes_.tolist() == sorted([*NAMES[:12], *NAMES[13:16]])
    x, y = rows([*range(12), 13, 14, 15], 10, seed=5)
    assert model.score(x, y) > (0.75 if strategy == "recommended" else 0.6)  # chance is 0.07
    model.save(tmp_path / "model")
    loaded = TreeGPClassifier.load(tmp_path / "model")
    for name in ("predict_proba", "outlier_score"):
        np.testing.assert_array_equal(getattr(loaded, name)(x), getattr(model, name)(x))
    assert loaded.memory_.total == model.memory_.total
    assert loaded.get_params() == model.get_params()
    more = rows([16], 3)
    expected = model.partial_fit(*more).predict_proba(x)
    np.testing.assert_array_equal(loaded.partial_fit(*more).predict_proba(x), expected)


@pytest.mark.parametrize("strategy", ["shared_root", "session"])
def test_first_classes_keep_their_sub_tree(strategy: str) -> None:
    model = fitted(strategy)
    before = model._fitted.model.posterior
    model.partial_fit(*rows([15, 13], 5)).partial_fit(*rows([14, 16], 5))
    after, tree = model._fitted.model.posterior, model.tree_
    node = next(k for k in range(tree.n_nodes) if sorted(tree.classes_below(k)) == list(range(12)))
    inputs = model._fitted.predictor.inputs(QUERIES)
    x = inputs / inputs.norm(dim=-1, keepdim=True)
    assert torch.equal(after.log_probabilities(x, below=node), before.log_probabilities(x))


def test_recommended_in_any_order_is_all_rows_at_once() -> None:
    x, y = rows([15, 13, 2], 5)
    at_once, one_by_one = fitted().partial_fit(x, y), fitted()
    for place in np.random.default_rng(0).permutation(len(y)):
        one_by_one.partial_fit(x[place : place + 1], y[place : place + 1])
    same = [one_by_one.classes_.tolist().index(name) for name in at_once.classes_]
    for name in ("predict_proba", "predict_log_proba"):
        one, other = (getattr(model, name)(QUERIES) for model in (at_once, one_by_one))
        np.testing.assert_allclose(one, other[:, same], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(at_once.outlier_score(QUERIES), one_by_one.outlier_score(QUERIES), rtol=1e-9)


def test_recommended_is_two_covariances_of_scaled_rows() -> None:
    model = fitted().partial_fit(*rows([15], 5))
    covariances = TwoCovariances(**model._fitted.model.shared)
    x, y = (np.concatenate(pair) for pair in zip(rows(range(12), 8), rows([15], 5), strict=True))
    inputs = model._fitted.predictor.inputs(x)
    codes = torch.tensor([model.classes_.tolist().index(label) for label in y])
    densities = covariances.densities(ClassSums.of_rows(inputs, codes, 13))
    queries = model._fitted.predictor.inputs(QUERIES)
    expected = torch.softmax(covariances.scores(densities, queries), -1)
    np.testing.assert_allclose(model.predict_proba(QUERIES), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_forgotten_classes_leave_the_others_as_they_were(strategy: str) -> None:
    model, never = fitted(strategy), fitted(strategy)
    model.partial_fit(*rows([15, 13], 5)).forget([NAMES[15], NAMES[13]])
    if strategy == "recommended":
        np.testing.assert_allclose(model.predict_proba(QUERIES), never.predict_proba(QUERIES), rtol=1e-12)
        np.testing.assert_array_equal(model._fitted.rows.x, never._fitted.rows.x)
        odds = np.log(model.predict_proba(QUERIES))
        odds = odds[:, 1:] - odds[:, :1]
        model.forget(NAMES[1])
        fewer = np.log(model.predict_proba(QUERIES))
        np.testing.assert_allclose(fewer[:, 1:] - fewer[:, :1], odds[:, 1:], rtol=1e-9, atol=1e-9)
    else:
        np.testing.assert_array_equal(model.predict_proba(QUERIES), never.predict_proba(QUERIES))


def test_what_is_kept() -> None:
    model = fitted()
    assert model.memory_.of_classes == 12 * (D + 1)
    assert model.memory_.shared == D + D * D + D + D + 2 + 5 * D  # the last of them scaling, limits, deviations
    model.partial_fit(*rows([13, 2], 500))
    assert model.memory_.of_classes == 13 * (D + 1)
    assert str(model.memory_) == "177 numbers: 91 for 13 classes (7 each), 86 for all of them"
    with pytest.raises(FrozenInstanceError):
        model.memory_.shared = 0  # type: ignore[misc]
    tree = fitted("shared_root").partial_fit(*rows([13, 2], 50)).partial_fit(*rows([14], 1))
    assert tree.memory_.of_classes == (13 * 3 + 1) * (D + 1)
    assert "(20 each)" in str(tree.memory_)
    assert tree.memory_.total == 39 * 7 + 7 + tree.memory_.shared
    assert tree._fitted.rows.weight.sum() == 12 * 8 + 101


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_classes_without_rows_predict_from_the_prior(strategy: str) -> None:
    model = TreeGPClassifier(strategy=strategy, **FAST)
    model.partial_fit(*rows(range(1, 6), 5), classes=NAMES[[0, 9]])
    assert model.classes_.tolist() == NAMES[[0, 1, 2, 3, 4, 5, 9]].tolist()
    p = model.predict_proba(QUERIES)
    assert (p[:, [0, 6]] > 0).all()
    assert (p[:, [0, 6]] < 1).all()
    if strategy == "recommended":
        np.testing.assert_allclose(p[:, 0], p[:, 6])
    inputs = model._fitted.predictor.inputs(QUERIES)
    scores = model._fitted.predictor.outlier_scores(inputs)  # what the model says
    model.partial_fit(*rows([9], 4))
    assert bool((model._fitted.predictor.outlier_scores(inputs) <= scores + 1e-9).all())
    x, y = rows([*range(1, 6), 9], 10, seed=5)
    assert model.score(x, y) > 0.6


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_most_probable_classes(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted(strategy).partial_fit(*rows([13], 3)).calibrate(*rows([*range(12), 13], 3, seed=9))
    p, found = model.predict_proba(QUERIES), model.predict_topk(QUERIES, 4)
    order = np.argsort(-p, axis=1, kind="stable")[:, :4]
    np.testing.assert_array_equal(found.labels, model.classes_[order])
    np.testing.assert_allclose(found.probabilities, np.take_along_axis(p, order, 1), rtol=1e-9)
    narrow = model.predict_topk(QUERIES, 4, beam=1)  # of so few classes all are looked at
    np.testing.assert_array_equal(narrow.labels, found.labels)
    assert model.predict_topk(QUERIES, 99).labels.shape == (30, 13)
    monkeypatch.setattr(type(model._fitted.model), "classes_for_a_branch", 0)
    wide = model.predict_topk(QUERIES, 4, beam=13)
    np.testing.assert_array_equal(wide.labels, found.labels)
    rtol = 1e-9 if strategy == "recommended" else 1e-2  # branches that cannot matter are left, tempered as a whole
    np.testing.assert_allclose(wide.probabilities, found.probabilities, rtol=rtol)
    narrow = model.predict_topk(QUERIES, 1, beam=4)
    assert np.mean(narrow.labels[:, 0] == found.labels[:, 0]) > 0.6
    assert model.predict_topk(QUERIES, 99).labels.shape == (30, 13)
    for wrong in ({"k": 0}, {"k": 2.0}, {"k": True}, {"beam": 0}):
        with pytest.raises(ValueError, match="must be a positive integer"):
            model.predict_topk(QUERIES, **wrong)  # type: ignore[arg-type]


def test_unknown_classes_are_recognised() -> None:
    model = fitted().partial_fit(*rows([12, 13], 5))
    known, unknown = rows(range(14), 10, seed=3)[0], rows(range(14, 20), 20, seed=3)[0]
    scores = model.outlier_score(known), model.outlier_score(unknown)
    assert np.mean(scores[1][:, None] > scores[0]) > 0.8


def test_epistemic_uncertainty_falls_with_rows() -> None:
    model = fitted().partial_fit(*rows([13], 1))
    x = rows([13], 20, seed=4)[0]
    few = model.uncertainty(x).epistemic.mean()
    model.partial_fit(*rows([13], 50, seed=6))
    assert model.uncertainty(x).epistemic.mean() < few


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_weights_are_counts(strategy: str) -> None:
    x, y = rows(range(4), 6)
    weight = np.random.default_rng(0).integers(0, 3, len(y))
    settings = {**FAST, "n_representatives": 20}
    weighted = TreeGPClassifier(strategy=strategy, **settings).fit(x, y, sample_weight=weight)
    repeated = TreeGPClassifier(strategy=strategy, **settings).fit(x.repeat(weight, 0), y.repeat(weight))
    np.testing.assert_array_equal(weighted.predict_proba(QUERIES), repeated.predict_proba(QUERIES))
    for call in (weighted.fit, weighted.partial_fit):
        with pytest.raises(ValueError, match="whole numbers"):
            call(x, y, sample_weight=np.full(len(y), 0.5))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_weights_that_cannot_be_counted_are_refused_in_later_sessions(strategy: str) -> None:
    """With weights of 1e300 and rows as far away probabilities were NaN."""
    model, (x, y) = fitted(strategy, 4), rows([4], 6)
    p = model.predict_proba(QUERIES)
    for weight in (2.0**53, 1e18, 1e300, 1e308):
        with pytest.raises(ValueError, match="sample_weight is too large"):
            model.partial_fit(1e300 * x, y, sample_weight=np.full(len(y), weight))
    np.testing.assert_array_equal(model.predict_proba(QUERIES), p)
    model.partial_fit(1e300 * x, y, sample_weight=np.full(len(y), 1e15))
    assert np.isfinite(model.predict_proba(np.concatenate([QUERIES, 1e300 * x]))).all()


def test_weights_beyond_memory_are_refused() -> None:
    x, y = rows(range(4), 6)
    with pytest.raises(MemoryError, match="use smaller weights"):
        TreeGPClassifier().fit(x, y, sample_weight=np.full(len(y), 1e12))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"strategy": "best"}, "strategy must be one of 'recommended', 'shared_root'"),
        ({"kernel": "unit_rbf"}, "is for the strategies of trees"),
        ({"inference": "gibbs"}, "is for the strategies of trees"),
        ({"construction": "label_order"}, "leave construction on 'two_means'"),
        ({"strategy": "session", "construction": "best"}, "construction must be one of"),
        ({"strategy": "session", "kernel": "rbf"}, "kernel must be one of"),
        ({"n_representatives": 0}, "n_representatives must be a positive integer"),
        ({"n_chains": 2.5}, "n_chains must be a positive integer"),
        ({"novel_scale": 0}, "novel_scale must be a positive number"),
        ({"base_scale": "wide"}, "base_scale must be a positive number"),
        ({"device": "toaster"}, "device must be"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TreeGPClassifier(**settings).fit(*rows(range(3), 3))


def test_presets_are_arguments() -> None:
    for preset in TREE_PRESETS.values():
        assert TreeGPClassifier(**preset).get_params().items() >= preset.items()
    small = TreeGPClassifier(**{**TREE_PRESETS["released"], **FAST}).fit(*rows(range(4), 5))
    assert small.partial_fit(*rows([5], 5)).predict_proba(QUERIES).shape == (30, 5)


@pytest.mark.parametrize("change", ["sessions", "within", "basis", "strategy", "temperature"])
def test_malformed_files_are_refused(change: str, tmp_path: Path) -> None:
    fitted().save(tmp_path / "model")
    artifact = load_artifact(tmp_path / "model")
    header, arrays = dict(artifact.header), dict(artifact.arrays)
    if change == "strategy":
        header["strategy"] = {"is a": "TreeSessions", "name": "best"}
    elif change == "sessions":
        arrays["sessions"] = arrays["sessions"][:-1]
    elif change == "basis":
        arrays["shared.basis"] = arrays["shared.basis"][:, :-1]
    elif change == "temperature":
        arrays["shared.temperature"] = -arrays["shared.temperature"]
    else:
        arrays["shared.within"] = -arrays["shared.within"]
    for name in ("format", "kind", "version"):
        header.pop(name, None)
    save_artifact(tmp_path / "changed", artifact.kind, header, arrays)
    with pytest.raises(ArtifactError):
        TreeGPClassifier.load(tmp_path / "changed")


def test_blocks_of_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted()
    whole = model.predict_topk(QUERIES, 3)
    monkeypatch.setattr("sureshot.estimators.base.LARGEST_BLOCK", 4)
    np.testing.assert_array_equal(model.predict_topk(QUERIES, 3).labels, whole.labels)


def test_columns_that_only_later_classes_use() -> None:
    """Handwritten digits, four classes first, in which some pixels are all but empty: the others are not misjudged."""
    x, y = load_digits(return_X_y=True)
    base, test = (y < 4) & (np.arange(len(y)) % 2 == 0), np.arange(len(y)) % 2 == 1
    model = TreeGPClassifier().fit(x[base], y[base])
    for first in (4, 6, 8):
        session = np.concatenate([np.flatnonzero((y == c) & ~test)[:5] for c in (first, first + 1)])
        model.partial_fit(x[session], y[session])
    loss = -np.log(model.predict_proba(x[test])[np.arange(test.sum()), y[test]]).mean()
    assert model.score(x[test], y[test]) > 0.8
    assert loss < 0.7


def half_unseen(labels: np.ndarray) -> np.ndarray:
    """A mask of half of the rows of every class but the first."""
    return (np.arange(len(labels)) % 8 >= 4) & (labels != NAMES[0])


def test_learnt_rows_count_as_few(tmp_path: Path) -> None:
    x, y = rows(range(12), 8)
    unseen = half_unseen(y)
    x[~unseen] += 3 * (CENTRES[0] - x[~unseen].mean(0))  # somewhere else altogether
    model = TreeGPClassifier().fit(x, y, unseen=unseen)
    kept = model._fitted.rows
    assert model.memory_.of_classes == (12 + 11 * 4) * (D + 1)  # unseen rows stay as they are
    assert (kept.weight == np.round(kept.weight)).all()
    of_class = dict(zip(model.classes_, np.bincount(kept.y, kept.weight), strict=True))
    assert of_class[NAMES[0]] >= 1
    assert all(4 < of_class[name] < 8 for name in NAMES[1:12])  # four unseen rows, and four that count as fewer
    as_they_came = {tuple(row) for row in x[unseen]}
    assert as_they_came <= {tuple(row) for row in kept.x}
    model.save(tmp_path / "model")
    more = rows([3, 15], 2)
    loaded = TreeGPClassifier.load(tmp_path / "model").partial_fit(*more)
    np.testing.assert_array_equal(loaded.predict_proba(QUERIES), model.partial_fit(*more).predict_proba(QUERIES))
    assert model._fitted.rows.weight.sum() == kept.weight.sum() + 4


def test_features_of_a_network_in_any_sessions() -> None:
    """More rows of a later class than are kept as they came, in one session and in three, in another order."""
    x, y = rows(range(12), 8)
    more, labels = rows([13, 15], 24)
    one = TreeGPClassifier().fit(x, y, unseen=half_unseen(y)).partial_fit(more, labels)
    several, order = (
        TreeGPClassifier().fit(x, y, unseen=half_unseen(y)),
        np.random.default_rng(0).permutation(len(more)),
    )
    for part in np.array_split(order, 3):
        several.partial_fit(more[part], labels[part])
    # Rows are added up in another order, so sums differ by rounding, and log densities of some hundred nats by 1e-13.
    # What is searched for, two temperatures and the decision between kinds, is no less exact: each search ends with a
    # step of Newton's. A search that ended by its values would leave 1e-7 here.
    np.testing.assert_allclose(several.predict_proba(QUERIES), one.predict_proba(QUERIES), rtol=1e-9, atol=1e-12)
    kinds = one._fitted.model.kinds
    assert kinds.later.tolist() == [False] * 12 + [True] * 2
    assert kinds.slope_first != 1
    assert np.bincount(one._fitted.rows.y)[[12, 13]].tolist() == [11, 11]
    one.forget(one.classes_[[12, 13]])
    before = TreeGPClassifier().fit(x, y, unseen=half_unseen(y))
    np.testing.assert_allclose(one.predict_proba(QUERIES), before.predict_proba(QUERIES), rtol=1e-12)


def test_unseen_rows_in_any_order_and_weighted() -> None:
    x, y = rows(range(12), 8)
    unseen = half_unseen(y)
    expected = TreeGPClassifier().fit(x, y, unseen=unseen).predict_proba(QUERIES)
    order = np.random.default_rng(0).permutation(len(y))
    shuffled = TreeGPClassifier().fit(x[order], y[order], unseen=torch.tensor(unseen[order]))
    np.testing.assert_array_equal(shuffled.predict_proba(QUERIES), expected)
    more = np.concatenate([x, 100 * x[:5]]), np.concatenate([y, y[:5]])
    weight, mask = np.repeat([1, 0], [len(y), 5]), np.append(unseen, [True] * 5)  # of weight zero: as if not there
    weighted = TreeGPClassifier().fit(*more, sample_weight=weight, unseen=mask)
    np.testing.assert_array_equal(weighted.predict_proba(QUERIES), expected)


def test_all_rows_unseen_is_no_mask() -> None:
    x, y = rows(range(12), 8)
    one, other = TreeGPClassifier().fit(x, y), TreeGPClassifier().fit(x, y, unseen=[True] * len(y))
    np.testing.assert_array_equal(one.predict_proba(QUERIES), other.predict_proba(QUERIES))
    for name, part in one._fitted.model.shared.items():
        assert torch.equal(part, other._fitted.model.shared[name])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda mask: mask[:-1], "X has 96 rows, unseen 95"),
        (lambda mask: mask.astype(int), "True or False for each row"),
        (lambda mask: np.flatnonzero(mask), "numpy.isin"),
        (lambda mask: mask[:, None], "True or False for each row"),
        (lambda mask: np.zeros_like(mask), "2 distinct rows or more of at least 10 classes, but it does of 0"),
        (lambda mask: mask & (np.arange(len(mask)) < 40), "but it does of 4"),
    ],
)
def test_a_wrong_mask_changes_nothing(change: Any, message: str) -> None:
    x, y = rows(range(12), 8)
    model = fitted()
    before, mask = model.predict_proba(QUERIES), change(half_unseen(y))
    with pytest.raises(ValueError, match=message):
        model.fit(x, y, unseen=mask)
    np.testing.assert_array_equal(model.predict_proba(QUERIES), before)


@pytest.mark.parametrize("strategy", STRATEGIES[1:])
def test_trees_take_no_mask(strategy: str) -> None:
    x, y = rows(range(12), 8)
    with pytest.raises(ValueError, match="strategy='recommended'"):
        TreeGPClassifier(strategy, **FAST).fit(x, y, unseen=half_unseen(y))


@pytest.mark.parametrize("strategy", ["recommended", "shared_root", "session", "rebuild"])
def test_the_most_probable_classes_are_those_under_the_class_prior(strategy: str) -> None:
    X, y = load_iris(return_X_y=True)
    model = TreeGPClassifier(strategy, random_state=0).fit(X[::3], y[::3]).set_class_prior([1e-6, 0.2, 1.0])
    top = model.predict_topk(X, 3)
    np.testing.assert_array_equal(top.labels[:, 0], model.predict(X))
    np.testing.assert_allclose(top.probabilities, -np.sort(-model.predict_proba(X), axis=1), atol=1e-12)


@pytest.mark.parametrize(("n_base", "n_rows"), [(2, 2), (2, 20), (12, 2)])
def test_classes_that_lie_beyond_the_first_session_are_no_wild_cells(n_base: int, n_rows: int, tmp_path: Path) -> None:
    """Their places are kept apart, in a model file too; a cell that lies alone is moved as before."""
    y = np.repeat(np.arange(4 * n_base), 20)
    x = np.random.default_rng(0).normal(size=(len(y), 3)) + 10.0 * y[:, None] * [1, 0, 0]
    base, taught = y < n_base, np.arange(len(y)) % 20 < n_rows
    model = TreeGPClassifier().fit(x[base], y[base]).partial_fit(x[~base & taught], y[~base & taught])
    assert model.score(x, y) > 0.95
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(TreeGPClassifier.load(tmp_path / "model").predict_proba(x), model.predict_proba(x))
    wild = x[base][:4].copy()
    wild[0] = [1e4, -1e4, 1e4]
    one = TreeGPClassifier().fit(x[base], y[base])
    limits = one._fitted.scaling.limits
    for rows in (wild, wild[:1]):
        later = deepcopy(one).partial_fit(rows, [99] * len(rows))
        np.testing.assert_array_equal(later._fitted.scaling.limits, limits)


@pytest.mark.parametrize("sizes", [(1, 9), (1, 1, 8), (1,) * 10])
def test_classes_beyond_the_first_session_may_arrive_row_by_row(sizes: Sequence[int]) -> None:
    """A row by itself may be wild or the class may lie there: it is kept as it came until the next one says."""
    X, y = load_iris(return_X_y=True)
    first, shown, asked = np.arange(50), np.r_[50:60, 100:110], np.r_[60:100, 110:150]
    once = TreeGPClassifier().partial_fit(X[first], y[first])
    parts = deepcopy(once)
    once.partial_fit(X[shown], y[shown])
    for stop, size in zip(np.cumsum(sizes), sizes, strict=True):
        rows = np.r_[50 + stop - size : 50 + stop, 100 + stop - size : 100 + stop]
        parts.partial_fit(X[rows], y[rows])
    assert abs(parts.score(X[asked], y[asked]) - once.score(X[asked], y[asked])) < 0.06
    loss = [log_loss(y[asked], model.predict_proba(X[asked]), labels=[0, 1, 2]) for model in (parts, once)]
    assert loss[0] - loss[1] < 0.1


@pytest.mark.parametrize("strategy", ["shared_root", "session"])
def test_what_is_said_among_first_classes_stays_where_later_ones_lie_elsewhere(strategy: str) -> None:
    X, y = load_digits(return_X_y=True)
    base, asked = y < 6, X[y < 6][:60] * 4
    model = TreeGPClassifier(strategy, n_chains=2, n_sweeps=2).fit(X[base][:200], y[base][:200])
    before = model.predict_proba(asked)
    model.partial_fit(X[y == 8][:5] * 8, y[y == 8][:5])
    after = model.predict_proba(asked)[:, :6]
    np.testing.assert_allclose(after / after.sum(1, keepdims=True), before, rtol=1e-9, atol=1e-12)


def test_columns_whose_spread_is_between_classes_are_not_drowned() -> None:
    """One column of three tells nine classes apart, 3 deviations from one to the next."""
    draw, y = np.random.default_rng(0), np.repeat(np.arange(9), 40)
    x = np.c_[3.0 * y + draw.normal(size=360), draw.normal(size=(360, 2))]
    known = np.arange(360) % 40 < 20
    model = TreeGPClassifier().fit(x[known], y[known])
    assert model.score(x[~known], y[~known]) > 0.75


def test_a_first_session_of_equal_rows_says_nothing_of_later_classes() -> None:
    x, y = load_iris(return_X_y=True)
    model = TreeGPClassifier().fit(np.zeros((4, 4)), [0, 0, 1, 1]).partial_fit(x, y)
    assert model.score(x, y) > 0.7


@pytest.mark.parametrize("strategy", STRATEGIES[1:])
def test_trees_are_as_sure_as_usual_where_no_row_is_to_spare(strategy: str) -> None:
    x, y = load_digits(return_X_y=True)
    known = np.concatenate([np.flatnonzero(y == c)[:5] for c in range(10)])
    model = TreeGPClassifier(strategy, n_chains=4).fit(x[known], y[known])
    p = model.predict_proba(x)
    assert abs(p.max(1).mean() - model.score(x, y)) < 0.2

"""What is said of rows without themselves: equal to refits where it claims so, and near them where it does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris

from sureshot import FewShotClassifier, GPClassifier, KernelSearchClassifier, TreeGPClassifier
from sureshot.estimators.classes import left_out as classes_left_out
from sureshot.estimators.classes.classifier_base import IncrementalClassifier
from sureshot.estimators.classes.p_values import CalibrationScores
from sureshot.estimators.fitted import Fitted, TrainingSet
from sureshot.estimators.rows.folds import by_folds
from sureshot.estimators.rows.labelled_rows import LabelledRows
from sureshot.meta.learners import make_learner
from sureshot.meta.training.checkpoint import save_checkpoint
from sureshot.networks.backbones import make_backbone
from sureshot.structure.removal import without

X, Y = load_iris(return_X_y=True)
X = X + np.random.default_rng(0).normal(scale=0.05, size=X.shape)
TRAIN, QUERY = slice(0, None, 6), slice(3, None, 6)
FEW = {"n_particles": 3, "n_rejuvenation": 1, "schedule": "once"}


def refitted(model: IncrementalClassifier, fitted: Fitted, place: int, copies: float) -> Fitted:
    """Without so many copies of a row, by the estimator's own way to other rows."""
    rows = fitted.rows
    weight = rows.weight.copy()
    weight[place] -= copies
    some = weight > 0
    left = LabelledRows(rows.x[some], rows.y[some], weight[some])
    return model._learn(TrainingSet(fitted.reader, fitted.columns, fitted.classes, left, None), fitted, 0)


def of_refits(model: IncrementalClassifier, places: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities and outlier scores of some rows, by refits without what is left out of each."""
    fitted = model._fitted
    away = fitted.rows.weight * fitted.rows.left_out_shares
    p, said = [], []
    for place in places:
        without = refitted(model, fitted, place, away[place])
        without = replace(without, temperature=fitted.temperature)
        queries = without.predictor.inputs(fitted.rows.x[[place]])
        with torch.no_grad():
            p.append(without.predictor.probabilities(without.predictor.moments(queries), fitted.temperature)[0].numpy())
            said.append(without.predictor.outlier_scores(queries)[0].item())
    return np.stack(p), np.array(said)


def left_out(model: IncrementalClassifier, places: list[int] | slice) -> tuple[np.ndarray, np.ndarray]:
    with torch.no_grad():
        p, said = model._fitted.probabilities_left_out(), model._fitted.outlier_scores_left_out()
    return p[places].numpy(), said[places].numpy()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("arguments", [{"kernel": "rbf"}, {"kernel": "linear"}, {"kernel": "rbf", "n_inducing": 9}])
def test_least_squares_equals_regression_without_the_row(arguments: dict[str, Any], weighted: bool) -> None:
    """By dense algebra, the row taken off; the prior mean, that of all targets, is a setting."""
    weight = np.where(np.arange(len(X[TRAIN])) % 3, 1.0, 2.0) if weighted else None
    approximation = "inducing" if "n_inducing" in arguments else "exact"
    model = GPClassifier(likelihood="least_squares", approximation=approximation, **arguments).fit(
        X[TRAIN], Y[TRAIN], weight
    )
    fitted, (member,) = model._fitted, model._fitted.members
    rows, noise = fitted.rows, member.plan.model.noise
    features, own = (part[0] for part in member.process.queries(member.process.values(fitted.predictor.inputs(rows.x))))
    targets = 2.0 * (rows.y == np.arange(3)[:, None]) - 1
    average = torch.from_numpy((targets * rows.weight).sum(1, keepdims=True) / rows.weight.sum())
    p, said = left_out(model, slice(None))
    for place in (0, 7, 16, 24):
        left = torch.from_numpy(rows.weight - np.eye(len(rows.y))[place] * rows.weight)
        some = left > 0
        gram = features[some] @ features[some].mT + torch.diag(noise / left[some])
        cross = features[some] @ features[place]
        mean = average[:, 0] + (torch.from_numpy(targets)[:, some] - average) @ torch.linalg.solve(gram, cross)
        variance = (own[place] - cross @ torch.linalg.solve(gram, cross)).expand(3)
        expected = member.probabilities(mean[None, :, None], variance[None, :, None], fitted.temperature, 3)
        np.testing.assert_allclose(p[place], expected[0], rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(said[place], -mean.max() / variance[0].sqrt(), rtol=1e-7)


@pytest.mark.parametrize("arguments", [{"kernel": "rbf"}, {"kernel": "linear", "likelihood": "softmax"}])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_laplace_is_near_refits(arguments: dict[str, Any], n_classes: int) -> None:
    some = n_classes > Y
    x, y = X[some][::4], Y[some][::4]
    model = GPClassifier(**arguments).fit(x, y)
    places = [0, 5, len(x) // 2, len(x) - 1]
    p, _ = left_out(model, places)
    expected, _ = of_refits(model, places)
    in_sample = model.predict_proba(model._fitted.rows.x[places])
    assert np.abs(p - expected).max() < max(0.1, np.abs(in_sample - expected).max())
    assert np.abs(p - expected).mean() < 0.04


def few_shot(folder: Path, width: int, **options: Any) -> FewShotClassifier:
    """With a checkpoint of one-vs-each by mean field, rows as they are."""
    learner = make_learner("ove_mean_field_ml", make_backbone("identity", (width,)), **options)
    save_checkpoint(folder / "learner", learner, {}, {"episodes": 0}, {})
    return FewShotClassifier(folder / "learner")


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scale", [1.0, 1 / 255])
def test_few_shot_distances_equal_refits(weighted: bool, scale: float, tmp_path: Path) -> None:
    digits = load_digits()
    x, y = digits.data[:60] * scale, digits.target[:60]
    weight = np.where(np.arange(60) % 4, 1.0, 3.0) if weighted else None
    model = few_shot(tmp_path, 64, kernel="cosine").fit(x, y, weight)
    places = [0, 11, 29, 58]
    with torch.no_grad():
        said = model._fitted.outlier_scores_left_out()[places].numpy()
    np.testing.assert_allclose(said, of_refits(model, places)[1], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    "model",
    [
        GPClassifier(kernel="rbf", likelihood="one_vs_each", inference="mean_field"),
        GPClassifier(kernel="rbf", likelihood="one_vs_each", inference="natural_gradient"),
        GPClassifier(kernel="rbf", likelihood="logistic_softmax", inference="gibbs", n_chains=3, n_sweeps=4),
        None,
    ],
    ids=["mean field", "natural gradients", "Gibbs", "few-shot"],
)
def test_folds_see_nothing_of_the_label(model: IncrementalClassifier | None, tmp_path: Path) -> None:
    """A row whose label is wrong is told its neighbours' label, not its own."""
    model = model or few_shot(tmp_path, 4, kernel="rbf", outputscale=32.0, lengthscale=2.0)
    y = Y[TRAIN].copy()
    y[0] = 2
    model.fit(X[TRAIN], y)
    rows = model._fitted.rows
    place = int(np.flatnonzero(np.isclose(rows.x, X[0], atol=1e-6).all(1))[0])
    p, _ = left_out(model, [place])
    assert p[0].argmax() == 0
    assert p[0, 2] < 0.2


@pytest.mark.parametrize("arguments", [{}, {"n_inducing": 8}], ids=["whole", "inducing"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_searched_kernels_take_a_row_away(arguments: dict[str, Any], n_classes: int) -> None:
    """Rows sent twice leave together, equal rows of another class stay: what is said then is said by the rows left."""
    some = n_classes > Y
    x, y = X[some][::5], Y[some][::5]
    x, y = np.concatenate([x, x[[0, 0, 1]]]), np.concatenate([y, y[[0, 0]], [n_classes - 1]])
    model = KernelSearchClassifier(predictive="integral", random_state=0, **FEW, **arguments).fit(x, y)
    fitted = model._fitted
    p, said = left_out(model, slice(None))
    learnt = fitted.learnt
    sizes = learnt.weight * learnt.left_out_shares
    assert sorted(sizes)[-3:] == [1, 1, 3]
    contradicted = [place for place, row in enumerate(learnt.x) if (learnt.x == row).all(1).sum() > 1]
    assert len(contradicted) == 2
    for place in (int(sizes.argmax()), contradicted[0], 7):
        same = (fitted.rows.x == learnt.x[place]).all(1) & (fitted.rows.y == learnt.y[place])
        gone = np.flatnonzero(same)[: round(sizes[place])]
        fewer = fitted.on(without(fitted.state, torch.from_numpy(~np.isin(np.arange(len(same)), gone))))
        queries = fitted.predictor.inputs(learnt.x[[place]])
        with torch.no_grad():
            expected = fewer.predictor.probabilities(fewer.predictor.moments(queries), 1.0)
            rounding = {"rtol": 1e-6} if n_classes == 2 else {"atol": 1e-3}  # of integrals in as many dimensions
            np.testing.assert_allclose(p[[place]], expected, **rounding)
            np.testing.assert_allclose(said[place], fewer.predictor.outlier_scores(queries)[0].item(), rtol=1e-6)
    assert fitted.usual_outliers.n_rows == len(learnt.y)


@pytest.mark.parametrize(
    "model",
    [GPClassifier("rbf"), KernelSearchClassifier(random_state=0, **FEW), None],
    ids=["gp", "search", "few-shot"],
)
def test_of_many_rows_those_are_left_out_that_count(
    model: IncrementalClassifier | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model or few_shot(tmp_path, 4, kernel="rbf", outputscale=32.0, lengthscale=2.0)
    of_all = left_out(model.fit(X[TRAIN], Y[TRAIN]), slice(None, None, 6))
    monkeypatch.setattr(classes_left_out, "MOST_ROWS", 5)
    model._fitted = replace(model._fitted)  # without what it has kept
    for part, expected in zip(left_out(model, slice(None)), of_all, strict=True):
        np.testing.assert_array_equal(part, expected)
    assert model._fitted.usual_labels.n_rows == 5


def test_p_values_count_rows() -> None:
    usual = CalibrationScores.of(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 2.0]))
    assert usual.n_rows == 4
    np.testing.assert_allclose(usual.p_values(np.array([0.0, 1.0, 1.5, 2.0, 3.0, 4.0])), [1, 1, 0.8, 0.8, 0.4, 0.2])
    shares = CalibrationScores.of(np.arange(9.0), np.full(9, 1e-3))
    assert shares.smallest == pytest.approx(0.1)
    np.testing.assert_allclose(shares.p_values(np.array([8.0])), [0.2])


def test_p_values_of_exchangeable_scores_are_uniform() -> None:
    generator = np.random.default_rng(0)
    draws = ((generator.normal(size=19), generator.normal(size=1)) for _ in range(4000))
    p = np.stack([CalibrationScores.of(known, np.ones(19)).p_values(new) for known, new in draws])
    for rate in (0.05, 0.1, 0.25, 0.5):
        assert (p <= rate + 1e-12).mean() == pytest.approx(rate, abs=4 * np.sqrt(rate / 4000))


def test_rows_of_a_table_of_few_values_are_no_strangers() -> None:
    """Most rows to come are copies of labelled ones, as labelled rows are of one another."""
    generator = np.random.default_rng(0)
    x = generator.integers(0, 3, size=(600, 2)).astype(float)
    y = (x.sum(1) + generator.integers(0, 2, 600) > 2).astype(int)
    model = GPClassifier(kernel="rbf").fit(x[:300], y[:300])
    p = model.novelty_p_value(x[300:])
    assert (p <= 0.05).mean() < 0.1
    assert model.novelty_p_value(np.full((1, 2), 50.0))[0] < 0.01
    weighted = GPClassifier(kernel="rbf").fit(*(part[:300] for part in (x, y)), sample_weight=np.ones(300))
    np.testing.assert_array_equal(weighted.novelty_p_value(x[300:]), p)


@pytest.mark.parametrize(
    ("model", "weight"), [*((GPClassifier("rbf"), weight) for weight in (1.5, 2.0, 100.0)), (FewShotClassifier(), 2.0)]
)
def test_weights_and_rows_sent_twice_make_no_row_a_stranger(model: IncrementalClassifier, weight: float) -> None:
    """With a weight of 2 all digits were rejected at 5 %, as each labelled row was where its copy was."""
    x, y = X[TRAIN], Y[TRAIN]
    plain = clone(model).fit(x, y).novelty_p_value(X[QUERY])
    weighted = clone(model).fit(x, y, sample_weight=np.full(len(y), weight))
    assert (weighted.novelty_p_value(X[QUERY]) <= 0.05).mean() <= max(0.1, 1.5 * (plain <= 0.05).mean())
    sets = weighted.predict_set(X[QUERY], 0.9, allow_empty=True)
    assert sets.members[np.arange(len(Y[QUERY])), Y[QUERY]].mean() > 0.8


@pytest.mark.parametrize(
    "arguments", [{}, {"n_inducing": 8}, {"representation": "whitened"}], ids=["collapsed", "inducing", "whitened"]
)
def test_copies_leave_a_search_together(arguments: dict[str, Any]) -> None:
    model, some = KernelSearchClassifier(random_state=0, **FEW, **arguments), (2 if arguments else 3) > Y
    x, y, queries, labels = X[some][::4], Y[some][::4], X[some][1::4], Y[some][1::4]
    x, y = np.append(x, x[:1], 0), np.append(y, 1)  # the last contradicts the first
    plain, weighted = clone(model).fit(x, y), clone(model).fit(x, y, sample_weight=np.full(len(y), 2.0))
    rejected = [(one.novelty_p_value(queries) <= 0.05).mean() for one in (plain, weighted)]
    assert rejected[1] <= max(0.1, 1.5 * rejected[0])
    assert weighted._fitted.usual_outliers.n_rows == len(y) + 2  # each of those that contradict each other counts
    assert weighted.predict_set(queries, 0.9, allow_empty=True).members[range(len(labels)), labels].mean() > 0.8
    alone = clone(model).partial_fit(np.repeat(X[:8], 2, 0), np.zeros(16, dtype=int))
    assert (alone.novelty_p_value(X[10:30]) <= 0.12).mean() <= 0.5
    assert alone._fitted.usual_outliers.n_rows == 8


def test_classes_of_one_row_do_not_count_unless_all_are() -> None:
    lone = np.r_[0:20, 50:70, 100]
    model = FewShotClassifier().fit(X[lone], Y[lone])
    assert model._fitted.usual_outliers.n_rows == 40
    one_shot = FewShotClassifier().fit(X[[0, 50, 100]], Y[[0, 50, 100]])
    assert one_shot._fitted.usual_outliers.n_rows == 3
    assert one_shot.novelty_p_value(X).min() >= 0.25
    assert one_shot.predict_set(X, 0.9).members.all()


@pytest.mark.parametrize("model", [GPClassifier(), KernelSearchClassifier(random_state=0, **FEW)], ids=["gp", "search"])
@pytest.mark.parametrize("announced", [None, [0, 1]])
def test_one_class_has_p_values(model: IncrementalClassifier, announced: list[int] | None) -> None:
    model, x = clone(model), X[Y == 0]
    model.partial_fit(x[:30], np.zeros(30, dtype=int), classes=announced)
    assert (model.novelty_p_value(x[30:]) <= 0.05).mean() <= 0.3
    assert (model.novelty_p_value(X[Y == 2]) <= 0.05).mean() > 0.9
    assert (model.predict_set(x[30:]).sizes >= 1).all()


@pytest.mark.parametrize("model", [GPClassifier(kernel="rbf"), None], ids=["gp", "few-shot"])
def test_it_follows_what_is_learnt(model: IncrementalClassifier | None, tmp_path: Path) -> None:
    model = model or few_shot(tmp_path, 4, kernel="rbf", outputscale=32.0, lengthscale=2.0)
    model.fit(X[TRAIN], Y[TRAIN])
    first, sets = model.novelty_p_value(X[QUERY]), model._fitted.usual_labels.scores
    model.set_class_prior([0.8, 0.1, 0.1])
    assert not np.array_equal(model._fitted.usual_labels.scores, sets)
    np.testing.assert_array_equal(model.novelty_p_value(X[QUERY]), first)
    model.partial_fit(X[QUERY], Y[QUERY])
    assert model._fitted.usual_outliers.n_rows == 2 * len(X[TRAIN])
    whole = model.novelty_p_value(X[1::6])
    model.save(tmp_path / "m")
    loaded = type(model).load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.novelty_p_value(X[1::6]), whole)
    np.testing.assert_array_equal(loaded.predict_set(X[1::6]).members, model.predict_set(X[1::6]).members)
    model.forget([2])
    assert (model.predict_or_reject(X[Y == 2], 0.1, -1) == -1).mean() > 0.5


def test_a_class_of_weight_zero_was_not_learnt() -> None:
    model = GPClassifier(kernel="rbf", class_weight={0: 1.0, 1: 2.0, 2: 0.0}).fit(X[TRAIN], Y[TRAIN])
    assert model._fitted.usual_outliers.n_rows == (Y[TRAIN] < 2).sum()
    assert model.predict_set(X[QUERY]).members[:, :2].any(1).all()


def test_a_precomputed_kernel_goes_by_what_the_model_says() -> None:
    gram = np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(-1))
    train = np.arange(len(X))[TRAIN]
    model = GPClassifier(kernel="precomputed").fit(gram[np.ix_(train, train)], Y[TRAIN])
    queries = gram[np.arange(len(X))[QUERY]][:, train]
    assert (model.novelty_p_value(queries) > 0.05).mean() > 0.8
    assert model.predict_set(queries).members.any(1).all()


def test_a_tree_keeps_no_rows() -> None:
    model = TreeGPClassifier().fit(X[TRAIN], Y[TRAIN])
    with pytest.raises(ValueError, match=r"keeps means of rows, not the rows.*GPClassifier"):
        model.novelty_p_value(X)
    with pytest.raises(ValueError, match="keeps means of rows"):
        model.predict_set(X)


def test_folds_bring_rows_back_in_order() -> None:
    y = torch.tensor([0, 1, 0, 1, 2, 0, 0, 1, 2, 2, 2, 2])
    weight = torch.ones(12, dtype=torch.float64)

    def said(stays: torch.Tensor, left: torch.Tensor, fold: torch.Tensor) -> torch.Tensor:
        assert not set(stays.tolist()) & set(fold.tolist())
        assert len(stays) == len(left) == 12 - len(fold)
        return fold

    assert by_folds(y, weight, weight, said).tolist() == list(range(12))


def test_few_rows_are_left_out_of_the_scales_of_columns() -> None:
    """A value that no other row has is as far off for a labelled row as for one to come."""
    x = np.hstack([X[Y < 2], 0.01 * (np.arange(100)[:, None] % 2)])
    x[3, 4] = 1.0
    fitted = FewShotClassifier().fit(x, Y[Y < 2])._fitted
    place = fitted.rows.x[:, 4].argmax()
    said = fitted.outlier_scores_left_out()[[place]].numpy()
    by_all_scales = fitted.outlier_score(fitted.rows.x[[place]], said, np.array([True]))[0]
    assert fitted.usual_outliers.scores[-1] > 10 * by_all_scales


def test_folds_do_not_depend_on_the_numbers_of_classes() -> None:
    generator = torch.Generator().manual_seed(0)
    y, ones = torch.randint(4, (23,), generator=generator), torch.ones(23, dtype=torch.float64)
    others = torch.tensor([2, 0, 3, 1])[y]

    def said(stays: torch.Tensor, weight: torch.Tensor, fold: torch.Tensor) -> torch.Tensor:
        return stays.double().square().sum().expand(len(fold))

    assert torch.equal(by_folds(y, ones, ones, said), by_folds(others, ones, ones, said))


def test_p_values_of_infinite_scores() -> None:
    known = CalibrationScores.of(np.array([0.1, 0.5, np.inf]), np.ones(3))
    with np.errstate(all="raise"):
        np.testing.assert_allclose(known.p_values(np.array([np.inf, 0.5, -np.inf])), [0.5, 0.75, 1.0])

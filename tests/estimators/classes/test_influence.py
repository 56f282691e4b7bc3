"""What rows do to an answer is what refits without them say: to rounding where there is a closed form, else nearly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris, make_blobs

from sureshot import FewShotClassifier, GPClassifier, KernelSearchClassifier, TreeGPClassifier, kernels
from sureshot.estimators.classes.classifier_base import IncrementalClassifier
from sureshot.estimators.classes.influence import Influence
from sureshot.estimators.gp import leaving
from sureshot.meta.learners import make_learner
from sureshot.meta.training.checkpoint import save_checkpoint
from sureshot.networks.backbones import make_backbone
from sureshot.structure.removal import without

X, Y = load_iris(return_X_y=True)
X = X + np.random.default_rng(0).normal(scale=0.01, size=X.shape)
TEXT = np.array(["setosa", "versicolor", "virginica"])[Y]
ROWS, QUERIES = np.arange(0, 150, 5), X[3::11]
WEIGHT = np.tile([1.0, 2.0, 1.0], 10)
RBF = 9.0 * kernels.RBF(0.8)
UNIT = X / np.linalg.norm(X, axis=1, keepdims=True)

GIBBS: dict[str, Any] = {"inference": "gibbs", "n_chains": 3, "n_sweeps": 9}
INDUCING: dict[str, Any] = {"approximation": "inducing", "n_inducing": 9}


def by_row(found: Influence, names: np.ndarray) -> np.ndarray:
    """Falls (n, N) of all rows, in the order of their ids; the parts of the result agree with each other."""
    ids, falls = found.proponents.row_ids, found.proponents.falls
    assert (falls[:, :-1] >= falls[:, 1:]).all()
    np.testing.assert_array_equal(found.opponents.falls, falls[:, ::-1])
    where = np.argsort(ids, axis=1)
    np.testing.assert_array_equal(np.take_along_axis(ids, where, 1), np.broadcast_to(np.sort(names), ids.shape))
    ordered = np.take_along_axis(falls, where, 1)
    together = np.argsort(found.together.row_ids)
    np.testing.assert_allclose(found.together.falls[together], ordered.sum(0), atol=1e-12)
    assert (np.diff(found.together.falls) >= 0).all()
    return ordered


def refitted(model: GPClassifier, queries: np.ndarray, stays: np.ndarray) -> np.ndarray:
    """Probabilities (n, C) by every member's posterior given some of the rows (N,) bool, all settings kept."""
    fitted, n_classes = model._fitted, len(model.classes_)
    inputs, at = fitted.predictor.inputs(queries), torch.from_numpy(stays)
    of_class = fitted.weight_of_class / np.bincount(fitted.rows.y, fitted.rows.weight)
    y, weight = (torch.from_numpy(part)[at] for part in (fitted.rows.y, fitted.rows.weight * of_class[fitted.rows.y]))
    parts = []
    for member in fitted.members:
        features = leaving.features_of(member.process.posterior)[at]
        posterior = member.plan.model.condition(features, y, n_classes, weight).posterior
        mean, spread = posterior.query(*member.process.queries(member.process.values(inputs)))
        spread = torch.zeros_like(mean) if member.plan.rule == "plug_in" else spread
        temperature = fitted.temperature if len(fitted.members) == 1 else member.plan.temperature
        parts.append(member.probabilities(mean, spread, temperature, n_classes).numpy())
    if len(parts) == 1:
        return parts[0]
    p = sum(member.plan.weight * part for member, part in zip(fitted.members, parts, strict=True))
    p = p ** (1 / fitted.temperature)
    p = (1 - fitted.predictor.label_noise) * p / p.sum(1, keepdims=True) + fitted.predictor.label_noise / n_classes
    p = p * fitted.prior / (fitted.frequencies / fitted.frequencies.sum())
    return p / p.sum(1, keepdims=True)


def falls_of_refits(
    model: Any, queries: np.ndarray, refit: Callable[..., np.ndarray] = refitted, every: int = 1
) -> np.ndarray:
    """Falls (n, N) of the answers' log probabilities, by a refit for each of some rows, in the order of their ids."""
    ids = model._fitted.row_ids
    everything = np.ones(len(model._fitted.distinct_rows.y), bool)
    best = np.arange(len(queries)), model.predict_proba(queries).argmax(1)
    logs = [np.log(refit(model, queries, np.arange(len(everything)) != row)[best]) for row in ids.row[::every]]
    return np.log(refit(model, queries, everything)[best])[:, None] - np.stack(logs, 1)


def fitted_with_ids(y: np.ndarray = Y, **settings: Any) -> GPClassifier:
    known: dict[str, Any] = {} if "kernel" in settings else {"kernel": RBF, "objective": None}
    return GPClassifier(**known, **settings).fit(X[ROWS], y[ROWS], sample_weight=WEIGHT, row_id=ROWS)


@pytest.mark.parametrize(
    "settings",
    [
        {"kernel": "rbf"},
        {"kernel": "linear", "class_weight": "balanced"},
        {"kernel": "rbf", **INDUCING},
        pytest.param({"kernel": "auto", "ensemble": True, "class_prior": [0.2, 0.3, 0.5]}, marks=pytest.mark.slow),
    ],
    ids=["one", "weights of classes", "inducing inputs", "an average under a class prior"],
)
def test_least_squares_without_a_row_is_exact(settings: dict[str, Any]) -> None:
    model = fitted_with_ids(likelihood="least_squares", **settings)
    assert (len(model.members_) > 1) == ("ensemble" in settings)
    found = model.influence(QUERIES, n=100)
    expected = falls_of_refits(model, QUERIES)
    np.testing.assert_allclose(by_row(found, ROWS), expected, atol=1e-10)
    assert np.abs(expected).max() > 0.03
    p = model.predict_proba(QUERIES)
    np.testing.assert_array_equal(found.classes, model.classes_[p.argmax(1)])
    np.testing.assert_allclose(found.log_probabilities, np.log(p.max(1)), atol=1e-12)


def test_least_squares_without_a_row_is_that_of_the_dense_formula() -> None:
    model = GPClassifier(kernel="rbf", likelihood="least_squares").fit(X[ROWS], Y[ROWS], row_id=ROWS)
    member = model._fitted.heaviest
    scaling, noise, temperature = member.plan.scaling, member.plan.model.noise, model.temperature_
    with torch.no_grad():
        a, b = (torch.from_numpy(scaling(rows)) for rows in (X[ROWS], QUERIES))
        gram, cross = (member.plan.kernel(*pair).to_dense().numpy() for pair in ((a, a), (b, a)))
    logs = []
    for row in [*range(len(ROWS)), None]:
        stays = np.arange(len(ROWS)) != row
        targets = 2.0 * np.eye(3)[Y[ROWS][stays]] - 1
        noisy = gram[np.ix_(stays, stays)] + noise * np.eye(stays.sum())
        latents = targets.mean(0) + cross[:, stays] @ np.linalg.solve(noisy, targets - targets.mean(0))
        p = np.exp(latents / temperature)
        logs.append(np.log(p / p.sum(1, keepdims=True)))
    truth = np.arange(len(QUERIES)) % 3
    explained = (np.array(logs[-1]) - np.array(logs[:-1]))[:, np.arange(len(QUERIES)), truth].T
    found = model.influence(QUERIES, n=100, y=truth)
    np.testing.assert_array_equal(found.classes, truth)
    np.testing.assert_allclose(by_row(found, ROWS), explained, atol=1e-6)  # kernel matrices have some jitter


# The mean error of a row's fall over the mean fall, and the correlation of falls over all queries and rows.
NEARLY: dict[str, tuple[dict[str, Any], float, float]] = {
    "softmax": ({"likelihood": "softmax", "likelihood_temperature": 2.0}, 0.06, 0.99),
    "softmax, chosen scales": ({"kernel": "rbf", "likelihood": "softmax"}, 0.15, 0.99),
    "softmax, integral": ({"likelihood": "softmax", "predictive": "integral"}, 0.35, 0.98),
    "softmax, polynomial": ({"kernel": "polynomial2", "likelihood": "softmax"}, 0.2, 0.97),
    "one-vs-each": ({"likelihood": "one_vs_each", "inference": "mean_field"}, 0.25, 0.99),
    "natural gradients": ({"likelihood": "one_vs_each", "inference": "natural_gradient"}, 0.25, 0.99),
    "logistic-softmax": ({"likelihood": "logistic_softmax", "inference": "mean_field"}, 0.5, 0.97),
    "two classes": ({"likelihood": "logistic"}, 0.25, 0.99),
    "two classes by mean field": (
        {"likelihood": "logistic", "inference": "mean_field", "predictive": "integral"},
        0.3,
        0.99,
    ),
}


@pytest.mark.parametrize("case", NEARLY)
def test_other_likelihoods_are_near_refits(case: str) -> None:
    settings, most, least = NEARLY[case]
    model = fitted_with_ids(np.minimum(Y, 1) if "two classes" in case else Y, **settings)
    every = 1 if model.inference_ == "laplace" else 3
    found = by_row(model.influence(QUERIES, n=100), ROWS)[:, ::every]
    expected = falls_of_refits(model, QUERIES, every=every)
    assert np.abs(found - expected).mean() < most * np.abs(expected).mean()
    assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > least
    assert (found.argmax(1) == expected.argmax(1)).mean() > 0.7
    large = np.abs(expected) > 0.1 * np.abs(expected).max()
    assert (np.sign(found) == np.sign(expected))[large].all()


def test_many_classes_are_taken_as_independent(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = by_row(fitted_with_ids(likelihood="softmax").influence(QUERIES, n=100), ROWS)
    monkeypatch.setattr(leaving, "AT_ONCE", 1)
    found = by_row(fitted_with_ids(likelihood="softmax").influence(QUERIES, n=100), ROWS)
    assert 0.95 < np.corrcoef(found.ravel(), whole.ravel())[0, 1] < 0.9999


def test_scales_that_rounding_is_lost_in_do_no_harm() -> None:
    model = GPClassifier(kernel=1e10 * kernels.RBF(3.0), likelihood="softmax", objective=None).fit(X[::2], Y[::2])
    assert np.isfinite(model.influence(QUERIES).proponents.falls).all()


def dense_without(model: GPClassifier, chain: int, row: int | None) -> np.ndarray:
    """Probabilities of QUERIES by one chain's Polya-Gamma variables, from the matrix of all differences of latents."""
    member = model._fitted.heaviest
    posterior, n_classes = member.process.posterior, 3
    values = member.process.queries(member.process.values(model._fitted.predictor.inputs(QUERIES)))
    features, queries = leaving.features_of(posterior).numpy(), values.cross[0].numpy()
    y, n = model._fitted.rows.y, len(model._fitted.rows.y)
    pairs = [(i, c) for i in range(n) for c in range(n_classes) if c != y[i] and i != row]
    differences = np.zeros((len(pairs), n_classes * n))
    for k, (i, c) in enumerate(pairs):
        differences[k, y[i] * n + i], differences[k, c * n + i] = 1, -1
    omega = np.array([float(posterior.result.omega[chain, ..., c, i]) for i, c in pairs])
    shift = np.array([0.5 * model._fitted.rows.weight[i] for i, _ in pairs])
    gram, cross = (np.kron(np.eye(n_classes), part @ features.T) for part in (features, queries))
    inverse = np.linalg.inv(differences @ gram @ differences.T + np.diag(1 / omega))
    across = cross @ differences.T
    mean = across @ inverse @ (shift / omega)
    covariance = np.kron(np.eye(n_classes), np.diag(values.variance[0])) - across @ inverse @ across.T
    by_query = covariance.reshape(n_classes, len(queries), n_classes, len(queries)).diagonal(axis1=1, axis2=3)
    moments = torch.tensor(mean).view(1, n_classes, -1), torch.tensor(by_query).permute(2, 0, 1)[None]
    spread = torch.zeros_like(moments[0]) if member.plan.rule == "plug_in" else moments[1]
    return member.probabilities(moments[0], spread, model.temperature_, n_classes).numpy()


@pytest.mark.parametrize("rule", ["integral", "plug_in"])
def test_chains_of_one_vs_each_lose_the_differences_of_a_row(rule: str) -> None:
    model = fitted_with_ids(likelihood="one_vs_each", predictive=rule, **GIBBS)

    def refit(_: Any, __: np.ndarray, stays: np.ndarray) -> np.ndarray:
        row = None if stays.all() else int(np.flatnonzero(~stays)[0])
        return np.mean([dense_without(model, chain, row) for chain in range(3)], axis=0)

    expected = falls_of_refits(model, QUERIES, refit)
    np.testing.assert_allclose(by_row(model.influence(QUERIES, n=100), ROWS), expected, atol=1e-8)


def test_chains_of_two_classes_lose_the_site_of_a_row() -> None:
    model = fitted_with_ids(np.minimum(Y, 1), likelihood="logistic", predictive="plug_in", **GIBBS)
    member, rows = model._fitted.heaviest, model._fitted.rows
    features = leaving.features_of(member.process.posterior).numpy()
    queries = member.process.queries(member.process.values(model._fitted.predictor.inputs(QUERIES))).cross[0].numpy()

    def refit(_: Any, __: np.ndarray, stays: np.ndarray) -> np.ndarray:
        p = []
        for omega in member.process.posterior.precision[:, 0].numpy():
            gram = features[stays] @ features[stays].T + np.diag(1 / omega[stays])
            seen = (rows.weight * (rows.y - 0.5) / omega)[stays]
            p.append(1 / (1 + np.exp(-queries @ features[stays].T @ np.linalg.solve(gram, seen) / model.temperature_)))
        second = np.mean(p, axis=0)
        return np.stack([1 - second, second], 1)

    expected = falls_of_refits(model, QUERIES, refit)
    np.testing.assert_allclose(by_row(model.influence(QUERIES, n=100), ROWS), expected, atol=1e-8)


@pytest.mark.parametrize("settings", [{"likelihood": "logistic_softmax", **GIBBS}, {"likelihood": "one_vs_each"}])
def test_rows_speak_most_for_their_own_class(settings: dict[str, Any]) -> None:
    found = GPClassifier(kernel=RBF, objective=None, **settings).fit(X[ROWS], TEXT[ROWS]).influence(QUERIES, n=1)
    assert (found.proponents.row_ids == None).all()  # noqa: E711 - elementwise
    assert (found.proponents.labels[:, 0] == found.classes).all()
    assert (found.proponents.falls > 0).all()
    assert (found.opponents.falls < 0).all()


def test_equal_rows_leave_together_unless_they_have_ids() -> None:
    rows = [0, 60, 120, 0, 0]
    settings: dict[str, Any] = {"kernel": "rbf", "likelihood": "least_squares"}
    named = GPClassifier(**settings).fit(X[rows], TEXT[rows], row_id=list("abcde"))
    nameless = GPClassifier(**settings).fit(X[rows], TEXT[rows])
    one, all_three = (model.influence(QUERIES, n=9, y=TEXT[3::11]) for model in (named, nameless))
    assert one.proponents.falls.shape == (len(QUERIES), 5)
    assert all_three.proponents.falls.shape == (len(QUERIES), 3)
    equal = np.isin(one.proponents.row_ids, ["a", "d", "e"])
    by_query = one.proponents.falls[equal].reshape(-1, 3)
    np.testing.assert_allclose(by_query, by_query[:, :1] * np.ones(3), rtol=1e-9)
    merged = all_three.proponents.falls[all_three.proponents.labels == "setosa"]
    assert (np.abs(merged) > 1.5 * np.abs(by_query[:, 0])).mean() > 0.8  # more than one of three does


def test_rows_of_a_class_that_does_not_count_do_nothing() -> None:
    model = GPClassifier(class_weight={0: 0.0, 1: 1.0, 2: 3.0}, kernel="rbf").fit(X[ROWS], Y[ROWS])
    found = model.influence(QUERIES, n=100).proponents
    assert not found.falls[found.labels == 0].any()
    assert found.falls[found.labels != 0].any()


@pytest.mark.parametrize(
    "name", ["ove_mean_field_pl", "ove_gibbs_pl", "cdkt_pl", "dkt", "logistic_softmax_gibbs_pl", "protonet"]
)
def test_few_shot_learners_that_are_gaussian_processes(name: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"n_chains": 3, "n_sweeps_prediction": 4} if "gibbs" in name else {}
    learner = make_learner(name, make_backbone("linear", (4,), rank=2), **options)
    save_checkpoint(tmp_path / "c", learner, {}, {"episodes": 0}, {})
    model = FewShotClassifier(tmp_path / "c").fit(X[ROWS], TEXT[ROWS], row_id=ROWS)
    model.partial_fit(X[:1], TEXT[:1], classes=["setosa", "unseen"], row_id=[0])
    if name == "protonet":
        with pytest.raises(ValueError, match="influence is known of Gaussian processes"):
            model.influence(QUERIES)
        return
    found = model.influence(QUERIES, n=100)
    falls = by_row(found, ROWS)
    assert (np.abs(falls).max(1) > 0).all()
    np.testing.assert_allclose(found.log_probabilities, np.log(model.predict_proba(QUERIES).max(1)), atol=1e-12)
    if "gibbs" in name:  # of which another run says something else
        assert (found.proponents.labels[:, 0] == found.classes).mean() > 0.7
        return
    best = np.arange(len(QUERIES)), model.predict_proba(QUERIES).argmax(1)
    logs, asked = [], ROWS if name == "dkt" else ROWS[::6]
    for row in asked:
        fewer = clone(model).fit(X[ROWS], TEXT[ROWS], row_id=ROWS)
        fewer.partial_fit(X[:1], TEXT[:1], classes=["setosa", "unseen"], row_id=[0])
        logs.append(np.log(fewer.forget(rows=[row]).predict_proba(QUERIES)[best]))
    expected, falls = found.log_probabilities[:, None] - np.stack(logs, 1), falls[:, np.isin(ROWS, asked)]
    if name == "dkt":
        np.testing.assert_allclose(falls, expected, atol=1e-9)
    assert np.corrcoef(falls.ravel(), expected.ravel())[0, 1] > 0.95


@pytest.mark.parametrize("two", [True, False])
@pytest.mark.parametrize("rule", ["integral", "stacked"])
def test_a_search_loses_rows_as_they_are_removed(two: bool, rule: str) -> None:
    rows = np.r_[ROWS[::2], 0, 0, 50]  # some of them twice or more
    y, names = np.minimum(Y, 1 if two else 2), np.arange(len(rows))
    model = KernelSearchClassifier(n_particles=3, n_rejuvenation=0, random_state=0, predictive=rule)
    model.fit(X[rows], y[rows], row_id=names)
    fitted, queries = model._fitted.settled, model._fitted.predictor.inputs(QUERIES)
    assert fitted.rule == rule

    def refit(_: Any, __: np.ndarray, stays: np.ndarray) -> np.ndarray:
        row = np.flatnonzero(~stays)
        gone = np.flatnonzero(fitted._merged[1] == row)[:1] if len(row) else row  # one of the copies
        left = torch.ones(len(fitted.rows.y), dtype=torch.bool).index_fill(0, torch.from_numpy(gone), False)
        state = without(fitted.state, left)
        fewer = replace(fitted, predictor=fitted.predictor.on(state))
        return fewer.predictor.probabilities(fewer.predictor.moments(queries), fewer.temperature).numpy()

    found = by_row(model.influence(QUERIES, n=100), names)
    expected = falls_of_refits(model, QUERIES, refit)
    alone = np.array([(fitted._merged[1] == row).sum() == 1 for row in fitted.row_ids.row])
    np.testing.assert_allclose(found[:, alone], expected[:, alone], atol=1e-10)
    # A copy has Polya-Gamma variables of its own; the first of each was removed above.
    first = np.unique(fitted.row_ids.row, return_index=True)[1]
    np.testing.assert_allclose(found[:, first], expected[:, first], atol=1e-10)


def test_what_has_no_influence_says_so() -> None:
    with pytest.raises(ValueError, match="TreeGPClassifier keeps means of rows"):
        TreeGPClassifier().fit(X[ROWS], Y[ROWS]).influence(QUERIES)
    with pytest.raises(ValueError, match="influence compares two classes"):
        FewShotClassifier().partial_fit(X[:5], Y[:5]).influence(QUERIES)
    model = FewShotClassifier().fit(X[ROWS], Y[ROWS])
    with pytest.raises(ValueError, match="n must be a positive integer; got 0"):
        model.influence(QUERIES, n=0)
    with pytest.raises(ValueError, match=r"y must hold one label for each of the 14 rows of X; got shape \(2,\)"):
        model.influence(QUERIES, y=[0, 1])
    with pytest.raises(ValueError, match="y has labels the model does not know: 7"):
        model.influence(QUERIES[:2], y=[0, 7])
    search = KernelSearchClassifier(n_particles=3, n_rejuvenation=0, random_state=0)
    with pytest.raises(ValueError, match="all rows of this search are of one"):
        clone(search).partial_fit(X[:9], Y[:9], classes=[0, 1]).influence(QUERIES)
    with pytest.raises(ValueError, match="without n_inducing"):
        search.set_params(n_inducing=5).fit(X[ROWS], Y[ROWS]).influence(QUERIES)


def test_precomputed_kernels_name_rows() -> None:
    model = GPClassifier(kernel="precomputed").fit(UNIT[ROWS] @ UNIT[ROWS].T, Y[ROWS], row_id=ROWS)
    found = model.influence(UNIT[3::11] @ UNIT[ROWS].T)
    np.testing.assert_array_equal(found.proponents.labels, Y[found.proponents.row_ids.astype(int)])


def test_columns_that_repeat_each_other_do_no_harm() -> None:
    rng = np.random.default_rng(0)
    level = rng.integers(3, size=40)
    x = np.column_stack([np.eye(3)[level], 1 - np.eye(3)[level], rng.normal(size=40)])
    for likelihood in ("least_squares", "logistic"):
        model = GPClassifier(kernel="linear", likelihood=likelihood).fit(x, (level == 0).astype(int))
        found = model.influence(x, n=40)
        assert np.isfinite(found.proponents.falls).all()
        assert np.abs(found.proponents.falls).max() < 1


@pytest.mark.parametrize("estimator", [FewShotClassifier(), GPClassifier("rbf", likelihood="softmax")])
def test_planted_rows_are_named(estimator: IncrementalClassifier) -> None:
    x, y = make_blobs(40, centers=[[-3.0, 0.0], [3.0, 0.0]], cluster_std=1.0, random_state=1)
    beside = np.array([[-8.0, 6.0], [-8.1, 6.1], [8.0, -6.0], [8.1, -6.1]])  # two rows of either class, far from all
    wrong = np.array([[2.9, 0.1]])  # in the middle of class 1
    rows, labels = np.concatenate([x, beside, wrong]), np.concatenate([y, [0, 0, 1, 1], [0]])
    names = [f"row {k}" for k in range(40)] + ["left", "left too", "right", "right too", "wrong"]
    model = clone(estimator).fit(rows, labels, row_id=names)
    found = model.influence(np.array([[-8.05, 6.0], [8.05, -6.0], [2.9, 0.0]]), n=2, y=[0, 1, 1])
    assert set(found.proponents.row_ids[0]) == {"left", "left too"}
    assert set(found.proponents.row_ids[1]) == {"right", "right too"}
    assert found.opponents.row_ids[2, 0] == "wrong"
    assert found.opponents.falls[2, 0] < -0.01
    near = x[y == 1]
    assert model.influence(near, y=np.ones(len(near), int)).together.row_ids[0] == "wrong"


@pytest.mark.slow
@pytest.mark.real_data
def test_answers_of_a_table_are_driven_by_rows_of_their_own() -> None:
    from sureshot.data.root import data_root

    frame = pd.read_csv(data_root() / "mixed" / "titanic.csv").drop(columns="alive")
    y = frame.pop("survived").to_numpy()
    order = np.random.default_rng(0).permutation(len(frame))
    model = GPClassifier().fit(frame.iloc[order[:600]], y[order[:600]], row_id=order[:600])
    found = model.influence(frame.iloc[order[600:]], n=3)
    for named in (found.proponents, found.opponents):
        _, often = np.unique(named.row_ids.astype(int), return_counts=True)
        assert often.sum() == 873
        assert len(often) > 120
        assert often.max() < 60
    assert (found.proponents.falls > 0).all()
    assert (found.opponents.falls < 0).mean() > 0.99
    assert (found.proponents.labels == found.classes[:, None]).mean() > 0.9
    assert (found.opponents.labels == found.classes[:, None]).mean() < 0.1

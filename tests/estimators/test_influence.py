"""Shares of labelled rows in an answer: they sum to the latents' difference, and name the rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris

from sureshot import FewShotClassifier, GPClassifier, KernelSearchClassifier, TreeGPClassifier, kernels
from sureshot.estimators.base import IncrementalClassifier
from sureshot.meta.learners import make_learner
from sureshot.meta.training.checkpoint import save_checkpoint
from sureshot.networks.backbones import make_backbone

X, Y = load_iris(return_X_y=True)
X = X + np.random.default_rng(0).normal(scale=0.01, size=X.shape)
TEXT = np.array(["setosa", "versicolor", "virginica"])[Y]
ROWS, QUERIES = np.arange(0, 150, 5), X[3::11]
RBF = 9.0 * kernels.RBF(0.8)
UNIT = X / np.linalg.norm(X, axis=1, keepdims=True)

GIBBS: dict[str, Any] = {"inference": "gibbs", "n_chains": 3, "n_sweeps": 9}
INDUCING: dict[str, Any] = {"approximation": "inducing", "n_inducing": 9}
CASES: dict[str, dict[str, Any]] = {
    "regression": {"kernel": "rbf", "likelihood": "gaussian"},
    "regression, linear": {"kernel": "linear", "likelihood": "gaussian", "class_weight": "balanced"},
    "regression, inducing": {"likelihood": "gaussian", **INDUCING},
    "softmax": {"likelihood": "softmax", "likelihood_temperature": 2.0},
    "softmax, polynomial": {"kernel": "polynomial2", "likelihood": "softmax"},
    "one-vs-each": {"likelihood": "one_vs_each", "inference": "mean_field"},
    "one-vs-each by natural gradients": {"likelihood": "one_vs_each", "inference": "natural_gradient"},
    "one-vs-each by Gibbs": {"likelihood": "one_vs_each", **GIBBS},
    "logistic-softmax": {"likelihood": "logistic_softmax", "inference": "mean_field"},
    "logistic-softmax by Gibbs": {"likelihood": "logistic_softmax", **GIBBS},
    "logistic-softmax by Gibbs, inducing": {"likelihood": "logistic_softmax", **GIBBS, **INDUCING},
    "two classes": {"likelihood": "logistic"},
    "two classes by mean field": {"likelihood": "logistic", "inference": "mean_field"},
    "two classes by Gibbs": {"likelihood": "logistic", **GIBBS},
}


def all_shares(model: IncrementalClassifier, queries: np.ndarray) -> Any:
    """The influence of all rows, checked against the latents and the probabilities."""
    found = model.influence(queries, n=10_000)
    p, latents = model.predict_proba(queries), model.predict_latent(queries).mean
    best = np.argsort(-p, axis=1, kind="stable")[:, :2]
    np.testing.assert_array_equal(found.classes, model.classes_[best])
    expected = latents[np.arange(len(p)), best[:, 0]] - latents[np.arange(len(p)), best[:, 1]]
    np.testing.assert_allclose(found.difference, expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(found.shares.sum(1) + found.rest, expected, rtol=1e-8, atol=1e-8)
    sizes = np.abs(found.shares)
    assert (sizes[:, :-1] >= sizes[:, 1:]).all()
    few = model.influence(queries[::2], n=3)
    np.testing.assert_allclose(few.shares, found.shares[::2, :3], rtol=1e-7, atol=1e-9)
    assert few.inputs.shape == (len(queries[::2]), 3, found.inputs.shape[2])
    return found


@pytest.mark.parametrize("case", CASES)
def test_shares_and_prior_means_are_the_difference(case: str) -> None:
    y = np.minimum(Y, 1) if "two classes" in case else Y
    weight = np.tile([1.0, 2.0, 1.0], 10)
    settings = {"kernel": RBF, "objective": None} if "kernel" not in CASES[case] else {}
    model = GPClassifier(**settings, **CASES[case]).fit(X[ROWS], y[ROWS], sample_weight=weight, row_id=ROWS)
    found = all_shares(model, QUERIES)
    prior = np.zeros(len(QUERIES))
    if "regression" in case:
        means = model._fitted.heaviest.posterior.prior_mean.numpy()
        place = np.searchsorted(model.classes_, found.classes)
        prior = means[place[:, 0]] - means[place[:, 1]]
    np.testing.assert_allclose(found.rest, prior, atol=1e-8 * max(1, np.abs(found.difference).max()))
    assert found.row_ids.shape == (len(QUERIES), len(ROWS))
    np.testing.assert_array_equal(found.labels, y[found.row_ids.astype(int)])
    np.testing.assert_array_equal(found.inputs, X[found.row_ids.astype(int)])


def test_rows_speak_for_their_own_class() -> None:
    for likelihood in ("softmax", "one_vs_each"):
        found = (
            GPClassifier(kernel=RBF, likelihood=likelihood, objective=None)
            .fit(X[ROWS], TEXT[ROWS])
            .influence(QUERIES, n=1)
        )
        assert (found.row_ids == None).all()  # noqa: E711 - elementwise
        assert (found.shares * np.where(found.labels == found.classes[:, :1], 1, -1) > 0).all()


def test_label_regression_is_that_of_the_dense_formula() -> None:
    model = GPClassifier(kernel="rbf", likelihood="gaussian").fit(X[ROWS], Y[ROWS], row_id=ROWS)
    member = model._fitted.heaviest
    scaling, noise = member.plan.scaling, member.plan.model.noise
    kernel = member.plan.kernel
    with torch.no_grad():
        a, b = (torch.from_numpy(scaling(rows)) for rows in (X[ROWS], QUERIES))
        gram, cross = kernel(a).to_dense().numpy(), kernel(b, a).to_dense().numpy()
    targets = 2.0 * np.eye(3)[Y[ROWS]] - 1
    alpha = np.linalg.solve(gram + noise * np.eye(len(ROWS)), targets - targets.mean(0))
    found = all_shares(model, QUERIES)
    first, second = found.classes.T
    expected = cross * (alpha[:, first] - alpha[:, second]).T
    by_id = np.argsort(found.row_ids.astype(int), axis=1)
    np.testing.assert_allclose(np.take_along_axis(found.shares, by_id, 1), expected, rtol=1e-6, atol=1e-8)


def test_an_average_has_the_members_shares() -> None:
    model = GPClassifier(ensemble=True).fit(np.tile(X, (2, 1))[::3], np.tile(Y, 2)[::3])
    assert len(model.members_) > 1
    found = all_shares(model, QUERIES)
    first, second = np.searchsorted(model.classes_, found.classes).T
    scaled = [
        member.plan.weight / member.plan.temperature * member.posterior.prior_mean.numpy()
        for member in model._fitted.members
    ]
    prior = sum(scaled, np.zeros(3))
    np.testing.assert_allclose(found.rest, prior[first] - prior[second], atol=1e-8 * np.abs(found.shares).max())
    fewer = GPClassifier(class_weight={0: 0.0, 1: 1.0, 2: 3.0}, kernel="rbf").fit(X[ROWS], Y[ROWS])
    found = all_shares(fewer, QUERIES)
    assert not found.shares[found.labels == 0].any()


def test_equal_rows_share_by_their_weights() -> None:
    model = FewShotClassifier().fit(X[[0, 60, 120, 0, 0]], TEXT[[0, 60, 120, 0, 0]], row_id=list("abcde"))
    model.partial_fit(X[:1], TEXT[:1], sample_weight=[3.0])
    found = all_shares(model, QUERIES)
    equal = np.isin(found.row_ids, ["a", "d", "e", None])
    by_query = found.shares[equal].reshape(len(QUERIES), 4)
    np.testing.assert_allclose(by_query[:, :1], 3 * by_query[:, 1:] @ np.full((3, 1), 1 / 3), rtol=1e-12)


@pytest.mark.parametrize(
    "name", ["ove_mean_field_pl", "ove_gibbs_pl", "cdkt_pl", "dkt", "logistic_softmax_gibbs_pl", "protonet"]
)
def test_few_shot_learners_that_are_gaussian_processes(name: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"n_chains": 3, "n_sweeps_prediction": 4} if "gibbs" in name else {}
    learner = make_learner(name, make_backbone("linear", (4,), rank=2), **options)
    save_checkpoint(tmp_path / "c", learner, {}, {"episodes": 0}, {})
    model = (
        FewShotClassifier(tmp_path / "c")
        .fit(X[ROWS], TEXT[ROWS], row_id=ROWS)
        .partial_fit(X[:1], TEXT[:1], classes=["setosa", "unseen"], row_id=[0])
    )
    if name == "protonet":
        with pytest.raises(ValueError, match="influence is known of Gaussian processes"):
            model.influence(QUERIES)
        return
    found = all_shares(model, QUERIES)
    known = (found.classes != "unseen").all(1)
    np.testing.assert_allclose(found.rest[known], 0, atol=1e-8)


@pytest.mark.parametrize("two", [True, False])
def test_a_search_averages_over_kernels(two: bool) -> None:
    model, few = KernelSearchClassifier(n_particles=3, n_rejuvenation=0, random_state=0), ROWS[::2]
    model.fit(X[few], np.minimum(Y, 1)[few] if two else Y[few], row_id=few).partial_fit(X[few[:2]], Y[few[:2]])
    found = all_shares(model, QUERIES)
    np.testing.assert_allclose(found.rest, 0, atol=1e-8)
    one = clone(model).partial_fit(X[:9], Y[:9], classes=[0, 1])
    assert not one.influence(QUERIES).shares.any()
    inducing = clone(model).set_params(n_inducing=5).fit(X[ROWS], Y[ROWS])
    with pytest.raises(ValueError, match="without n_inducing"):
        inducing.influence(QUERIES)


def test_what_has_no_influence_says_so() -> None:
    with pytest.raises(ValueError, match="TreeGPClassifier keeps means of rows"):
        TreeGPClassifier().fit(X[ROWS], Y[ROWS]).influence(QUERIES)
    with pytest.raises(ValueError, match="influence compares two classes"):
        FewShotClassifier().partial_fit(X[:5], Y[:5]).influence(QUERIES)
    with pytest.raises(ValueError, match="n must be a positive integer; got 0"):
        FewShotClassifier().fit(X[ROWS], Y[ROWS]).influence(QUERIES, n=0)


def test_precomputed_kernels_name_rows() -> None:
    model = GPClassifier(kernel="precomputed").fit(UNIT[ROWS] @ UNIT[ROWS].T, Y[ROWS], row_id=ROWS)
    found = all_shares(model, UNIT[3::11] @ UNIT[ROWS].T)
    np.testing.assert_array_equal(found.labels, Y[found.row_ids.astype(int)])


def test_columns_that_repeat_each_other_do_no_harm() -> None:
    rng = np.random.default_rng(0)
    level = rng.integers(3, size=40)
    x = np.column_stack([np.eye(3)[level], 1 - np.eye(3)[level], rng.normal(size=40)])
    y = (level == 0).astype(int)
    for likelihood in ("gaussian", "logistic"):
        model = GPClassifier(kernel="linear", likelihood=likelihood).fit(x, y)
        found = model.influence(x, n=40)
        assert np.abs(found.shares).max() < 100
        mean = model.predict_latent(x).mean
        top = np.sort(mean, axis=1)
        np.testing.assert_allclose(found.shares.sum(1) + found.rest, top[:, 1] - top[:, 0], atol=1e-8)

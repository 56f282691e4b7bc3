"""Rows that come one by one, in any order, make the posterior that all of them make at once with settings kept."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris

from sureshot import GPClassifier

X, Y = load_iris(return_X_y=True)
ORDER = np.random.default_rng(0).permutation(len(Y))
FIRST, LATER = ORDER[:45], ORDER[45:75]
CASES: dict[str, dict[str, Any]] = {
    "average": {},
    "exact": {"kernel": "rbf", "likelihood": "softmax"},
    "explicit": {"kernel": "linear", "likelihood": "softmax"},
    "more features than rows": {"kernel": "polynomial2", "likelihood": "softmax", "standardize": False},
    "inducing": {"kernel": "rbf", "likelihood": "softmax", "approximation": "inducing", "n_inducing": 12},
    "mean field": {"kernel": "rbf", "likelihood": "logistic_softmax"},
}


def same(a: GPClassifier, b: GPClassifier, tolerance: float = 1e-6) -> None:
    np.testing.assert_allclose(a.predict_proba(X), b.predict_proba(X), rtol=0, atol=tolerance)
    found, expected = a.predict_latent(X), b.predict_latent(X)
    scale = 1 + np.abs(expected.mean).max()
    np.testing.assert_allclose(found.mean, expected.mean, rtol=0, atol=tolerance * scale)
    np.testing.assert_allclose(found.variance, expected.variance, rtol=0, atol=tolerance * expected.variance.max())
    assert a.temperature_ == pytest.approx(b.temperature_, abs=1e-6)
    assert a.log_evidence_ == pytest.approx(b.log_evidence_, rel=1e-5)
    assert a.leave_one_out_score_ == pytest.approx(b.leave_one_out_score_, abs=1e-5, nan_ok=True)


@pytest.mark.parametrize("case", [case for case in CASES if case != "mean field"])
def test_one_by_one_is_all_at_once(case: str) -> None:
    fitted = GPClassifier(**CASES[case]).fit(X[FIRST], Y[FIRST])
    once, forwards, backwards = (pickle.loads(pickle.dumps(fitted)) for _ in range(3))
    once.partial_fit(X[LATER], Y[LATER])
    for row in LATER:
        forwards.partial_fit(X[[row]], Y[[row]])
    for place, row in enumerate(LATER[::-1]):
        backwards.partial_fit(X[[row]], Y[[row]])
        if place % 7 == 0:
            backwards.predict_proba(X[:1])  # asking in between changes nothing
    same(forwards, once)
    same(backwards, once)


@pytest.mark.parametrize("case", ["exact", "explicit", "more features than rows"])
def test_an_update_is_a_fit_with_the_kernel_kept(case: str) -> None:
    tuned = GPClassifier(**CASES[case]).fit(X[FIRST], Y[FIRST])
    arguments = {**CASES[case], "kernel": tuned.kernel_, "objective": None, "standardize": False}
    fitted = GPClassifier(**arguments).fit(X[FIRST], Y[FIRST])
    for row in LATER[:5]:
        fitted.partial_fit(X[[row]], Y[[row]])
    rows = np.concatenate([FIRST, LATER[:5]])
    same(fitted, clone(fitted).fit(X[rows], Y[rows]))


def test_classes_come_and_go() -> None:
    two, all_rows = FIRST[Y[FIRST] < 2], np.concatenate([FIRST, LATER])
    arguments = {"kernel": "linear", "likelihood": "softmax", "objective": None, "standardize": False}
    grown = GPClassifier(**arguments).fit(X[two], Y[two])
    for label in (2, 3):
        rows = all_rows[Y[all_rows] == 2] if label == 2 else all_rows[Y[all_rows] == 0][:3]
        grown.partial_fit(X[rows], np.full(len(rows), label))
    grown.partial_fit(X[LATER[Y[LATER] < 2]], Y[LATER[Y[LATER] < 2]])
    same(grown.forget([3]), GPClassifier(**arguments).fit(X[all_rows], Y[all_rows]))


def test_what_was_put_off_is_done_before_anything_is_said_or_stored() -> None:
    model = GPClassifier(likelihood="softmax", kernel="rbf").fit(X[FIRST], Y[FIRST])
    model.partial_fit(X[LATER], Y[LATER])
    assert np.isnan(model._fitted.log_evidence)
    copied = pickle.loads(pickle.dumps(model))
    assert copied._fitted.rest is None
    assert copied.temperature_ == model.temperature_
    assert np.isfinite([model.log_evidence_, model.leave_one_out_score_]).all()
    calibrated = model.calibrate(X, Y).temperature_
    assert model.partial_fit(X[:1], Y[:1]).temperature_ == calibrated

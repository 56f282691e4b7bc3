"""Rows that come one by one, in any order, make the posterior that all of them make at once with settings kept."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris

from sureshot import GPClassifier
from sureshot.approximations.inducing import Inducing
from sureshot.estimators.gp.leaving import features_of
from sureshot.estimators.rows.support import Support

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


@pytest.mark.parametrize("case", [case for case in CASES if case != "mean field"])
def test_one_by_one_is_all_at_once(case: str) -> None:
    fitted = GPClassifier(**CASES[case]).fit(X[FIRST], Y[FIRST])
    once, forwards, backwards = (pickle.loads(pickle.dumps(fitted)) for _ in range(3))
    later = LATER[:6] if case == "average" else LATER
    once.partial_fit(X[later], Y[later])
    for row in later:
        forwards.partial_fit(X[[row]], Y[[row]])
    for place, row in enumerate(later[::-1]):
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


@pytest.mark.parametrize("calibrated", [False, True])
def test_a_wrong_label_that_is_corrected_leaves_no_trace(tmp_path: Path, calibrated: bool) -> None:
    """Of two classes: what had been chosen for them is back when the third is gone, in a model file, too."""
    rows, labels = X[50:], np.where(Y[50:] == 1, "no", "yes")
    names = np.array([f"row {k}" for k in range(100)])
    model = GPClassifier().fit(rows[::2], labels[::2], row_id=names[::2])
    if calibrated:
        model.calibrate(rows[1::2], labels[1::2])
    expected = model.predict_proba(rows)
    assert "logistic" in {member.plan.model.likelihood for member in model._fitted.members}
    model.partial_fit(rows[[4]], ["noo"], row_id=names[[4]])
    model.save(tmp_path / "model")
    for one in (model, GPClassifier.load(tmp_path / "model")):
        one.partial_fit(rows[[4]], labels[[4]], row_id=names[[4]]).forget(classes="noo")
        np.testing.assert_allclose(one.predict_proba(rows), expected, atol=1e-6)


@pytest.mark.parametrize("inference", ["mean_field", "natural_gradient"])
def test_so_does_one_of_other_inference(inference: str) -> None:
    rows, labels = X[50:], Y[50:]
    model = GPClassifier("rbf", inference=inference).fit(rows[::2], labels[::2])
    expected, likelihood = model.predict_proba(rows), model.likelihood_
    for _ in range(2):  # the second update is one of three classes
        model.partial_fit(rows[[1]] + 0.1, [7])
    assert model.likelihood_ != likelihood
    model.forget(classes=7)
    assert model.likelihood_ == likelihood
    np.testing.assert_allclose(model.predict_proba(rows), expected, atol=1e-6)


def table(n: int, n_classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of two columns whose classes overlap."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    return rng.normal(size=(n, 2)) + 1.5 * np.column_stack([np.cos(2.1 * y), np.sin(2.1 * y)]), y


FEW: dict[str, dict[str, Any]] = {
    "softmax": {"likelihood": "softmax"},
    "regression": {"likelihood": "least_squares"},
    "logistic": {"likelihood": "logistic"},
    "exact": {"likelihood": "softmax", "approximation": "exact"},
    "average": {"kernel": "auto", "approximation": "auto"},
}


@pytest.mark.parametrize("case", FEW)
def test_rows_of_known_classes_leave_all_choices_and_make_the_posterior_of_all(case: str) -> None:
    x, y = table(320, 2 if case == "logistic" else 3)
    arguments = {"kernel": "rbf", "approximation": "inducing", "n_inducing": 30, **FEW[case]}
    model = GPClassifier(**arguments).fit(x[:300], y[:300])
    known, score = model._fitted, model.leave_one_out_score_
    model.partial_fit(x[300:302], y[300:302]).partial_fit(x[302:], y[302:])
    kept, before = model._fitted, model.predict_proba(x)
    assert (kept.temperature, kept.predictor.label_noise, model.leave_one_out_score_) == (
        known.temperature,
        known.predictor.label_noise,
        score,
    )
    assert not hasattr(model, "leave_one_out_nll_")  # which is of the rows that were fitted
    for mine, other in zip(kept.members, known.members, strict=True):
        assert mine.plan is other.plan
        rows = Support.of(kept.rows, len(kept.classes), mine.plan.scaling, torch.device("cpu"))
        inputs = rows.x
        if arguments["approximation"] == "inducing":
            assert mine.process.approximation is other.process.approximation
        elif isinstance(mine.process.approximation, Inducing):
            inputs = mine.process.approximation.inputs  # all rows
            torch.testing.assert_close(inputs, rows.x, rtol=0, atol=0)
        features = mine.process.approximation.features(inputs)
        anew = mine.plan.model.condition(features, rows.y, len(kept.classes), rows.weight).posterior
        np.testing.assert_allclose(features_of(mine.process.posterior), features, atol=1e-9)
        found, expected = (part.query(features, features.square().sum(-1)) for part in (mine.process.posterior, anew))
        for which in (0, 1):
            np.testing.assert_allclose(found[which], expected[which], atol=1e-6)
    copied = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(copied.predict_proba(x), before, rtol=1e-9)  # with variances made anew, as of a file


def test_an_update_of_a_file_is_that_of_the_model(tmp_path: Path) -> None:
    x, y = table(320)
    model = GPClassifier("rbf", "softmax", approximation="inducing", n_inducing=30).fit(x[:300], y[:300])
    model.partial_fit(x[300:302], y[300:302]).save(tmp_path / "model.safetensors")
    loaded = GPClassifier.load(tmp_path / "model.safetensors")
    for either in (model, loaded):
        either.partial_fit(x[302:303], y[302:303])
    np.testing.assert_allclose(loaded.predict_proba(x), model.predict_proba(x), atol=1e-9)
    np.testing.assert_allclose(loaded.predict_latent(x).variance, model.predict_latent(x).variance, atol=1e-9)


def test_corrections_keep_what_calibrate_has_set() -> None:
    x, y = table(400)
    model = GPClassifier("rbf", "softmax", approximation="inducing", n_inducing=30)
    model.fit(x, y, row_id=np.arange(400))
    calibrated = model.calibrate(x[:20], y[:20]).temperature_
    model.partial_fit(x[:1], (y[:1] + 1) % 3, row_id=[0]).forget(rows=[7])
    assert model.partial_fit(x[400 - 1 :] + 3, [3]).temperature_ == calibrated


@pytest.mark.parametrize("announced", [False, True])
def test_a_class_that_comes_is_reached_by_inducing_inputs_and_a_temperature(announced: bool) -> None:
    x, y = table(400)
    model = GPClassifier("rbf", "softmax", approximation="inducing", n_inducing=30).fit(x, y)
    if announced:
        model.partial_fit(x[:1], y[:1], classes=[9])
    known = model._fitted
    rng = np.random.default_rng(1)
    new = rng.normal(size=(8, 2)) * 0.3 + [9.0, -9.0]  # where no input was
    model.partial_fit(new, [9] * 8)
    assert (model.predict(new + 0.01) == 9).all()
    now, before = (fitted.heaviest.process.approximation for fitted in (model._fitted, known))
    assert isinstance(now, Inducing)
    assert isinstance(before, Inducing)
    assert not torch.equal(now.inputs, before.inputs)
    assert model.temperature_ != known.temperature
    assert np.isfinite([model.log_evidence_, model.leave_one_out_nll_]).all()


def test_settings_that_rows_have_outgrown_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Once for each time that rows or classes have doubled; a model file knows by how many they were chosen."""
    two = ORDER[Y[ORDER] < 2]
    model = GPClassifier(kernel="rbf", likelihood="softmax").fit(X[two[:10]], Y[two[:10]])
    model.partial_fit(X[two[10:19]], Y[two[10:19]])
    assert not caplog.messages
    model.save(tmp_path / "model")
    model = GPClassifier.load(tmp_path / "model").partial_fit(X[two[19:21]], Y[two[19:21]])
    model.predict_proba(X)
    (said,) = caplog.messages
    assert "chosen by 10 rows of 2 classes, and there are 21 of 2 now: retune=True" in said
    model.partial_fit(X[two[21:30]], Y[two[21:30]])
    assert len(caplog.messages) == 1
    model.partial_fit(X[two[30:40]], Y[two[30:40]], retune=True)
    model.partial_fit(X[two[40:45]], Y[two[40:45]]).forget([1])
    assert len(caplog.messages) == 1
    stated = GPClassifier(kernel="rbf", objective=None).fit(X[two[:10]], Y[two[:10]])
    stated.partial_fit(X, Y)
    assert len(caplog.messages) == 1
    few = GPClassifier(kernel="rbf").fit(X[two[:40]], Y[two[:40]])
    few.partial_fit(np.concatenate([X[Y == 2][:3], X[:3] + 9]), [2, 2, 2, 3, 3, 3])
    assert "chosen by 40 rows of 2 classes, and there are 46 of 4 now" in caplog.messages[-1]


def test_what_calibrate_has_set_stays_in_proportion_when_settings_are_chosen_anew() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 60)
    x = rng.normal(size=(60, 3)) + y[:, None]
    for changed in ({"X": x[:2] + 0.1, "y": y[:2], "retune": True}, {"X": [[1e6, 0, 0]], "y": [0]}):
        model, alone = (GPClassifier("linear").fit(x, y) for _ in range(2))
        usual = model.temperature_
        ratio = model.calibrate(x, rng.permutation(y)).temperature_ / usual
        assert ratio > 1.2
        model.partial_fit(**changed)  # type: ignore[arg-type]
        alone.partial_fit(**changed)  # type: ignore[arg-type]
        assert model.temperature_ == pytest.approx(ratio * alone.temperature_)
        assert model._fitted.calibrated

"""What model files of `GPClassifier` hold, how large they are, and what files without rows can do."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_iris

from sureshot import FewShotClassifier, GPClassifier
from sureshot.estimators.saved import load_classifier
from sureshot.persistence import ArtifactError, load_artifact, save_artifact

X, Y = load_iris(return_X_y=True)
TRAIN, TWO = slice(None, None, 5), Y < 2
CASES: dict[str, tuple[dict[str, Any], bool]] = {  # arguments, whether of two classes
    "average": ({}, False),
    "logistic": ({"kernel": "rbf", "likelihood": "logistic", "predictive": "integral"}, True),
    "regression": ({"kernel": "rbf", "likelihood": "gaussian", "predictive": "integral"}, False),
    "softmax": ({"kernel": "rbf", "likelihood": "softmax", "predictive": "integral"}, False),
    "explicit": ({"kernel": "linear"}, False),
    "inducing": ({"kernel": "rbf", "approximation": "inducing", "n_inducing": 9}, False),
    "mean field": ({"kernel": "rbf", "likelihood": "logistic_softmax"}, False),
    "natural gradients": (
        {"kernel": "rbf", "inference": "natural_gradient", "approximation": "inducing", "n_inducing": 9},
        False,
    ),
    "chains": ({"kernel": "rbf", "likelihood": "logistic", "inference": "gibbs", "n_chains": 3, "n_sweeps": 5}, True),
}


def fitted(case: str) -> tuple[GPClassifier, np.ndarray]:
    arguments, of_two = CASES[case]
    x, y = (X[TWO], Y[TWO]) if of_two else (X, Y)
    return GPClassifier(**arguments).fit(x[TRAIN], y[TRAIN]), x


@pytest.mark.parametrize("case", CASES)
def test_with_and_without_rows(case: str, tmp_path: Path) -> None:
    model, x = fitted(case)
    model.save(tmp_path / "whole")
    model.save(tmp_path / "compact", compact=True)
    whole, compact = load_classifier(tmp_path / "whole"), load_classifier(tmp_path / "compact")
    for loaded, tolerance in ((whole, 0.0), (compact, 1e-10)):
        np.testing.assert_allclose(loaded.predict_proba(x), model.predict_proba(x), rtol=0, atol=tolerance)
        found, expected = loaded.predict_latent(x), model.predict_latent(x)
        np.testing.assert_allclose(found.mean, expected.mean, rtol=0, atol=tolerance)
        np.testing.assert_allclose(found.variance, expected.variance, rtol=0, atol=tolerance * expected.variance.max())
        np.testing.assert_allclose(loaded.uncertainty(x).total, model.uncertainty(x).total, rtol=0, atol=tolerance)
        np.testing.assert_array_equal(loaded.class_prior_, model.class_prior_)
    np.testing.assert_array_equal(whole.outlier_score(x), model.outlier_score(x))
    names = set(load_artifact(tmp_path / "compact").arrays)
    assert not {"rows.x", "rows.y", "rows.weight"} & names
    compact.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "compact").read_bytes()


def test_updates_after_loading_are_those_before(tmp_path: Path) -> None:
    model, _ = fitted("softmax")
    model.partial_fit(X[1:2], [7], sample_weight=[2.5]).save(tmp_path / "whole")
    loaded = load_classifier(tmp_path / "whole")
    for each in (model, loaded):
        each.partial_fit(X[2:4], Y[2:4], classes=[9])
    np.testing.assert_allclose(loaded.predict_latent(X).variance, model.predict_latent(X).variance, rtol=1e-11)


def test_an_announced_class_is_in_a_compact_file(tmp_path: Path) -> None:
    model, _ = fitted("softmax")
    model.partial_fit(X[1:2], Y[1:2], classes=[9]).save(tmp_path / "compact", compact=True)
    loaded = GPClassifier.load(tmp_path / "compact")
    np.testing.assert_allclose(loaded.predict_latent(X).variance, model.predict_latent(X).variance, rtol=1e-9)


def test_a_compact_model_refuses_what_needs_rows(tmp_path: Path) -> None:
    model, _ = fitted("explicit")
    model.save(tmp_path / "compact", compact=True)
    loaded = GPClassifier.load(tmp_path / "compact")
    before = loaded.predict_proba(X)
    for call in (
        lambda: loaded.partial_fit(X[:1], Y[:1]),
        lambda: loaded.forget([0]),
        lambda: loaded.outlier_score(X),
        lambda: loaded.set_class_prior("auto"),
    ):
        with pytest.raises(ValueError, match="needs the labelled rows, and this model was saved compact"):
            call()
    np.testing.assert_array_equal(loaded.predict_proba(X), before)
    assert loaded.calibrate(X, Y).set_class_prior("uniform").adapt_prior(X).fit(X, Y).partial_fit(X[:1], Y[:1])


def test_variances_of_many_classes_are_left_out(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(240) % 60
    x = rng.normal(size=(60, 120))[y] + 0.3 * rng.normal(size=(240, 120))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    model = GPClassifier("cosine", likelihood="softmax").fit(x, y)
    model.save(tmp_path / "compact", compact=True)
    loaded = GPClassifier.load(tmp_path / "compact")
    np.testing.assert_array_equal(loaded.predict_proba(x), model.predict_proba(x))
    with pytest.raises(ValueError, match="without the variances of its latents"):
        loaded.predict_latent(x)
    assert (tmp_path / "compact").stat().st_size < 1.3 * 8 * 60 * 121


def test_other_estimators_predict_from_rows(tmp_path: Path) -> None:
    model = FewShotClassifier().fit(X[TRAIN], Y[TRAIN])
    with pytest.raises(ArtifactError, match="FewShotClassifier cannot be saved compact: it predicts from the rows"):
        model.save(tmp_path / "model", compact=True)
    assert not (tmp_path / "model").exists()


def test_coupled_classes_have_no_compact_form(tmp_path: Path) -> None:
    model = GPClassifier("rbf", "one_vs_each", "gibbs", predictive="integral", n_chains=2, n_sweeps=3)
    with pytest.raises(ArtifactError, match="labelled rows couple its classes"):
        model.fit(X[TRAIN], Y[TRAIN]).save(tmp_path / "model", compact=True)


def test_a_file_takes_little_more_than_its_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1600, 10))
    y = (x[:, 0] > 0).astype(int) + (x[:, 1] > 0)
    GPClassifier("rbf", "softmax", n_inducing=200, objective=None).fit(x, y).save(tmp_path / "model")
    assert (tmp_path / "model").stat().st_size < 2 * x.nbytes
    halves = GPClassifier("rbf", "softmax", n_inducing=200, objective=None).fit(x.astype(np.float16), y)
    halves.save(tmp_path / "halves")
    assert (tmp_path / "halves").stat().st_size < x.nbytes


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("members.0.posterior.coefficients", lambda a: a[:, :2]),
        ("members.0.posterior.prior_mean", lambda a: a[:2]),
        ("members.0.posterior.reduction", lambda a: a[0]),
        ("members.0.posterior.reduction", lambda a: a[:, :, 1:]),
        ("weight_of_class", lambda a: -a),
        ("weight_of_class", lambda a: a[:1]),
        ("members.0.feature_map.inducing", lambda a: a[:, :1]),
    ],
)
def test_malformed_compact_files(name: str, change: Any, tmp_path: Path) -> None:
    model, _ = fitted("softmax")
    model.save(tmp_path / "good", compact=True)
    good = load_artifact(tmp_path / "good")
    arrays = {**good.arrays, name: np.ascontiguousarray(change(good.arrays[name]))}
    save_artifact(tmp_path / "bad", good.kind, good.header, arrays)
    with pytest.raises(ArtifactError):
        GPClassifier.load(tmp_path / "bad")


class Size(StrEnum):
    """Labels that are text of another class."""

    SMALL = "small"
    LARGE = "large"


@pytest.mark.parametrize(
    "arguments",
    [
        {"class_prior": pd.Series({"small": 1, "large": 3})},
        {"class_prior": torch.tensor([1.0, 3.0])},
        {"class_prior": [1, 3]},
        {"class_weight": {Size.SMALL: 1, Size.LARGE: 2}},
        {"device": torch.device("cpu")},
    ],
    ids=str,
)
def test_whatever_can_be_stated_can_be_saved(arguments: dict[str, Any], tmp_path: Path) -> None:
    X, y = np.random.default_rng(0).normal(size=(8, 2)), [Size.SMALL, Size.LARGE] * 4
    model = GPClassifier("rbf", **arguments).fit(X, y)
    model.save(tmp_path / "m")
    loaded = GPClassifier.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert loaded.classes_.tolist() == ["large", "small"]
    loaded.partial_fit(X[:1], ["small"])


def test_arguments_that_were_changed_after_a_fit_hold_for_updates_of_a_file_too(tmp_path: Path) -> None:
    X, y = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30) % 3
    model = GPClassifier("rbf", objective=None).fit(X, y, row_id=range(30))
    model.set_params(class_weight={0: 10, 1: 1, 2: 1}).save(tmp_path / "m")
    loaded = GPClassifier.load(tmp_path / "m")
    for one in (model, loaded):
        one.partial_fit(X[:1], y[:1], row_id=[0])  # nothing new but the argument
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))

"""What model files of `GPClassifier` hold, and how large they are."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_iris

from sureshot import GPClassifier
from sureshot.estimators.saved import load_estimator
from sureshot.persistence import ArtifactError, load_artifact, save_artifact

X, Y = load_iris(return_X_y=True)
TRAIN, TWO = slice(None, None, 5), Y < 2
CASES: dict[str, tuple[dict[str, Any], bool]] = {  # arguments, whether of two classes
    "average": ({}, False),
    "logistic": ({"kernel": "rbf", "likelihood": "logistic", "predictive": "integral"}, True),
    "regression": ({"kernel": "rbf", "likelihood": "least_squares", "predictive": "integral"}, False),
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
def test_a_loaded_model_is_the_saved_one(case: str, tmp_path: Path) -> None:
    model, x = fitted(case)
    model.save(tmp_path / "model")
    loaded = load_estimator(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(x), model.predict_proba(x))
    found, expected = loaded.predict_latent(x), model.predict_latent(x)
    np.testing.assert_array_equal(found.mean, expected.mean)
    np.testing.assert_array_equal(found.variance, expected.variance)
    np.testing.assert_array_equal(loaded.uncertainty(x).total, model.uncertainty(x).total)
    np.testing.assert_array_equal(loaded.class_prior_, model.class_prior_)
    np.testing.assert_array_equal(loaded.outlier_score(x), model.outlier_score(x))
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()


def test_updates_after_loading_are_those_before(tmp_path: Path) -> None:
    model, _ = fitted("softmax")
    model.partial_fit(X[1:2], [7], sample_weight=[2.5]).save(tmp_path / "whole")
    loaded = load_estimator(tmp_path / "whole")
    for each in (model, loaded):
        each.partial_fit(X[2:4], Y[2:4], classes=[9])
    np.testing.assert_allclose(loaded.predict_latent(X).variance, model.predict_latent(X).variance, rtol=1e-11)


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
        ("members.0.coefficients", lambda a: a[:, :2]),
        ("members.0.prior_mean", lambda a: a[:2]),
    ],
)
def test_malformed_arrays(name: str, change: Any, tmp_path: Path) -> None:
    model, _ = fitted("softmax")
    model.save(tmp_path / "good")
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

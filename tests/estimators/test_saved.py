"""Saved classifiers of every estimator, found by what the file says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpytorch.kernels import MaternKernel, ScaleKernel
from sklearn.datasets import load_iris

import sureshot
from sureshot.estimators import saved
from sureshot.estimators.few_shot.classifier import FewShotClassifier
from sureshot.estimators.gp.classifier import GPClassifier
from sureshot.estimators.saved import check_estimator, load_estimator
from sureshot.estimators.search.classifier import KernelSearchClassifier
from sureshot.estimators.tree.classifier import TreeGPClassifier
from sureshot.kernels import Matern
from sureshot.meta.learners import make_learner
from sureshot.meta.training.checkpoint import KIND as CHECKPOINT
from sureshot.meta.training.checkpoint import save_checkpoint
from sureshot.networks.backbones import make_backbone
from sureshot.persistence import Artifact, ArtifactError, load_artifact, save_artifact


@pytest.mark.parametrize("model", [GPClassifier(kernel="rbf", objective=None), FewShotClassifier()])
def test_what_was_saved_comes_back(model: GPClassifier | FewShotClassifier, tmp_path: Path) -> None:
    X, y = load_iris(return_X_y=True)
    model.fit(X[::10], y[::10]).save(tmp_path / "model")
    loaded = load_estimator(tmp_path / "model")
    assert type(loaded) is type(model)
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_the_package_loads_any_model(tmp_path: Path) -> None:
    X, y = load_iris(return_X_y=True)
    for model in (GPClassifier(kernel="rbf", objective=None), TreeGPClassifier()):
        model.fit(X[::10], y[::10]).save(tmp_path / "model")
        loaded = sureshot.load(tmp_path / "model")
        assert type(loaded) is type(model)
        np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("few_shot_learner", "is a meta-trained learner, which knows no rows yet"),
        ("deep_classifier", r"is a trained network, which `sureshot.deep.load_deep_classifier` reads"),
        ("shopping_list", "holds 'shopping_list', which is no estimator"),
    ],
)
def test_what_holds_no_classifier_says_what_it_is(kind: str, message: str, tmp_path: Path) -> None:
    save_artifact(tmp_path / "model", kind, {}, {"a": np.zeros(1)})
    with pytest.raises(ArtifactError, match=message):
        sureshot.load(tmp_path / "model")
    with pytest.raises(ArtifactError, match="there is no file"):
        sureshot.load(tmp_path / "none")


def test_every_estimator_with_files_of_its_own_is_known() -> None:
    assert {
        kind: f"{one.__module__}.{one.__name__}" for kind, one in saved.estimators_with_files().items()
    } == saved.PLACES
    with pytest.raises(ArtifactError, match="meta-trained"):
        check_estimator(Artifact("a", CHECKPOINT, "1", {}, {}))


@pytest.mark.parametrize("weights", [[0.5, 0.4], [1.0, 0.0], [0.5, "0.5"], [0.5]])
def test_weights_of_members_that_are_none(weights: list[Any], tmp_path: Path) -> None:
    X, y = load_iris(return_X_y=True)
    GPClassifier().fit(X[::5], y[::5]).save(tmp_path / "model")
    found = load_artifact(tmp_path / "model")
    first = found.header["members"][0]
    members = [{**first, "plan": {**first["plan"], "weight": weight}} for weight in weights]
    arrays = dict(found.arrays)
    for place in range(1, len(weights)):
        own = {name: array for name, array in found.arrays.items() if name.startswith("members.0.")}
        arrays |= {name.replace("members.0.", f"members.{place}."): array for name, array in own.items()}
    save_artifact(tmp_path / "bad", found.kind, {**found.header, "members": members}, arrays)
    with pytest.raises(ArtifactError, match="weight"):
        load_estimator(tmp_path / "bad")


def test_scores_of_left_out_rows_come_back(tmp_path: Path) -> None:
    X, y = load_iris(return_X_y=True)
    model = GPClassifier(kernel="rbf", likelihood="least_squares").fit(X[::10], y[::10])
    model.save(tmp_path / "model")
    found = load_artifact(tmp_path / "model")
    assert GPClassifier.of_artifact(found).leave_one_out_nll_ == model.leave_one_out_nll_
    for bad in ("text", [1.0], {"accuracy": 1.0}, {"accuracy": None, "balanced_accuracy": 1.0, "nll": 0.0}):
        save_artifact(tmp_path / "bad", found.kind, {**found.header, "left_out": bad}, found.arrays)
        with pytest.raises(ArtifactError, match="left_out"):
            GPClassifier.load(tmp_path / "bad")


def test_a_checkpoint_is_no_classifier_yet(tmp_path: Path) -> None:
    path = tmp_path / "best.safetensors"
    save_checkpoint(path, make_learner("protonet", make_backbone("identity", (4,))), {}, {"episodes": 0}, {})
    with pytest.raises(ArtifactError, match="knows no rows yet: teach it some with `sureshot fit DATA --checkpoint"):
        load_estimator(path)


def test_other_files_of_the_package(tmp_path: Path) -> None:
    save_artifact(tmp_path / "other", "posterior", {}, {})
    with pytest.raises(ArtifactError, match="holds 'posterior', which is no estimator"):
        load_estimator(tmp_path / "other")


@pytest.mark.parametrize(
    ("fitted_with", "changed"),
    [
        ({}, {"strategy": "session"}),
        ({}, {"strategy": "none such"}),
        ({}, {"kernel": "cosine"}),
        ({"strategy": "session"}, {"base_scale": 0.2}),
        ({"strategy": "rebuild", "kernel": "cosine"}, {"strategy": "recommended"}),
    ],
)
def test_a_tree_is_saved_as_it_was_learnt(fitted_with: dict[str, Any], changed: dict[str, Any], tmp_path: Path) -> None:
    X, y = load_iris(return_X_y=True)
    model = TreeGPClassifier(**fitted_with).fit(X[::5], y[::5])
    model.set_params(**changed).save(tmp_path / "model")
    loaded = TreeGPClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert loaded.get_params() == model.get_params()
    assert loaded._fitted.strategy == model._fitted.strategy


@pytest.mark.parametrize("weights", [{0: 0.0, 1: 1.0, 2: 1.0}, {0: 10.0, 1: 1.0, 2: 1.0}, "balanced"])
def test_weights_of_classes_that_changed_later_change_no_file(weights: Any, tmp_path: Path) -> None:
    X, y = load_iris(return_X_y=True)
    model = GPClassifier(kernel="rbf", class_weight={0: 2.0, 1: 1.0, 2: 1.0}).fit(X[::5], y[::5])
    model.set_params(class_weight=weights).save(tmp_path / "model")
    loaded = GPClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(loaded.class_prior_, model.class_prior_)
    np.testing.assert_array_equal(loaded.uncertainty(X).total, model.uncertainty(X).total)
    assert loaded.class_weight == weights


@pytest.mark.parametrize("kernel", [ScaleKernel(MaternKernel(nu=1.5, ard_num_dims=4)), 2.0 * Matern(1.5, 2.0)])
def test_a_kernel_that_was_given_is_given_again(kernel: Any, tmp_path: Path) -> None:
    X, y = load_iris(return_X_y=True)
    model = GPClassifier(kernel=kernel).fit(X[::5], y[::5])
    model.save(tmp_path / "model")
    loaded = GPClassifier.load(tmp_path / "model")
    expected = model.predict_proba(X)
    np.testing.assert_array_equal(loaded.predict_proba(X), expected)
    np.testing.assert_array_equal(loaded.fit(X[::5], y[::5]).predict_proba(X), expected)


def test_a_file_asks_for_no_device(tmp_path: Path) -> None:
    X, y = load_iris(return_X_y=True)
    model = GPClassifier(kernel="rbf", objective=None).fit(X[::5], y[::5])
    model.set_params(device="cuda").save(tmp_path / "model")
    GPClassifier.load(tmp_path / "model").partial_fit(X[1:3], y[1:3])


@pytest.mark.parametrize(
    ("model", "wrong"),
    [(TreeGPClassifier(), {"strategy": "none such"}), (KernelSearchClassifier(n_particles=4), {"n_particles": -1})],
)
def test_updates_name_arguments_that_say_nothing(model: Any, wrong: dict[str, Any]) -> None:
    X, y = load_iris(return_X_y=True)
    before = model.fit(X[::5], y[::5]).predict_proba(X)
    with pytest.raises(ValueError, match=next(iter(wrong))):
        model.set_params(**wrong).partial_fit(X[1:3], y[1:3])
    np.testing.assert_array_equal(model.predict_proba(X), before)

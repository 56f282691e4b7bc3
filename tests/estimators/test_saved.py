"""Saved classifiers of every estimator, found by what the file says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris

from sureshot.estimators.classifier import GPClassifier
from sureshot.estimators.few_shot import FewShotClassifier
from sureshot.estimators.saved import load_classifier
from sureshot.meta.learners import make_learner
from sureshot.meta.training.checkpoint import save_checkpoint
from sureshot.networks.backbones import make_backbone
from sureshot.persistence import ArtifactError, load_artifact, save_artifact


@pytest.mark.parametrize("model", [GPClassifier(kernel="rbf", objective=None), FewShotClassifier()])
def test_what_was_saved_comes_back(model: GPClassifier | FewShotClassifier, tmp_path: Path) -> None:
    X, y = load_iris(return_X_y=True)
    model.fit(X[::10], y[::10]).save(tmp_path / "model")
    loaded = load_classifier(tmp_path / "model")
    assert type(loaded) is type(model)
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_older_files_mask_the_classes_of_a_softmax(tmp_path: Path) -> None:
    X, y = load_iris(return_X_y=True)
    model = GPClassifier(kernel="rbf", likelihood="softmax", predictive="integral").fit(X[::10], y[::10])
    model.partial_fit(X[:1], y[:1], classes=[3]).save(tmp_path / "new")
    new, old = load_artifact(tmp_path / "new"), tmp_path / "old"
    assert new.header["posterior"] == "softmax_with_prior"

    def write_old(mask: list[bool]) -> None:
        arrays = {**new.arrays, "posterior.present": np.array(mask)}
        save_artifact(old, new.kind, {**new.header, "posterior": "softmax"}, arrays)

    write_old([True, True, True, False])
    np.testing.assert_array_equal(load_classifier(old).predict_proba(X), model.predict_proba(X))
    write_old([True, True, False])
    with pytest.raises(ArtifactError, match="the mask does not fit the classes"):
        load_classifier(old)


def test_a_checkpoint_is_no_classifier_yet(tmp_path: Path) -> None:
    path = tmp_path / "best.safetensors"
    save_checkpoint(path, make_learner("protonet", make_backbone("identity", (4,))), {}, {"episodes": 0}, {})
    with pytest.raises(ArtifactError, match="knows no classes yet: teach it some with `sureshot fit DATA --checkpoint"):
        load_classifier(path)


def test_other_files_of_the_package(tmp_path: Path) -> None:
    save_artifact(tmp_path / "other", "posterior", {}, {})
    with pytest.raises(ArtifactError, match="holds 'posterior', which is no classifier"):
        load_classifier(tmp_path / "other")

"""A new likelihood, learner, backbone, incremental baseline or estimator is one file."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sureshot
from sureshot.likelihoods import LIKELIHOODS, Likelihood
from sureshot.members import members

ADDED = {
    "likelihoods/mirrored.py": """
from sureshot.likelihoods.logistic import Logistic

class Mirrored(Logistic):
    name = "mirrored"
""",
    "meta/baselines/nearest.py": """
from sureshot.meta.baselines.prototypical import ProtoNet

class Nearest(ProtoNet):
    name = "nearest"
""",
    "incremental/baselines/farthest.py": """
from sureshot.incremental.baselines.nearest_class_mean import NearestClassMean

class Farthest(NearestClassMean):
    name = "farthest"
""",
    "networks/backbones/doubled.py": """
from sureshot.networks.backbones.base import Backbone

class Doubled(Backbone):
    name = "doubled"

    def __init__(self, input_shape):
        super().__init__(input_shape, input_shape[0], {})

    def encode(self, x):
        return 2 * x
""",
    "estimators/renamed.py": """
from dataclasses import replace

from sureshot.estimators.gp.classifier import GPClassifier

class Renamed(GPClassifier):
    _formats = (replace(GPClassifier._formats[0], kind="renamed"),)
""",
}

USE = """
import numpy as np, torch
from sureshot import GPClassifier
from sureshot.estimators.renamed import Renamed
from sureshot.estimators.saved import load_estimator
from sureshot.meta.learners import LEARNER_NAMES, make_learner
from sureshot.networks.backbones import make_backbone

x = np.random.default_rng(0).normal(size=(30, 2))
y = (x[:, 0] > 0).astype(int)
options = dict(kernel="rbf", inference="mean_field", objective=None)
new = Renamed(likelihood="mirrored", **options).fit(x, y)
old = GPClassifier(likelihood="logistic", **options).fit(x, y)
assert new.likelihood_ == "mirrored"
np.testing.assert_array_equal(new.predict_proba(x), old.predict_proba(x))
np.testing.assert_array_equal(new.predict_latent(x).mean, old.predict_latent(x).mean)
assert GPClassifier(kernel="rbf", likelihood="mirrored", objective=None).fit(x, y).inference_ == "mean_field"
try:
    GPClassifier(likelihood="mirrored").fit(x, [0, 1, 2] * 10)
except ValueError as error:
    assert "likelihood='mirrored' is for two classes" in str(error)
new.save("model")
assert type(load_estimator("model")) is Renamed
assert "nearest" in LEARNER_NAMES
from sureshot.evaluation.methods import METHOD_NAMES, make_method
assert "farthest" in METHOD_NAMES
assert make_method("farthest", scale=2.0).fit(x, y).partial_fit(x[:1], [5]).classes_.tolist() == [0, 1, 5]
learner = make_learner("nearest", make_backbone("doubled", (3,)))
assert learner.backbone(torch.ones(1, 3)).tolist() == [[2.0, 2.0, 2.0]]
"""


def test_a_file_that_is_dropped_in_is_a_member(tmp_path: Path) -> None:
    package = tmp_path / "sureshot"
    shutil.copytree(Path(sureshot.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in ADDED.items():
        (package / name).write_text(text)
    run = subprocess.run([sys.executable, "-c", USE], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_names_are_those_that_classes_state_in_alphabetical_order() -> None:
    assert list(LIKELIHOODS) == sorted(LIKELIHOODS)
    assert all(kind.name == name for name, kind in LIKELIHOODS.items())


def test_a_name_of_two_classes_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"two classes have the name 'twin': .*; give one of them another"):
        members(Likelihood, "sureshot.likelihoods", lambda kind: "twin")

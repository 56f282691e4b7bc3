"""Saved classifiers, whichever estimator wrote them."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

from sureshot.members import members
from sureshot.persistence import Artifact, ArtifactError, load_artifact

if TYPE_CHECKING:
    from sureshot.estimators.base import IncrementalClassifier
    from sureshot.estimators.fitted import Format

_PLACES = {
    "gp_classifier": "sureshot.estimators.classifier.GPClassifier",
    "few_shot_classifier": "sureshot.estimators.few_shot.FewShotClassifier",
    "kernel_search_classifier": "sureshot.estimators.search.KernelSearchClassifier",
    "tree_gp_classifier": "sureshot.estimators.tree.TreeGPClassifier",
}
"""Estimators by what their files say they hold; of these only the one that is needed is imported."""

_OTHERS = {
    "few_shot_learner": "a meta-trained learner, which knows no classes yet: teach it some with `sureshot fit DATA "
    "--checkpoint {path}`, or `FewShotClassifier(checkpoint)` in Python",
    "deep_classifier": "a trained network, which `sureshot.deep.load_deep_classifier` reads",
}
"""What other files of ours hold, and what to do with them."""


def load_classifier(path: str | os.PathLike[str]) -> IncrementalClassifier:
    """Read the model in a file that the `save` of any estimator wrote.

    ``sureshot.load`` is this function. Reading executes nothing; predictions are those of the estimator that was saved.

    Raises
    ------
    ArtifactError
        A ValueError, if there is no such file, if it is damaged or of another program, or if it holds something else,
        such as a meta-trained learner: then it says what.
    """
    return classifier_of(load_artifact(path))


def check_classifier(artifact: Artifact) -> None:
    """Refuse what is no classifier (`ArtifactError`)."""
    if artifact.kind in _OTHERS:
        raise ArtifactError(f"{artifact.path} is {_OTHERS[artifact.kind].format(path=artifact.path)}.")
    if artifact.kind not in _PLACES and artifact.kind not in classifiers():
        raise ArtifactError(f"{artifact.path} holds {artifact.kind[:40]!r}, which is no classifier.")


def classifier_of(artifact: Artifact) -> IncrementalClassifier:
    """The model in a file that has been read."""
    check_classifier(artifact)
    return _classifier(artifact.kind).of_artifact(artifact)


def classifiers() -> dict[str, type[IncrementalClassifier]]:
    """Every estimator that writes files, by what these say they hold."""
    from sureshot.estimators.base import IncrementalClassifier

    return members(IncrementalClassifier, "sureshot.estimators", _kind_of_file)


def _classifier(kind: str) -> type[IncrementalClassifier]:
    if kind not in _PLACES:
        return classifiers()[kind]
    module, name = _PLACES[kind].rsplit(".", 1)
    found: type[IncrementalClassifier] = getattr(import_module(module), name)
    return found


def _kind_of_file(kind: type) -> str | None:
    """What the files say that an estimator writes; None for a class without files of its own."""
    own: Format | None = vars(kind).get("_format")
    return None if own is None else own.kind

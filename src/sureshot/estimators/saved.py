"""Saved classifiers, whichever estimator wrote them."""

from __future__ import annotations

import os
import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING

from sureshot.persistence import Artifact, ArtifactError, load_artifact

if TYPE_CHECKING:
    from sureshot.estimators.classes.classifier_base import IncrementalClassifier

PLACES = {
    "gp_classifier": "sureshot.estimators.gp.classifier.GPClassifier",
    "few_shot_classifier": "sureshot.estimators.few_shot.classifier.FewShotClassifier",
    "few_shot_gp_classifier": "sureshot.estimators.few_shot.classifier.FewShotClassifier",
    "kernel_search_classifier": "sureshot.estimators.search.classifier.KernelSearchClassifier",
    "tree_gp_classifier": "sureshot.estimators.tree.classifier.TreeGPClassifier",
}
"""Estimators by what their files say they hold; of these only the one that is needed is imported."""

_OTHERS = {
    "few_shot_learner": "a meta-trained learner, which knows no classes yet: teach it some with `sureshot fit DATA "
    "--checkpoint {path}`, or `FewShotClassifier(checkpoint)` in Python",
    "deep_classifier": "a trained network, which `sureshot.deep.load_deep_classifier` reads",
}
"""What other files of ours hold, and what to do with them."""


def load_classifier(path: str | os.PathLike[str]) -> IncrementalClassifier:
    """Read the model in a file that the `save` of any estimator wrote; ``sureshot.load`` is this function.

    Parameters
    ----------
    path : path
        The file. Reading it executes nothing.

    Returns
    -------
    estimator
        Its predictions are those of the estimator that was saved.

    Raises
    ------
    ArtifactError
        A ValueError: if there is no such file, if it is damaged, or if it holds something else, such as a meta-trained
        learner.
    """
    return classifier_of(load_artifact(path))


def check_classifier(artifact: Artifact) -> None:
    """Refuse what is no classifier (`ArtifactError`)."""
    if artifact.kind in _OTHERS:
        raise ArtifactError(f"{artifact.path} is {_OTHERS[artifact.kind].format(path=artifact.path)}.")
    if artifact.kind not in PLACES and artifact.kind not in classifiers():
        raise ArtifactError(f"{artifact.path} holds {artifact.kind[:40]!r}, which is no classifier.")


def classifier_of(artifact: Artifact) -> IncrementalClassifier:
    """The model in a file that has been read."""
    check_classifier(artifact)
    if artifact.kind not in PLACES:
        return classifiers()[artifact.kind].of_artifact(artifact)
    module, name = PLACES[artifact.kind].rsplit(".", 1)
    found: type[IncrementalClassifier] = getattr(import_module(module), name)
    return found.of_artifact(artifact)


def classifiers() -> dict[str, type[IncrementalClassifier]]:
    """Every estimator that has files of its own, by what these say they hold; all modules are imported for it."""
    from sureshot import estimators
    from sureshot.estimators.classes.classifier_base import IncrementalClassifier

    names = [info.name for info in pkgutil.walk_packages(estimators.__path__, "sureshot.estimators.")]
    found = {kind for name in names for kind in vars(import_module(name)).values() if isinstance(kind, type)}
    own = (kind for kind in found if issubclass(kind, IncrementalClassifier) and "_formats" in vars(kind))
    return {form.kind: kind for kind in own for form in kind._formats}

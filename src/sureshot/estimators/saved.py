"""Saved estimators, whichever of them wrote the file."""

from __future__ import annotations

import os
import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING

from sureshot.persistence import Artifact, ArtifactError, load_artifact

if TYPE_CHECKING:
    from sureshot.estimators.base import IncrementalEstimator

PLACES = {
    "gp_classifier": "sureshot.estimators.gp.classifier.GPClassifier",
    "few_shot_classifier": "sureshot.estimators.few_shot.classifier.FewShotClassifier",
    "few_shot_gp_classifier": "sureshot.estimators.few_shot.classifier.FewShotClassifier",
    "few_shot_regressor": "sureshot.estimators.few_shot.regressor.FewShotRegressor",
    "gp_regressor": "sureshot.estimators.gp.regressor.GPRegressor",
    "kernel_search_classifier": "sureshot.estimators.search.classifier.KernelSearchClassifier",
    "kernel_search_regressor": "sureshot.estimators.search.regressor.KernelSearchRegressor",
    "tree_gp_classifier": "sureshot.estimators.tree.classifier.TreeGPClassifier",
}
"""Estimators by what their files say they hold; of these only the one that is needed is imported."""

_OTHERS = {
    "few_shot_learner": "a meta-trained learner, which knows no rows yet: teach it some with `sureshot fit DATA "
    "--checkpoint {path}`, or in Python `FewShotClassifier(checkpoint)`, of numbers `FewShotRegressor(checkpoint)`",
    "deep_classifier": "a trained network, which `sureshot.deep.load_deep_classifier` reads",
}
"""What other files of ours hold, and what to do with them."""


def load_estimator(path: str | os.PathLike[str]) -> IncrementalEstimator:
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
    return estimator_of(load_artifact(path))


def check_estimator(artifact: Artifact) -> None:
    """Refuse what is no estimator (`ArtifactError`), by its name alone where that is known."""
    if artifact.kind not in PLACES:
        _kind_of(artifact)


def estimator_of(artifact: Artifact) -> IncrementalEstimator:
    """The model in a file that has been read."""
    return _kind_of(artifact).of_artifact(artifact)


def estimators_with_files() -> dict[str, type[IncrementalEstimator]]:
    """Every estimator that has files of its own, by what these say they hold; all modules are imported for it."""
    from sureshot import estimators
    from sureshot.estimators.base import IncrementalEstimator

    names = [info.name for info in pkgutil.walk_packages(estimators.__path__, "sureshot.estimators.")]
    found = {kind for name in names for kind in vars(import_module(name)).values() if isinstance(kind, type)}
    own = (kind for kind in found if issubclass(kind, IncrementalEstimator) and "_formats" in vars(kind))
    return {form.kind: kind for kind in own for form in kind._formats}


def _kind_of(artifact: Artifact) -> type[IncrementalEstimator]:
    """The estimator whose model a file holds; `ArtifactError` if it holds none."""
    kind = artifact.kind
    if kind in _OTHERS:
        raise ArtifactError(f"{artifact.path} is {_OTHERS[kind].format(path=artifact.path)}.")
    if kind in PLACES:
        module, name = PLACES[kind].rsplit(".", 1)
        known: type[IncrementalEstimator] = getattr(import_module(module), name)
        return known
    found = estimators_with_files().get(kind)
    if found is None:
        raise ArtifactError(f"{artifact.path} holds {kind[:40]!r}, which is no estimator.")
    return found

"""Saved classifiers, whichever estimator wrote them."""

from __future__ import annotations

import os

from sureshot.estimators import few_shot_artifact, gp_artifact
from sureshot.estimators.few_shot import FewShotClassifier
from sureshot.estimators.gp import GPClassifier
from sureshot.meta.training.checkpoint import KIND as CHECKPOINT
from sureshot.persistence import ArtifactError, load_artifact

Classifier = GPClassifier | FewShotClassifier

_READERS = {
    gp_artifact.KIND: gp_artifact.gp_classifier_of,
    few_shot_artifact.KIND: few_shot_artifact.few_shot_classifier_of,
}


def load_classifier(path: str | os.PathLike[str]) -> Classifier:
    """Read a model file that the `save` of an estimator wrote.

    Raises
    ------
    ArtifactError
        If it is missing, damaged, or holds something else than a classifier.
    """
    artifact = load_artifact(path)
    if artifact.kind == CHECKPOINT:
        raise ArtifactError(
            f"{artifact.path} is a meta-trained learner, which knows no classes yet: teach it some with "
            f"`sureshot fit DATA --checkpoint {artifact.path}`, or `FewShotClassifier(checkpoint)` in Python."
        )
    if artifact.kind not in _READERS:
        raise ArtifactError(f"{artifact.path} holds {artifact.kind[:40]!r}, which is no classifier.")
    return _READERS[artifact.kind](artifact)

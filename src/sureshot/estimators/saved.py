"""Saved classifiers, whichever estimator wrote them."""

from __future__ import annotations

import os

from sureshot.estimators.classifier import GPClassifier
from sureshot.estimators.few_shot import FewShotClassifier
from sureshot.meta.training.checkpoint import KIND as CHECKPOINT
from sureshot.persistence import ArtifactError, load_artifact

Classifier = GPClassifier | FewShotClassifier

_CLASSIFIERS: dict[str, type[Classifier]] = {kind._format.kind: kind for kind in (GPClassifier, FewShotClassifier)}


def load_classifier(path: str | os.PathLike[str]) -> Classifier:
    """Read a model file that the `save` of an estimator wrote."""
    artifact = load_artifact(path)
    if artifact.kind == CHECKPOINT:
        raise ArtifactError(
            f"{artifact.path} is a meta-trained learner, which knows no classes yet: teach it some with "
            f"`sureshot fit DATA --checkpoint {artifact.path}`, or `FewShotClassifier(checkpoint)` in Python."
        )
    if artifact.kind not in _CLASSIFIERS:
        raise ArtifactError(f"{artifact.path} holds {artifact.kind[:40]!r}, which is no classifier.")
    return _CLASSIFIERS[artifact.kind].of_artifact(artifact)

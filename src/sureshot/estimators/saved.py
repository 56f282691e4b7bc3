"""Saved classifiers, whichever estimator wrote them."""

from __future__ import annotations

import os

from sureshot.estimators.base import IncrementalClassifier
from sureshot.estimators.fitted import Format
from sureshot.members import members
from sureshot.meta.training.checkpoint import KIND as CHECKPOINT
from sureshot.persistence import ArtifactError, load_artifact


def load_classifier(path: str | os.PathLike[str]) -> IncrementalClassifier:
    """Read a model file that the `save` of an estimator wrote."""
    artifact = load_artifact(path)
    if artifact.kind == CHECKPOINT:
        raise ArtifactError(
            f"{artifact.path} is a meta-trained learner, which knows no classes yet: teach it some with "
            f"`sureshot fit DATA --checkpoint {artifact.path}`, or `FewShotClassifier(checkpoint)` in Python."
        )
    known = classifiers()
    if artifact.kind not in known:
        raise ArtifactError(f"{artifact.path} holds {artifact.kind[:40]!r}, which is no classifier.")
    return known[artifact.kind].of_artifact(artifact)


def classifiers() -> dict[str, type[IncrementalClassifier]]:
    """Every estimator that writes files, by what these say they hold."""
    return members(IncrementalClassifier, __package__, _kind_of_file)


def _kind_of_file(kind: type) -> str | None:
    """What the files say that an estimator writes; None for a class without files of its own."""
    own: Format | None = vars(kind).get("_format")
    return None if own is None else own.kind

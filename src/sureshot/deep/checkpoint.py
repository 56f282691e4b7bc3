"""Deep classifiers from the checkpoints of their training."""

from __future__ import annotations

import os

from sureshot.deep.base import DeepClassifier
from sureshot.deep.training import KIND
from sureshot.members import members
from sureshot.networks.checkpoint import best_of, load_checkpoint, restore
from sureshot.persistence import ArtifactError, require_header


def load_deep_classifier(path: str | os.PathLike[str]) -> DeepClassifier:
    """The classifier of a checkpoint, or of the best one in the folder of a run, in evaluation mode, on the CPU.

    Raises
    ------
    ArtifactError
        If the file is damaged or something else; the message says which.
    """
    checkpoint = load_checkpoint(best_of(path, "`sureshot.networks.train`"), KIND)
    config = require_header(checkpoint, "classifier")["classifier"]
    known = members(DeepClassifier, "sureshot.deep")
    try:
        kind: type[DeepClassifier] = known[config["name"]]
        classifier = kind.from_config(config)
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"{checkpoint.path} describes no deep classifier known here ({error!r}; known: {', '.join(known)})"
        ) from None
    restore(checkpoint, classifier)
    return classifier.eval()

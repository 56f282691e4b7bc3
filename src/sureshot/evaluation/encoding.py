"""Sessions as a trained network sees them, for methods that take embeddings."""

from __future__ import annotations

import os

from sureshot.deep import load_deep_classifier
from sureshot.incremental.sessions import Sessions
from sureshot.networks.backbones.base import describe
from sureshot.networks.precision import Precision


def encoded_sessions(
    sessions: Sessions,
    path: str | os.PathLike[str],  # checkpoint of a deep classifier
    device: str = "cpu",  # where the network computes
    precision: Precision = "float32",
) -> Sessions:
    """The sessions of embeddings by the checkpoint's backbone.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged or something else.
    ValueError
        If the network takes other inputs than the sessions have.
    """
    network = load_deep_classifier(path).to(device)
    network.precision = precision
    expected, got = network.backbone.input_shape, tuple(sessions.train.x.shape[1:])
    if got != expected:
        raise ValueError(
            f"the encoder {os.fspath(path)} takes {describe(expected)}, but {sessions.name} has {describe(got)}: train "
            "a network on rows of this shape"
        )
    return sessions.embedded(lambda x: network.embeddings(x.to(device)).cpu())

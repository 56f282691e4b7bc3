"""`FewShotClassifier` as a model file.

With a checkpoint: its learner, the labelled rows as embeddings, and nothing of the posterior. Conditioning is a
function of the learner, the rows and a seed, so it is done again on loading. The learner is stored as in its
checkpoint: configurations in the header, state in arrays. Without a checkpoint the file is that of a `GPClassifier`,
but for what it says it holds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from sureshot.estimators.few_shot.fitted import FewShotFitted, condition_rows
from sureshot.estimators.few_shot.inputs import Encoder
from sureshot.estimators.fitted import Fitted, Format, TrainingSet
from sureshot.estimators.gp.classifier import GPClassifier
from sureshot.estimators.gp.fitted import GPFitted
from sureshot.estimators.gp.format import GP_FORMAT
from sureshot.estimators.gp.settings import device_for
from sureshot.estimators.stored_rows import (
    HEADER,
    arrays_of,
    by_label_from_json,
    by_label_to_json,
    header_of,
    read_columns,
    read_reading,
    read_rows,
    that_predicts,
)
from sureshot.meta.learners import EmbeddingLearner
from sureshot.meta.training.checkpoint import Checkpoint
from sureshot.persistence import Artifact, ArtifactError, require_header

KIND = "few_shot_classifier"
_PREFIX_MODEL = "model."  # as in checkpoints


def _write(parameters: Mapping[str, Any], fitted: FewShotFitted | GPFitted) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and arrays of a fitted estimator."""
    checkpoint, random_state = parameters["checkpoint"], parameters["random_state"]
    given = {
        "checkpoint": None if checkpoint is None else os.fspath(checkpoint),
        "random_state": int(random_state) if isinstance(random_state, int | np.integer) else None,
        "class_prior_given": by_label_to_json(parameters["class_prior"]),
    }
    if isinstance(fitted, GPFitted):
        header, arrays = GP_FORMAT.write(GPClassifier().get_params(deep=False), fitted)
        return header | given, arrays
    learner = fitted.learner
    header = {
        **header_of(fitted),
        **given,
        "seed": fitted.seed,
        "learner": learner.config,
        "backbone": learner.backbone.config,
    }
    state = {_PREFIX_MODEL + name: _single(value) for name, value in learner.state_dict().items()}
    return header, arrays_of(fitted.rows, None) | state


def _read(artifact: Artifact) -> tuple[dict[str, Any], Fitted]:
    """The constructor's arguments and what was learnt; every malformed entry is one `ArtifactError`.

    Its device is "auto". Fitting it anew reads the checkpoint that it was made with, predicting does not.
    """
    header = require_header(artifact, {"checkpoint": (str, type(None)), "random_state": (int, type(None))})
    prior = by_label_from_json(artifact.path, artifact.header.get("class_prior_given", "support"))
    given = {"checkpoint": header["checkpoint"], "random_state": header["random_state"], "class_prior": prior}
    if artifact.header.get("default") is not None:
        raise ArtifactError(
            f"{artifact.path} is of an earlier version, which did something else without a checkpoint: fit it again."
        )
    return given, _conditioned(artifact) if "learner" in artifact.header else GP_FORMAT.read(artifact)[1]


def _conditioned(artifact: Artifact) -> FewShotFitted:
    header = require_header(artifact, {**HEADER, "seed": int, "learner": dict, "backbone": dict})
    classes, rows = read_rows(artifact, header)
    if not header["temperature"] > 0 or header["seed"] < 0:
        raise ArtifactError(f"{artifact.path}: malformed temperature or seed; save the model again.")
    reading = read_reading(artifact)
    learner = _meta_trained(artifact, header).double().requires_grad_(False).to(device_for("auto"))

    def build() -> FewShotFitted:
        training = TrainingSet(Encoder(learner, reading), read_columns(artifact.header), classes, rows, None)
        return condition_rows(training, learner, header["seed"])

    fitted = that_predicts(artifact.path, build)
    # Files of before have no entry "calibrated"; a temperature of 1 is what it is without.
    calibrated = bool(artifact.header.get("calibrated", header["temperature"] != 1))
    return replace(fitted, temperature=header["temperature"], calibrated=calibrated)


FEW_SHOT_FORMAT = Format(KIND, _write, _read)


def _meta_trained(artifact: Artifact, header: dict[str, Any]) -> EmbeddingLearner:
    return Checkpoint(artifact.path, {}, header["learner"], header["backbone"], 0, {}, {}, artifact).build()


def _single(value: torch.Tensor) -> torch.Tensor:
    """The digits of a checkpoint: its learner was only widened to double precision."""
    return value.float() if value.dtype == torch.float64 else value

"""`FewShotClassifier` as a model file: the learner, the labelled rows as they are kept, and nothing of the posterior.

Conditioning is a function of the learner, the rows and a seed, so it is done again on loading. A meta-trained learner
is stored as in its checkpoint: configurations in the header, state in arrays.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from sureshot.estimators.few_shot_default import DefaultModel
from sureshot.estimators.few_shot_fitted import FewShotFitted, condition_learner
from sureshot.estimators.few_shot_inputs import Encoder
from sureshot.estimators.fitted import Format, TrainingSet
from sureshot.estimators.readers import Reader
from sureshot.estimators.settings import device_for
from sureshot.estimators.stored_rows import (
    HEADER,
    arrays_of,
    by_label_from_json,
    by_label_to_json,
    header_of,
    read_columns,
    read_rows,
    read_scaling,
    reader_of_rows,
    that_predicts,
)
from sureshot.meta.learners import EmbeddingLearner
from sureshot.meta.training.checkpoint import Checkpoint
from sureshot.persistence import Artifact, ArtifactError, require_header

KIND = "few_shot_classifier"
_PREFIX_MODEL = "model."  # as in checkpoints


def _write(parameters: Mapping[str, Any], fitted: FewShotFitted) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and arrays of a fitted estimator."""
    checkpoint, random_state = parameters["checkpoint"], parameters["random_state"]
    header: dict[str, Any] = {
        **header_of(fitted),
        "checkpoint": None if checkpoint is None else os.fspath(checkpoint),
        "random_state": int(random_state) if isinstance(random_state, int | np.integer) else None,
        "class_prior_given": by_label_to_json(parameters["class_prior"]),
        "seed": fitted.seed,
        "default": None if fitted.default is None else fitted.default.as_dict(),
        "learner": None,
        "backbone": None,
    }
    arrays = arrays_of(fitted.rows, fitted.scaling)
    if isinstance(fitted.reader, Encoder):
        learner = fitted.reader.learner
        header |= {"learner": learner.config, "backbone": learner.backbone.config}
        arrays |= {_PREFIX_MODEL + name: _single(value) for name, value in learner.state_dict().items()}
    return header, arrays


def _read(artifact: Artifact) -> tuple[dict[str, Any], FewShotFitted]:
    """The constructor's arguments and what was learnt; every malformed entry is one `ArtifactError`.

    Its device is "auto". Fitting it anew reads the checkpoint that it was made with, predicting does not.
    """
    header = require_header(
        artifact,
        {
            **HEADER,
            "checkpoint": (str, type(None)),
            "random_state": (int, type(None)),
            "seed": int,
            "default": (dict, type(None)),
            "learner": (dict, type(None)),
            "backbone": (dict, type(None)),
        },
    )
    classes, rows = read_rows(artifact, header)
    if not header["temperature"] > 0 or header["seed"] < 0:
        raise ArtifactError(f"{artifact.path}: malformed temperature or seed; save the model again.")

    default, scaling, device = None, None, device_for("auto")
    reader: Reader
    if header["default"] is None:
        learner = _meta_trained(artifact, header).double().requires_grad_(False).to(device)
        reader = Encoder(learner)
    else:
        reader = reader_of_rows(artifact, rows)
        default, scaling = _default(artifact, header), read_scaling(artifact, rows.x.shape[1])
        learner = default.build().to(device)

    def build() -> FewShotFitted:
        training = TrainingSet(reader, read_columns(header), classes, rows, None)
        return condition_learner(training, header["seed"], device, learner, default, scaling)

    fitted = that_predicts(artifact.path, build)
    # Files of before have no entry "calibrated"; a temperature of 1 is what it is without.
    calibrated = bool(artifact.header.get("calibrated", header["temperature"] != 1))
    prior = by_label_from_json(artifact.path, artifact.header.get("class_prior_given", "support"))
    given = {"checkpoint": header["checkpoint"], "random_state": header["random_state"], "class_prior": prior}
    return given, replace(fitted, temperature=header["temperature"], calibrated=calibrated)


FEW_SHOT_FORMAT = Format(KIND, _write, _read)


def _meta_trained(artifact: Artifact, header: dict[str, Any]) -> EmbeddingLearner:
    if header["learner"] is None or header["backbone"] is None:
        raise ArtifactError(f"{artifact.path} holds neither a meta-trained learner nor the default; save it again.")
    return Checkpoint(artifact.path, {}, header["learner"], header["backbone"], 0, {}, {}, artifact).build()


def _default(artifact: Artifact, header: dict[str, Any]) -> DefaultModel:
    values = header["default"]
    types = {"kernel": str, "n_features": int, "outputscale": float, "constant": float, "n_steps": int}
    if set(values) != set(types) or any(type(values[name]) is not kind for name, kind in types.items()):
        raise ArtifactError(f"{artifact.path}: malformed settings of the default model; save the model again.")
    if values["kernel"] not in ("cosine", "rbf") or min(values[name] for name in types if name != "kernel") <= 0:
        raise ArtifactError(f"{artifact.path}: malformed settings of the default model; save the model again.")
    return DefaultModel(**values)


def _single(value: torch.Tensor) -> torch.Tensor:
    """The digits of a checkpoint: its learner was only widened to double precision."""
    return value.float() if value.dtype == torch.float64 else value

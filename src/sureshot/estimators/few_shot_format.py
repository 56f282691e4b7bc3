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
from sureshot.estimators.preprocessing import Scaling
from sureshot.estimators.readers import Reader, TableReader
from sureshot.estimators.settings import device_for
from sureshot.estimators.validation import Columns, LabelledRows
from sureshot.meta.learners import EmbeddingLearner
from sureshot.meta.training.checkpoint import Checkpoint
from sureshot.persistence import Artifact, ArtifactError, decode_labels, encode_labels, require, require_header

KIND = "few_shot_classifier"
_PREFIX_MODEL = "model."  # as in checkpoints


def _write(parameters: Mapping[str, Any], fitted: FewShotFitted) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and arrays of a fitted estimator."""
    rows, scaling, names = fitted.rows, fitted.scaling, fitted.columns.names
    checkpoint, random_state = parameters["checkpoint"], parameters["random_state"]
    header: dict[str, Any] = {
        "checkpoint": None if checkpoint is None else os.fspath(checkpoint),
        "random_state": int(random_state) if isinstance(random_state, int | np.integer) else None,
        "classes": encode_labels(fitted.classes),
        "n_features_in": int(fitted.columns.n_features),
        "feature_names_in": None if names is None else [str(name) for name in names],
        "seed": fitted.seed,
        "temperature": fitted.temperature,
        "calibrated": fitted.calibrated,
        "default": None if fitted.default is None else fitted.default.as_dict(),
        "learner": None,
        "backbone": None,
    }
    arrays: dict[str, Any] = {"rows.x": rows.x, "rows.y": rows.y, "rows.weight": rows.weight}
    if scaling is not None:
        arrays |= {
            "scaling.kept": scaling.kept.astype(np.int64),
            "scaling.mean": scaling.mean,
            "scaling.scale": scaling.scale,
        }
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
            "checkpoint": (str, type(None)),
            "random_state": (int, type(None)),
            "classes": dict,
            "n_features_in": int,
            "feature_names_in": (list, type(None)),
            "seed": int,
            "temperature": float,
            "default": (dict, type(None)),
            "learner": (dict, type(None)),
            "backbone": (dict, type(None)),
        },
    )
    rows = require(
        artifact,
        {"rows.x": ("float64", ("N", "D")), "rows.y": ("int64", ("N",)), "rows.weight": ("float64", ("N",))},
    )
    classes, y = decode_labels(header["classes"]), rows["rows.y"]
    if not len(y) or y.min() < 0 or y.max() >= len(classes) or not (rows["rows.weight"] > 0).all():
        raise ArtifactError(f"{artifact.path}: the rows do not fit the classes; save the model again.")
    if not header["temperature"] > 0 or header["seed"] < 0:
        raise ArtifactError(f"{artifact.path}: malformed temperature or seed; save the model again.")

    names = header["feature_names_in"]
    columns = Columns(header["n_features_in"], None if names is None else np.asarray(names, dtype=object))
    default, scaling, device = None, None, device_for("auto")
    reader: Reader = TableReader()
    if header["default"] is None:
        learner = _meta_trained(artifact, header).double().requires_grad_(False).to(device)
        reader = Encoder(learner)
    else:
        default, scaling = _default(artifact, header), _scaling(artifact, rows["rows.x"].shape[1])
        learner = default.build().to(device)
    kept = LabelledRows(rows["rows.x"], y, rows["rows.weight"])
    try:
        training = TrainingSet(reader, columns, classes, kept, None)
        fitted = condition_learner(training, header["seed"], device, learner, default, scaling)
        found = fitted.probabilities(fitted.moments(fitted.inputs(kept.x[:1])), 1.0)
    except (RuntimeError, ValueError, IndexError, AssertionError) as error:
        raise ArtifactError(
            f"{artifact.path}: the parts of the model do not fit together; save the model again."
        ) from error
    if not bool(torch.isfinite(found).all()):
        raise ArtifactError(f"{artifact.path}: the model gives probabilities that are not finite; fit it again.")
    # Files of before have no entry "calibrated"; a temperature of 1 is what it is without.
    calibrated = bool(artifact.header.get("calibrated", header["temperature"] != 1))
    parameters = {"checkpoint": header["checkpoint"], "random_state": header["random_state"]}
    return parameters, replace(fitted, temperature=header["temperature"], calibrated=calibrated)


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


def _scaling(artifact: Artifact, n_columns: int) -> Scaling:
    found = require(
        artifact,
        {
            "scaling.kept": ("int64", ("K",)),
            "scaling.mean": ("float64", ("K",)),
            "scaling.scale": ("float64", ("K",)),
        },
    )
    kept, scale = found["scaling.kept"], found["scaling.scale"]
    if not len(kept) or kept.min() < 0 or kept.max() >= n_columns or not (scale > 0).all():
        raise ArtifactError(f"{artifact.path}: the scaling does not fit the columns; save the model again.")
    return Scaling(kept, found["scaling.mean"], scale)


def _single(value: torch.Tensor) -> torch.Tensor:
    """The digits of a checkpoint: its learner was only widened to double precision."""
    return value.float() if value.dtype == torch.float64 else value

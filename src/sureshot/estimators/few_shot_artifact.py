"""`FewShotClassifier` as a model file: the learner, the labelled rows as they are kept, and nothing of the posterior.

Conditioning is a function of the learner, the rows and a seed, so it is done again on loading. A meta-trained learner
is stored as in its checkpoint: configurations in the header, state in arrays.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sureshot.estimators.few_shot import FewShotClassifier, kernel_inputs
from sureshot.estimators.few_shot_default import DefaultModel
from sureshot.estimators.few_shot_inputs import Encoder
from sureshot.estimators.options import device_for
from sureshot.estimators.preprocessing import Scaling
from sureshot.estimators.validation import LabelledRows
from sureshot.meta.learners import Learner
from sureshot.meta.training.checkpoint import Checkpoint
from sureshot.persistence import (
    Artifact,
    ArtifactError,
    decode_labels,
    encode_labels,
    require,
    require_header,
    save_artifact,
)

KIND = "few_shot_classifier"
_PREFIX_MODEL = "model."  # as in checkpoints


def save_few_shot_classifier(estimator: FewShotClassifier, path: str | Path) -> None:
    """Write a fitted estimator.

    Raises
    ------
    ArtifactError
        For labels that cannot be written without pickle.
    """
    rows, scaling, encoder = estimator._rows, estimator._scaling, estimator._encoder
    names = getattr(estimator, "feature_names_in_", None)
    seed = estimator.random_state
    header: dict[str, Any] = {
        "checkpoint": None if estimator.checkpoint is None else os.fspath(estimator.checkpoint),
        "random_state": int(seed) if isinstance(seed, int | np.integer) else None,
        "classes": encode_labels(estimator.classes_),
        "n_features_in": int(estimator.n_features_in_),
        "feature_names_in": None if names is None else [str(name) for name in names],
        "seed": estimator._seed,
        "temperature": estimator.temperature_,
        "default": None if estimator._default is None else estimator._default.as_dict(),
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
    if encoder is not None:
        header |= {"learner": encoder.learner.config, "backbone": encoder.learner.backbone.config}
        arrays |= {_PREFIX_MODEL + name: _single(value) for name, value in encoder.learner.state_dict().items()}
    save_artifact(path, KIND, header, arrays)


def few_shot_classifier_of(artifact: Artifact) -> FewShotClassifier:
    """The estimator in a model file; every malformed entry is one `ArtifactError`.

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

    estimator = FewShotClassifier(header["checkpoint"], header["random_state"])
    estimator.n_features_in_ = header["n_features_in"]
    if header["feature_names_in"] is not None:
        estimator.feature_names_in_ = np.asarray(header["feature_names_in"], dtype=object)
    estimator.temperature_, estimator._seed = header["temperature"], header["seed"]
    estimator._encoder, default, scaling = None, None, None
    device = device_for(estimator.device)
    if header["default"] is None:
        learner = _meta_trained(artifact, header).double().requires_grad_(False).to(device)
        estimator._encoder = Encoder(learner)
    else:
        default, scaling = _default(artifact, header), _scaling(artifact, rows["rows.x"].shape[1])
        learner = default.build().to(device)
    kept = LabelledRows(rows["rows.x"], y, rows["rows.weight"])
    try:
        estimator._condition_with(kept, classes, learner, default, scaling)
        found = estimator._probabilities(kernel_inputs(kept.x[:1], scaling, device))
    except (RuntimeError, ValueError, IndexError, AssertionError) as error:
        raise ArtifactError(
            f"{artifact.path}: the parts of the model do not fit together; save the model again."
        ) from error
    if not bool(torch.isfinite(found).all()):
        raise ArtifactError(f"{artifact.path}: the model gives probabilities that are not finite; fit it again.")
    return estimator


def _meta_trained(artifact: Artifact, header: dict[str, Any]) -> Learner:
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

"""What model files of `FewShotClassifier` and `FewShotRegressor` hold.

The learner as in its checkpoint, the labelled rows as it takes them, and nothing of the posterior. Conditioning is a
function of the learner, the rows and a seed, so it is done again on loading. Without a checkpoint the file is that of a
`GPClassifier`, but for what it says it holds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sureshot.data.mixed_columns import ColumnEncoder
from sureshot.data.remembered import Remembered
from sureshot.estimators.classes.stored_classes import StoredClasses
from sureshot.estimators.devices import device_for
from sureshot.estimators.few_shot.fitted import FewShotFitted, LearnerEncoder, condition_rows
from sureshot.estimators.few_shot.number_fitted import FewShotNumbersFitted, FunctionInputs, condition_numbers
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.gp.format import GP_FORMAT
from sureshot.estimators.numbers.stored_regression import StoredRegression
from sureshot.estimators.stored import Format
from sureshot.meta.learners import Learner
from sureshot.meta.training.checkpoint import Checkpoint
from sureshot.networks.backbones import Backbone
from sureshot.persistence import Artifact


@dataclass(frozen=True, kw_only=True)
class StoredFewShot(StoredClasses):
    """The learner is stored as in its checkpoint."""

    seed: int
    learner: dict[str, Any]
    backbone: dict[str, Any]
    state: dict[str, Tensor]
    reading: Remembered | None

    as_learnt = (*StoredClasses.as_learnt, "seed")

    def check_parts(self) -> None:
        super().check_parts()
        if self.seed < 0:
            raise ValueError("malformed seed")


def _own(fitted: FewShotFitted) -> dict[str, Any]:
    learner = fitted.learner
    assert isinstance(learner.network, Backbone)
    return {
        "learner": dict(learner.config),
        "backbone": dict(learner.network.config),
        "state": learnt_state(learner),
        "reading": fitted.reader.reading,
    }


def _fitted(stored: StoredFewShot) -> FewShotFitted:
    learner = checkpoint_of(stored.learner, stored.backbone, stored.state).build()
    learner = learner.double().requires_grad_(False).to(device_for("auto"))
    encoder = LearnerEncoder(learner, reading=stored.reading)
    training = TrainingSet(encoder, stored.columns, stored.classes, stored.rows, None)
    return condition_rows(training, encoder, stored.seed)


@dataclass(frozen=True, kw_only=True)
class StoredFewShotNumbers(StoredRegression):
    """What a file keeps of a `FewShotNumbersFitted`."""

    learner: dict[str, Any]
    state: dict[str, Tensor]
    inputs: np.ndarray  # (2, D), means and deviations; those of the numbers are the scale of the target
    names: tuple[str, ...] | None
    encoder: ColumnEncoder | None
    reading: Remembered | None


def _own_of_numbers(fitted: FewShotNumbersFitted) -> dict[str, Any]:
    return {
        "learner": dict(fitted.learner.config),
        "state": learnt_state(fitted.learner),
        "inputs": fitted.reader.inputs,
        "names": fitted.reader.names,
        "encoder": fitted.reader.encoder,
        "reading": fitted.reader.reading,
    }


def _fitted_to_numbers(stored: StoredFewShotNumbers) -> FewShotNumbersFitted:
    learner = checkpoint_of(stored.learner, {}, stored.state).build_process().double().requires_grad_(False)
    units = {"inputs": stored.inputs, "targets": [stored.target.centre, stored.target.unit], "columns": stored.names}
    learner = learner.to(device_for("auto", len(stored.rows.y)))
    reader = FunctionInputs.of(learner, units, stored.encoder, stored.reading)
    return condition_numbers(TrainingSet(reader, stored.columns, np.empty(0), stored.rows, None), reader)


def learnt_state(learner: Learner) -> dict[str, Tensor]:
    """What a learner has learnt, by name; bounds of constraints, which may be infinite, are constants."""
    kept = {name: part for name, part in learner.state_dict().items() if bool(part.isfinite().all())}
    # The digits of a checkpoint: its learner was only widened to double precision.
    return {name: part.float() if part.dtype == torch.float64 else part for name, part in kept.items()}


def checkpoint_of(learner: dict[str, Any], backbone: dict[str, Any], state: dict[str, Tensor]) -> Checkpoint:
    """The checkpoint from which a learner with this config and state is built."""
    arrays = {f"model.{name}": value.numpy() for name, value in state.items()}
    found = Artifact("the learner of the model", "few_shot_learner", "", {}, arrays)
    return Checkpoint(found.path, {}, learner, backbone, 0, {}, {}, found)


FEW_SHOT_FORMATS = (
    Format("few_shot_classifier", FewShotFitted, StoredFewShot, _own, _fitted),
    replace(GP_FORMAT, kind="few_shot_gp_classifier"),
)
FEW_SHOT_NUMBERS_FORMAT = Format(
    "few_shot_regressor", FewShotNumbersFitted, StoredFewShotNumbers, _own_of_numbers, _fitted_to_numbers
)

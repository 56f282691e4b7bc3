"""What model files of `FewShotClassifier` hold.

With a checkpoint: its learner, the labelled rows as it takes them, and nothing of the posterior. Conditioning is a
function of the learner, the rows and a seed, so it is done again on loading. Without a checkpoint the file is that of a
`GPClassifier`, but for what it says it holds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sureshot.data.remembered import Remembered
from sureshot.estimators.classes.stored_classes import StoredClasses
from sureshot.estimators.devices import device_for
from sureshot.estimators.few_shot.fitted import FewShotFitted, condition_rows
from sureshot.estimators.few_shot.inputs import LearnerEncoder
from sureshot.estimators.fitted import TrainingSet
from sureshot.estimators.gp.format import GP_FORMAT
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

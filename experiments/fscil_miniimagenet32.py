"""Classes that arrive in sessions, photographs: the network that every method begins with."""

from __future__ import annotations

from experiments.campaigns.deep import STAGE, DeepCell
from sureshot.deep import ClassifierSettings

NAME = "fscil-miniimagenet32"
DATA = "miniimagenet32-base"
BACKBONE = {"name": "resnet18", "stem": "cifar", "width": 0.5, "n_features": 256}
VALIDATION = 0.05

STAGE_TRAINING = ClassifierSettings(
    epochs=40,
    batch_size=128,
    learning_rate=0.1,
    weight_decay=5e-4,
    milestones=(),
    crop=4,
    flip=True,
    precision="bfloat16",
)
"""The first 40 of the paper's 100 epochs, at its rate."""


def stage_cell(seed: int = 0) -> DeepCell:
    """The softmax stage that all methods share."""
    labels: dict[str, str | int] = {"method": STAGE, "seed": seed}
    return DeepCell(f"stage-seed{seed}", labels, DATA, STAGE, {}, BACKBONE, STAGE_TRAINING, None, VALIDATION)

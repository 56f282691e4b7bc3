"""How far a run got, and whether another one may resume there."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from sureshot.networks.trainable import Trainable
from sureshot.persistence import Artifact


@dataclass
class State:
    """How far a run got; plain numbers that are saved with every checkpoint."""

    units: int = 0
    best_units: int = 0  # when the best checkpoint was taken
    best: dict[str, float] = field(default_factory=dict)  # its scores
    without_better: int = 0  # validations since
    stopped: bool = False
    large_gradients: int = 0
    window_steps: int = 0
    window_loss: float = 0.0
    window_gradient: float = 0.0

    def as_dict(self, unit: str) -> dict[str, Any]:
        """JSON values; the counts have the name of the unit."""
        return {_key(name, unit): value for name, value in dataclasses.asdict(self).items()}


def _key(name: str, unit: str) -> str:
    return {"units": unit, "best_units": f"best_{unit}"}.get(name, name)


def state_of(checkpoint: Artifact, unit: str) -> State:
    """How far the run of a checkpoint got."""
    progress = checkpoint.header["progress"]
    names = {_key(f.name, unit): f.name for f in dataclasses.fields(State)}
    if progress.keys() != names.keys():
        raise ValueError(
            f"{checkpoint.path} counts {sorted(progress)}, expected {sorted(names)}: it was written by "
            "another version of sureshot; start anew with --no-resume (resume=False)"
        )
    return State(**{names[key]: value for key, value in progress.items()})


def check_same(checkpoint: Artifact, trainee: Trainable) -> None:
    """Refuse to resume with other settings than those the run began with."""
    differences = trainee.differences(checkpoint.header)
    if differences:
        raise ValueError(
            f"{checkpoint.path} is of a run with other settings: {'; '.join(differences[:4])}: use another output "
            "folder, or start anew with --no-resume (resume=False)"
        )

"""How far a run got, and whether another one may go on from there."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sureshot.meta.learners.presets import settings_of
from sureshot.meta.training.checkpoint import Checkpoint
from sureshot.meta.training.config import TrainingConfig

_MAY_DIFFER = {("training", "device"), ("training", "tensorboard"), ("training", "episodes")}
"""Settings that a resumed run may change."""


@dataclass
class State:
    """How far a run got; plain numbers that are saved with every checkpoint."""

    episodes: int = 0
    best_episodes: int = 0
    best: dict[str, float] = field(default_factory=dict)
    without_better: int = 0
    stopped: bool = False
    large_gradients: int = 0
    window_steps: int = 0
    window_loss: float = 0.0
    window_gradient: float = 0.0


def state_of(checkpoint: Checkpoint) -> State:
    """How far the run of a checkpoint got.

    Raises
    ------
    ValueError
        If it counts other things.
    """
    known = {f.name for f in dataclasses.fields(State)}
    if checkpoint.progress.keys() != known:
        raise ValueError(
            f"{checkpoint.path} counts {sorted(checkpoint.progress)}, expected {sorted(known)}: it was written by "
            "another version of sureshot; start anew with --no-resume (resume=False)"
        )
    return State(**checkpoint.progress)


def check_same(
    checkpoint: Checkpoint,
    config: TrainingConfig,
    learner: Mapping[str, Any],  # the learner's own configuration, with what its preset stands for now
) -> None:
    """Refuse to go on with other settings than those the run began with.

    Raises
    ------
    ValueError
        Naming the settings that differ.
    """
    now, then = config.as_dict(), checkpoint.config
    differences = [
        f"{section}.{key} = {_text(then, section, key)} then, {_text(now, section, key)} now"
        for section in now
        for key in now[section]
        if (section, key) not in _MAY_DIFFER and now[section][key] != then.get(section, {}).get(key)
    ]
    if "settings" in checkpoint.learner and "settings" in learner:
        before, after = dataclasses.asdict(settings_of(checkpoint.learner["settings"])), learner["settings"]
        differences += [
            f"{key} = {before[key]!r} by the preset of the learner then, {after[key]!r} now"
            for key in before
            if before[key] != after[key]
        ]
    if differences:
        raise ValueError(
            f"{checkpoint.path} is of a run with other settings: {'; '.join(differences[:4])}: use another output "
            "folder, or start anew with --no-resume (resume=False)"
        )


def _text(config: dict[str, Any], section: str, key: str) -> str:
    return repr(config.get(section, {}).get(key))

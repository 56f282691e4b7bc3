"""Checkpoints of meta-training: a learner that can be used, and what is needed to go on training it.

A checkpoint is a model file (`sureshot.persistence`) of kind ``few_shot_learner``. Its header has the
configurations that build the backbone and the learner again, the settings of the run and how far it got; its arrays
are the learner's state and, in the checkpoint that training resumes from, the optimiser's. Loading runs nothing and
checks every array against the learner that the header describes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sureshot.meta.learners.base import Learner
from sureshot.meta.learners.registry import learner_from_config
from sureshot.networks.backbones import backbone_from_config
from sureshot.persistence import Artifact, ArtifactError, load_artifact, require, require_header, save_artifact

KIND = "few_shot_learner"
LAST_NAME = "last.safetensors"
BEST_NAME = "best.safetensors"

_MODEL, _OPTIMISER = "model.", "optimiser."
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint as read from a file."""

    path: str
    config: dict[str, Any]  # the run's settings; `TrainingConfig.from_dict` takes them
    learner: dict[str, Any]  # what `learner_from_config` takes
    backbone: dict[str, Any]  # what `backbone_from_config` takes
    episodes: int  # trained so far
    metrics: dict[str, Any]  # "accuracy", "nll" of the validation that it was chosen by; empty if there was none
    progress: dict[str, Any]  # the counters of the run; see `sureshot.meta.training.loop`
    artifact: Artifact  # all arrays

    def build(self) -> Learner:
        """The learner, in evaluation mode.

        Raises
        ------
        ArtifactError
            If the configurations or the arrays do not make up a learner.
        """
        try:
            learner = learner_from_config(self.learner, backbone_from_config(self.backbone))
        except (ValueError, TypeError, KeyError) as error:
            raise ArtifactError(
                f"{self.path} describes a learner that this version of sureshot cannot build: {error}"
            ) from error
        self.restore(learner)
        return learner.eval()

    def restore(self, learner: Learner) -> None:
        """Copy the saved state into a learner of the same architecture.

        Raises
        ------
        ArtifactError
            If it has another architecture.
        """
        state = learner.state_dict()
        # What is infinite before training is a constant, the bound of a constraint, and stays as it is.
        learnt = {name: value for name, value in state.items() if bool(torch.isfinite(value).all())}
        expected = {_MODEL + name: _described(value) for name, value in learnt.items()}
        saved = {name for name in self.artifact.arrays if name.startswith(_MODEL)}
        for name in learner.added_state:
            if _MODEL + name not in saved:
                state[name] = torch.zeros_like(learnt.pop(name))
                del expected[_MODEL + name]
        foreign = sorted(saved - {_MODEL + name for name in state})
        if foreign:
            name = foreign[0].removeprefix(_MODEL)
            raise ArtifactError(
                f"{self.path} is a checkpoint of another architecture: it has {name!r}, which the learner lacks"
            )
        try:
            arrays = require(self.artifact, expected)
        except ArtifactError as error:
            raise ArtifactError(f"the checkpoint does not fit the learner that it is loaded into: {error}") from error
        learner.load_state_dict(state | {name: torch.from_numpy(arrays[_MODEL + name]) for name in learnt})

    def restore_optimiser(self, learner: nn.Module, optimiser: torch.optim.Adam) -> None:
        """Give Adam the moments that it had.

        Raises
        ------
        ArtifactError
            If the checkpoint is one to use, not one to go on from.
        """
        arrays = self.artifact.arrays
        if not any(name.startswith(_OPTIMISER) for name in arrays):
            raise ArtifactError(f"{self.path} has no state of an optimiser: resume from {LAST_NAME}")
        for name, parameter in learner.named_parameters():
            if f"{_OPTIMISER}step.{name}" not in arrays:
                continue  # it had no gradient
            shape = tuple(parameter.shape)
            wanted = {
                f"{_OPTIMISER}{moment}.{name}": ("float", () if moment == "step" else shape) for moment in _MOMENTS
            }
            found = {key: torch.from_numpy(value) for key, value in require(self.artifact, wanted).items()}
            # Same memory format as the parameter, so that the same arithmetic follows.
            optimiser.state[parameter] = {
                "step": found[f"{_OPTIMISER}step.{name}"],
                **{m: torch.empty_like(parameter).copy_(found[f"{_OPTIMISER}{m}.{name}"]) for m in _MOMENTS[1:]},
            }


def save_checkpoint(
    path: Path,
    learner: Learner,  # with ``config``, and a backbone with ``config``
    config: Mapping[str, Any],
    progress: Mapping[str, Any],
    metrics: Mapping[str, Any],
    optimiser: torch.optim.Optimizer | None = None,  # leave out for a checkpoint that is only to be used
) -> None:
    """Write a checkpoint, whole or not at all.

    Parameters
    ----------
    config, progress, metrics : mapping
        JSON values; `progress` has "episodes".
    """
    header = {
        "config": dict(config),
        "learner": learner.config,
        "backbone": learner.backbone.config,
        "progress": dict(progress),
        "metrics": dict(metrics),
    }
    save_artifact(path, KIND, header, arrays_of(learner, optimiser))


def arrays_of(learner: nn.Module, optimiser: torch.optim.Optimizer | None = None) -> dict[str, Tensor]:
    """What a checkpoint holds by name: the learner's parameters and buffers and, if it is given, Adam's moments."""
    arrays = {_MODEL + name: value for name, value in learner.state_dict().items()}
    if optimiser is not None:
        arrays |= dict(_moments(learner, optimiser))
    return arrays


def load_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read a checkpoint, or the best one in the folder of a run.

    Raises
    ------
    ArtifactError
        If the file is missing, damaged or something else; the message says which.
    """
    if Path(path).is_dir():
        path = Path(path) / BEST_NAME
        if not path.is_file():
            raise ArtifactError(f"{path.parent} has no {BEST_NAME}: name a folder that `sureshot meta-train` wrote.")
    artifact = load_artifact(path)
    if artifact.kind != KIND:
        raise ArtifactError(
            f"{artifact.path} is no meta-trained learner (it holds {artifact.kind[:40]!r}): name a checkpoint that "
            "`sureshot meta-train` wrote, or its folder."
        )
    header = require_header(
        artifact, {"config": dict, "learner": dict, "backbone": dict, "progress": dict, "metrics": dict}
    )
    episodes = header["progress"].get("episodes")
    if type(episodes) is not int or episodes < 0:
        raise ArtifactError(f"{artifact.path}: the header entry 'progress' must count episodes, it has {episodes!r}.")
    return Checkpoint(artifact.path, episodes=episodes, artifact=artifact, **header)


def load_learner(path: str | os.PathLike[str], device: torch.device | str = "cpu") -> Learner:
    """A meta-trained learner in evaluation mode, from a checkpoint or the folder of a run.

    Raises
    ------
    ArtifactError
        As for `load_checkpoint`, or if the arrays are those of another architecture.
    """
    return load_checkpoint(path).build().to(device)


def _described(value: Tensor) -> tuple[str, tuple[int, ...]]:
    return str(value.dtype).removeprefix("torch."), tuple(value.shape)


def _moments(learner: nn.Module, optimiser: torch.optim.Optimizer) -> Iterable[tuple[str, Tensor]]:
    for name, parameter in learner.named_parameters():
        for moment, value in optimiser.state.get(parameter, {}).items():
            yield f"{_OPTIMISER}{moment}.{name}", value

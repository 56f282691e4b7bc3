"""Checkpoints of meta-training: few-shot learners that can be used, and trained further.

A checkpoint (`sureshot.networks.checkpoint`) of kind ``few_shot_learner``; its header has the configurations that
build the backbone and the learner again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sureshot.networks import checkpoint as checkpoints
from sureshot.persistence import Artifact, ArtifactError, load_artifact, require_header

if TYPE_CHECKING:
    from torch import nn

    from sureshot.data.mixed_columns import ColumnEncoder
    from sureshot.meta.learners.base import ClassLearner, Learner
    from sureshot.meta.learners.functions import RegressionLearner

KIND = "few_shot_learner"
Module = TypeVar("Module", bound="nn.Module")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint as read from a file."""

    path: str
    config: dict[str, Any]  # the run's settings; `TrainingConfig.from_dict` takes them
    learner: dict[str, Any]  # what `learner_from_config` takes
    backbone: dict[str, Any]  # what `backbone_from_config` takes
    episodes: int  # trained so far
    metrics: dict[str, Any]  # of the validation that it was chosen by, such as "nll"; empty if there was none
    progress: dict[str, Any]  # the counters of the run; see `sureshot.networks.state`
    artifact: Artifact  # all arrays

    @property
    def answers_with_numbers(self) -> bool:
        """Whether it is a learner of numbers (`build_process`) rather than of classes (`build`)."""
        return "target_width" in self.learner

    @property
    def described(self) -> str:
        """What it is, for messages."""
        task = "numbers" if self.answers_with_numbers else "classes"
        return f"{self.path} is a learner of {task} ({self.name})"

    @property
    def name(self) -> str:
        """What kind of learner it is."""
        return str(self.learner.get("name"))

    @property
    def columns(self) -> list[str] | None:
        """Names of the inputs of a learner that was trained on a table; None where nothing has kept them."""
        found = self._units.get("columns")
        return list(map(str, found)) if isinstance(found, list) else None

    @property
    def encoder(self) -> ColumnEncoder | None:
        """What makes numbers of these columns; None where they are numbers without gaps."""
        from sureshot.data.mixed_columns import ColumnEncoder

        found = self._units.get("encoder")
        try:
            return None if found is None else ColumnEncoder.from_json(found)
        except ValueError as error:
            raise ArtifactError(f"{self.path}: malformed units of columns ({error})") from error

    @property
    def _units(self) -> dict[str, Any]:
        units = self.artifact.header.get("units")
        return units if isinstance(units, dict) else {}

    def build(self) -> ClassLearner:
        """The learner, in evaluation mode; `ArtifactError` if configurations and arrays do not make up one."""
        from sureshot.meta.learners.registry import learner_from_config
        from sureshot.networks.backbones import backbone_from_config

        if self.answers_with_numbers:
            raise ArtifactError(
                f"{self.described}, which knows no classes: name one that was trained on classes, or take it for "
                "FewShotRegressor and `sureshot fit` with numbers; `sureshot meta-evaluate` scores either."
            )
        return self._restored(lambda: learner_from_config(self.learner, backbone_from_config(self.backbone)))

    def build_process(self) -> RegressionLearner:
        """The same of a learner of numbers."""
        from sureshot.meta.processes import process_from_config

        if not self.answers_with_numbers:
            raise ArtifactError(f"{self.described}, which knows no numbers: name one that was trained on functions.")
        return self._restored(lambda: process_from_config(self.learner))

    def _restored(self, make: Callable[[], Module]) -> Module:
        try:
            learner = make()
        except (ValueError, TypeError, KeyError) as error:
            raise ArtifactError(
                f"{self.path} describes a learner that this version of sureshot cannot build: {error}"
            ) from error
        checkpoints.restore(self.artifact, learner)
        return learner.eval()


def save_checkpoint(
    path: Path,
    learner: Learner,
    config: Mapping[str, Any],
    progress: Mapping[str, Any],  # with "episodes"
    metrics: Mapping[str, Any],
) -> None:
    """Write a checkpoint to use, whole or not at all; config, progress and metrics are JSON values."""
    checkpoints.save_checkpoint(path, KIND, {"config": dict(config), **parts_of(learner)}, learner, progress, metrics)


def parts_of(learner: Learner) -> dict[str, Any]:
    """What builds a learner again: entries of the header."""
    return {"learner": learner.config, "backbone": getattr(learner.network, "config", {})}


def load_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read a checkpoint, or the best one in the folder of a run; what is wrong with it is an `ArtifactError`."""
    artifact = load_artifact(checkpoints.best_of(path, "`sureshot meta-train`"))
    if artifact.kind != KIND:
        raise ArtifactError(
            f"{artifact.path} is no meta-trained learner (it holds {artifact.kind[:40]!r}): name a checkpoint that "
            "`sureshot meta-train` wrote, or its folder."
        )
    header = require_header(artifact, "config", "learner", "backbone", "progress", "metrics")
    episodes = header["progress"].get("episodes")
    if type(episodes) is not int or episodes < 0:
        raise ArtifactError(f"{artifact.path}: the header entry 'progress' must count episodes, it has {episodes!r}.")
    return Checkpoint(artifact.path, episodes=episodes, artifact=artifact, **header)


def load_learner(path: str | os.PathLike[str]) -> ClassLearner | RegressionLearner:
    """A meta-trained learner in evaluation mode, from a checkpoint or the folder of a run."""
    found = load_checkpoint(path)
    return found.build_process() if found.answers_with_numbers else found.build()

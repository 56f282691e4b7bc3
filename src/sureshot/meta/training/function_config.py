"""The settings of a meta-training run on functions, whose learners answer with numbers: five sections.

As in `sureshot.meta.training.config`; which of the two a file is about is said by ``data.name``. A learner's networks
are its options, so there is no section for a backbone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sureshot.meta.protocols import Count
from sureshot.meta.training.config import (
    DataConfig,
    OptimisationConfig,
    RunConfig,
    TrainingConfig,
    at_least,
    from_file,
)


@dataclass(frozen=True)
class FunctionEpisodesConfig:
    """The training tasks; see `sureshot.meta.functions.FunctionProtocol`."""

    context: Count = (1, 50)
    targets: int = 50


@dataclass(frozen=True)
class FunctionLearnerConfig:
    """The learner; see `sureshot.meta.processes.make_process`."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)  # its ``seed`` is that of the training unless given


@dataclass(frozen=True)
class FunctionValidationConfig:
    """How a checkpoint is chosen: by the lowest mean negative log density."""

    every: int = 1000  # in episodes; 0 for no validation (the last checkpoint is then the best one)
    tasks: int = 200  # always the same ones
    patience: int | None = None  # stop after so many validations in a row without a better one; never by default
    seed: int = 0

    def __post_init__(self) -> None:
        at_least("validation", self, 0, "every", "seed")
        at_least("validation", self, 1, "tasks", *(["patience"] if self.patience is not None else []))


@dataclass(frozen=True)
class FunctionTrainingConfig(RunConfig):
    """Everything that determines a meta-training run on functions."""

    data: DataConfig  # one of `sureshot.meta.functions.FUNCTION_NAMES`
    learner: FunctionLearnerConfig
    episodes: FunctionEpisodesConfig = field(default_factory=FunctionEpisodesConfig)
    training: OptimisationConfig = field(default_factory=OptimisationConfig)
    validation: FunctionValidationConfig = field(default_factory=FunctionValidationConfig)


def run_config(tables: Mapping[str, Any]) -> TrainingConfig | FunctionTrainingConfig:
    """The settings of a run on classes or on functions, from nested mappings."""
    from sureshot.meta.functions.by_name import FUNCTION_NAMES

    data = tables.get("data")
    on_functions = isinstance(data, Mapping) and data.get("name") in FUNCTION_NAMES
    return FunctionTrainingConfig.from_dict(tables) if on_functions else TrainingConfig.from_dict(tables)


def run_config_of_file(
    path: str | os.PathLike[str], settings: Sequence[str] = ()
) -> TrainingConfig | FunctionTrainingConfig:
    """The same from a TOML file; see `TrainingConfig.from_toml`."""
    return from_file(path, settings, run_config)

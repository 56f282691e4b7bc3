"""The settings of a meta-training run on functions, whose learners answer with numbers.

As in `sureshot.meta.training.config`; which of the two a file is about is said by ``data.name``. A learner's networks
are its options, so there is no section for a backbone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sureshot.meta.functions import FUNCTION_NAMES
from sureshot.meta.protocols import FunctionProtocol
from sureshot.meta.training.config import (
    DataConfig,
    FunctionValidationConfig,
    OptimisationConfig,
    RunConfig,
    TrainingConfig,
)


@dataclass(frozen=True)
class ProcessConfig:
    """The learner; see `sureshot.meta.processes.make_process`."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)  # its ``seed`` is that of the training unless given


@dataclass(frozen=True)
class FunctionTrainingConfig(RunConfig):
    """Everything that determines a meta-training run on functions."""

    data: DataConfig  # one of `sureshot.meta.functions.FUNCTION_NAMES`
    learner: ProcessConfig
    episodes: FunctionProtocol = field(default_factory=FunctionProtocol)
    training: OptimisationConfig = field(default_factory=OptimisationConfig)
    validation: FunctionValidationConfig = field(default_factory=FunctionValidationConfig)


def run_config(tables: Mapping[str, Any]) -> TrainingConfig | FunctionTrainingConfig:
    """The settings of a run on classes or on functions, from nested mappings; `from_file` reads them."""
    data = tables.get("data")
    on_functions = isinstance(data, Mapping) and data.get("name") in FUNCTION_NAMES
    return FunctionTrainingConfig.from_dict(tables) if on_functions else TrainingConfig.from_dict(tables)

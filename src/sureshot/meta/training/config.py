"""The settings of a meta-training run, on classes or on functions: sections, from a TOML file or from Python.

A section is a frozen dataclass; the keys of a TOML table are its fields, so what is written here is what can be
set, and a key that is not here is refused with the nearest names. Options of a data set, backbone or learner stand
in the table ``options`` of its section and are checked by whoever takes them. A key ``preset`` before the sections
names how a paper trains (`sureshot.meta.protocols.TRAINING_PRESETS`); keys beside it take precedence.

``data.name`` says which of the two a run is, or ``learner.name``. Networks of learners of functions are their options,
so they have no section for a backbone.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_type_hints

from sureshot.data.checks import listed, near
from sureshot.data.settings_files import from_file, section
from sureshot.meta.functions import FUNCTION_NAMES
from sureshot.meta.protocols import PROTOCOLS, TRAINING_PRESETS, Count, EpisodeProtocol, FunctionProtocol
from sureshot.networks import LoopSettings
from sureshot.ranges import check_counts, check_positive

SelectBy = Literal["accuracy", "nll"]


@dataclass(frozen=True)
class Choice:
    """What is chosen by its name, with options that whoever makes it checks."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EpisodesConfig:
    """The training episodes: a named protocol, or sizes as in `EpisodeProtocol`."""

    protocol: str | None = None  # one of `sureshot.meta.protocols.PROTOCOLS`; then no sizes may be given
    way: Count = 5
    shots: Count = 1
    queries: Count = 16
    unbalanced: bool = False

    def __post_init__(self) -> None:
        self.to_protocol()

    def to_protocol(self) -> EpisodeProtocol:
        """The sizes."""
        if self.protocol is None:
            return EpisodeProtocol(self.way, self.shots, self.queries, self.unbalanced)
        if self.protocol not in PROTOCOLS:
            raise ValueError(
                f"episodes.protocol: there is no protocol {self.protocol!r}{near(self.protocol, PROTOCOLS)}; "
                f"protocols: {listed(list(PROTOCOLS))}"
            )
        defaults = {f.name: f.default for f in dataclasses.fields(self) if f.name != "protocol"}
        given = [name for name, value in defaults.items() if getattr(self, name) != value]
        if given:
            raise ValueError(f"episodes: give protocol = {self.protocol!r} or sizes ({listed(given)}), not both")
        return PROTOCOLS[self.protocol]


@dataclass(frozen=True)
class BackboneConfig:
    """The network; see `sureshot.networks.backbones.make_backbone`."""

    name: str = "conv4"
    options: dict[str, Any] = field(default_factory=dict)  # its ``seed`` is that of the training unless given


@dataclass(frozen=True)
class LearnerConfig:
    """The learner; see `sureshot.meta.learners.make_learner`."""

    name: str
    preset: str = "recommended"
    kernel: str = "cosine"
    precision: Literal["float32", "bfloat16"] = "float32"  # of the backbone
    tasks_per_pass: int = 1  # tasks that share batch normalisation in training; one, as published, by default
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OptimisationConfig:
    """Adam over episodes."""

    episodes: int = 60_000  # training episodes in all; by default the papers' budget for one shot
    # Episodes whose losses are averaged for a step. One, as in the papers, by default; a run of the same number of
    # episodes then takes as many steps.
    episodes_per_step: int = 1
    learning_rate: float = 1e-3  # of the backbone's parameters
    learning_rate_kernel: float = 1e-3  # of all others
    milestones: tuple[int, ...] = ()  # in episodes; from each on, both rates are a tenth of what they were
    seed: int = 0  # fixes initial weights, episodes and the learner's own noise
    checkpoint_every: int = 1000  # in episodes
    log_every: int = 100  # in episodes
    gradient_bound: float = 1e3  # a larger norm of the gradient is counted and reported in the log; nothing is clipped
    device: str = "cpu"  # such as "cpu", "cuda" or "cuda:1"
    tensorboard: bool = False  # write the metrics for TensorBoard too

    def __post_init__(self) -> None:
        at_least("training", self, 1, "episodes", "episodes_per_step", "checkpoint_every", "log_every")
        at_least("training", self, 0, "seed")
        positive = ("learning_rate", "learning_rate_kernel", "gradient_bound")
        check_positive(**{f"training.{name}": getattr(self, name) for name in positive})
        for place in self.milestones:
            check_counts(1, **{"training.milestones": place})


@dataclass(frozen=True)
class FunctionValidationConfig:
    """How a checkpoint is chosen: of a run on functions by the lowest mean negative log density."""

    every: int = 1000  # in episodes; 0 for no validation (the last checkpoint is then the best one)
    tasks: int = 200  # always the same ones
    patience: int | None = None  # stop after so many validations in a row without a better one; never by default
    seed: int = 0

    def __post_init__(self) -> None:
        at_least("validation", self, 0, "every", "seed")
        at_least("validation", self, 1, "tasks", "patience")


@dataclass(frozen=True)
class ValidationConfig(FunctionValidationConfig):
    """Of a run on classes: tasks are of validation classes, way and shots as of training (the largest of a range)."""

    queries: int = 15  # of each class
    # Highest accuracy, as in the papers, or lowest mean negative log probability of the true class.
    select_by: SelectBy = "accuracy"

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("validation", self, 1, "queries")


class RunConfig:
    """Sections of settings, the fields of the dataclasses derived from this."""

    data: Choice
    training: OptimisationConfig
    validation: Any  # with `every` and `patience`

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str], settings: Sequence[str] = ()) -> Self:
        """Read a TOML file, with some keys replaced by ``section.key=value`` (values in TOML, or plain text)."""
        return from_file(path, cls.from_dict, settings)

    @classmethod
    def from_dict(cls, tables: Mapping[str, Any]) -> Self:
        """From nested mappings, such as `as_dict` gives; a ``preset`` among them is filled in."""
        sections = get_type_hints(cls)
        for name, table in tables.items():
            if name == "preset":
                continue
            if name not in sections:
                raise ValueError(f"unknown section [{name}]{near(name, sections)}; sections: {listed(list(sections))}")
            if not isinstance(table, Mapping):
                raise ValueError(f"{name} must be a section [{name}] with keys, got {table!r}")
        tables = _with_preset(tables)
        required = [f.name for f in dataclasses.fields(cls) if f.default_factory is dataclasses.MISSING]  # type: ignore[arg-type]
        for name in required:
            if name not in tables:
                raise ValueError(f"the section [{name}] is missing: it must have at least the key name")
        return cls(**{name: section(name, sections[name], table) for name, table in tables.items()})

    def loop_settings(self) -> LoopSettings:
        """What the training loop takes of them."""
        training, validation = self.training, self.validation
        return LoopSettings(
            length=training.episodes,
            seed=training.seed,
            checkpoint_every=training.checkpoint_every,
            log_every=training.log_every,
            validate_every=validation.every,
            patience=validation.patience,
            gradient_bound=training.gradient_bound,
            tensorboard=training.tensorboard,
        )

    def as_dict(self) -> dict[str, Any]:
        """JSON values: sections of keys."""
        found: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))  # type: ignore[call-overload]
        return found


@dataclass(frozen=True)
class TrainingConfig(RunConfig):
    """Everything that determines a meta-training run on classes."""

    data: Choice  # one of `sureshot.data.few_shot.FEW_SHOT_NAMES`
    learner: LearnerConfig
    episodes: EpisodesConfig = field(default_factory=EpisodesConfig)
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    training: OptimisationConfig = field(default_factory=OptimisationConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)


@dataclass(frozen=True)
class FunctionTrainingConfig(RunConfig):
    """Everything that determines a meta-training run on functions."""

    data: Choice  # see `sureshot.meta.functions.load_functions`
    learner: Choice  # see `sureshot.meta.processes.make_process`; its ``seed`` is that of the training unless given
    episodes: FunctionProtocol = field(default_factory=FunctionProtocol)
    training: OptimisationConfig = field(default_factory=OptimisationConfig)
    validation: FunctionValidationConfig = field(default_factory=FunctionValidationConfig)


def run_config(tables: Mapping[str, Any]) -> TrainingConfig | FunctionTrainingConfig:
    """The settings of a run on classes or on functions, from nested mappings; `from_file` reads them."""
    return (FunctionTrainingConfig if _on_functions(tables) else TrainingConfig).from_dict(tables)


def _on_functions(tables: Mapping[str, Any]) -> bool:
    """By the name of the data; of data of others, or none, by that of the learner."""
    parts = (tables.get(section) for section in ("data", "learner"))
    data, learner = (part.get("name") if isinstance(part, Mapping) else None for part in parts)
    if data in FUNCTION_NAMES:
        return True
    if learner is None:
        return False
    from sureshot.data.few_shot import FEW_SHOT_NAMES
    from sureshot.meta.processes import PROCESSES

    return data not in FEW_SHOT_NAMES and learner in PROCESSES


def _with_preset(tables: Mapping[str, Any]) -> Mapping[str, Any]:
    """The sections with what their preset says, where they do not say otherwise."""
    if "preset" not in tables:
        return tables
    name, known = str(tables["preset"]), list(TRAINING_PRESETS)
    if name not in known:
        raise ValueError(f"there is no preset {name!r}{near(name, known)}; presets: {', '.join(known)}")
    preset = TRAINING_PRESETS[name]
    given = {section: table for section, table in tables.items() if section != "preset"}
    meant: dict[str, dict[str, Any]] = {
        "training": {
            "episodes": preset.episodes,
            "learning_rate": preset.learning_rate,
            "learning_rate_kernel": preset.learning_rate_kernel,
        }
    }
    if given.get("episodes", {}).get("protocol") is None:
        meant["episodes"] = dataclasses.asdict(preset.train)
    if "data" in given:
        meant["data"] = {"options": dict(preset.data_options.get(str(given["data"].get("name")), {}))}
    return _merged(meant, given)


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Nested mappings as one; `over` has the last word, and says what is a mapping."""
    found = {**under, **over}
    for key in under.keys() & over.keys():
        if isinstance(under[key], Mapping) and isinstance(over[key], Mapping):
            found[key] = _merged(under[key], over[key])
    return found


def at_least(section: str, config: object, least: int, *names: str) -> None:
    """ValueError for numbers of a section that are too small."""
    check_counts(least, **{f"{section}.{name}": getattr(config, name) for name in names})

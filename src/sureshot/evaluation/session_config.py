"""The settings of a comparison in sessions: data, methods, seeds, from a TOML file or from Python.

The keys of a TOML table are the fields of a dataclass below; what is not there is refused with the nearest names.
Options of data and of methods are checked by whoever takes them (`sureshot.incremental.session_data`,
`sureshot.evaluation.methods`), before anything is computed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sureshot.data.checks import listed, near
from sureshot.data.settings_files import from_file, section
from sureshot.evaluation.methods import make_method

_SECTIONS = ("data", "methods", "run")


@dataclass(frozen=True)
class SessionDataConfig:
    """Which protocol."""

    name: str  # one of `sureshot.incremental.session_data.SESSION_NAMES`
    options: dict[str, Any] = field(default_factory=dict)  # of that protocol, without its seed
    # Checkpoint of a deep classifier, or the folder of its training; all methods but those that train a network are
    # shown its embeddings.
    encoder: str | None = None

    def __post_init__(self) -> None:
        if "seed" in self.options:
            raise ValueError("data.options has a seed: give run.seeds, a list, in its place")


@dataclass(frozen=True)
class MethodConfig:
    """One row of the tables."""

    name: str  # one of `sureshot.evaluation.methods.METHOD_NAMES`
    label: str | None = None  # how to call it; its name by default
    options: dict[str, Any] = field(default_factory=dict)  # of that method

    def __post_init__(self) -> None:
        if self.label is not None and not self.label.strip():
            raise ValueError(
                f"methods.label must not be empty, got {self.label!r}: without one the method is called {self.name}"
            )
        if "seed" in self.options:
            raise ValueError(f"methods.options.seed, of {self.name}: give run.seeds in its place")

    @property
    def shown(self) -> str:
        """What it is called in tables."""
        return self.name if self.label is None else self.label


@dataclass(frozen=True)
class RunConfig:
    """How often."""

    seeds: tuple[int, ...] = (0,)  # each draws the order of the classes and the shots, and seeds the methods

    def __post_init__(self) -> None:
        wrong = not self.seeds or min(self.seeds) < 0 or max(self.seeds) >= 2**32
        if wrong or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"run.seeds must be different whole numbers from 0 to {2**32 - 1}, got {list(self.seeds)}")


@dataclass(frozen=True)
class SessionsConfig:
    """Everything that determines a comparison."""

    data: SessionDataConfig
    methods: tuple[MethodConfig, ...]
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        if not self.methods:
            raise ValueError("no methods: add at least one table [[methods]] with a name")
        twice = [label for label, times in Counter(one.shown for one in self.methods).items() if times > 1]
        if twice:
            raise ValueError(f'two methods are called {twice[0]!r}: tell them apart with label = "..."')
        for one in self.methods:
            make_method(one.name, **one.options)

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> SessionsConfig:
        """Read a TOML file."""
        return from_file(path, cls.from_dict)

    @classmethod
    def from_dict(cls, tables: Mapping[str, Any]) -> SessionsConfig:
        """From nested mappings, such as `as_dict` gives."""
        for name in tables:
            if name not in _SECTIONS:
                raise ValueError(f"unknown section [{name}]{near(name, _SECTIONS)}; sections: {listed(_SECTIONS)}")
        methods = tables.get("methods", ())
        if not isinstance(methods, Sequence) or not all(isinstance(one, Mapping) for one in methods):
            raise ValueError("methods must be tables [[methods]], one for each method, with a name")
        for name in ("data", "run"):
            if not isinstance(tables.get(name, {}), Mapping):
                raise ValueError(f"{name} must be a section [{name}] with keys, got {tables[name]!r}")
        return cls(
            section("data", SessionDataConfig, tables.get("data", {})),
            tuple(section("methods", MethodConfig, one) for one in methods),
            section("run", RunConfig, tables.get("run", {})),
        )

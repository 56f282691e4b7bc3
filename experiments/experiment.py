"""What an experiment is and what it returns.

A module defines a frozen dataclass of settings, a function ``run(data_root, progress, **settings)`` that returns an
`Outcome`, and an object ``EXPERIMENT``. It touches the disk only to read data; `experiments.tables` writes the outcome.

Nothing about the outcome is typed in by hand: numbers in the findings come from the run, and a `Verdict` says whether a
statement holds by a rule that the code states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar, get_type_hints

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from sureshot.data.typed_values import typed_value

Progress = Callable[[str, float], None]
"""``progress(what, fraction)`` with what is being done and the fraction done, 0 to 1."""

Config = TypeVar("Config")


@dataclass(frozen=True)
class Table:
    """A table with its caption."""

    name: str  # short, for the file name: lower case and hyphens
    caption: str  # what the rows and columns are, in markdown
    frame: pd.DataFrame  # columns become columns; the index is not shown
    digits: int = 3  # digits after the point of floating-point numbers in the written page (files keep all)
    # whether the numbers are a paper's. They go into a section of their own and never beside measured ones.
    published: bool = False
    significant: bool = False  # whether `digits` are significant ones, for numbers of different sizes
    on_page: bool = True  # whether the page shows it; a long one is in the file for programs only

    def written(self, value: float) -> str:
        """A number as the page has it."""
        if self.significant:
            return f"{value:.{self.digits}g}" if abs(value) < 10**self.digits else f"{value:.0f}"
        return f"{round(value, self.digits) + 0.0:.{self.digits}f}"  # + 0.0: no minus sign before a zero


@dataclass(frozen=True)
class Picture:
    """A figure with its name (as of a `Table`) and caption."""

    name: str
    caption: str
    figure: Figure


@dataclass(frozen=True)
class Verdict:
    """Whether a statement of a paper agrees with what was measured."""

    claim: str  # the statement, in our words
    source: str  # paper and section
    measured: str  # the numbers that decide, filled in from the run
    holds: bool  # computed from the numbers


@dataclass(frozen=True)
class Outcome:
    """What a run returns, all in memory."""

    title: str  # the head of the page, and what is measured and how, in markdown
    introduction: str
    tables: tuple[Table, ...]
    config: Any  # the settings of the run
    seeds: tuple[int, ...]
    findings: tuple[str, ...]  # paragraphs in markdown; every number in them is computed
    pictures: tuple[Picture, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    differences: tuple[str, ...] = ()  # what differs from the paper, one sentence each


class Run(Protocol):
    """The function of an experiment."""

    def __call__(self, *, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
        """Run with the defaults of the settings replaced by `options`.

        `data_root` is the folder of data files, or None for an experiment that needs none.
        """


@dataclass(frozen=True)
class Experiment:
    """A name, one line on what is measured, whether it reads a data root, and the run."""

    name: str
    summary: str
    needs_data: bool
    run: Run


@dataclass(frozen=True)
class ExperimentResult:
    """A finished experiment, as written to disk."""

    name: str
    tables: tuple[Table, ...]
    figures: tuple[Path, ...]  # the picture files
    verdicts: tuple[Verdict, ...]
    findings: str  # Markdown
    config: Mapping[str, Any]
    seeds: tuple[int, ...]
    wall_seconds: float
    command: str  # what repeats the run
    environment: Mapping[str, str | int]  # versions and hardware
    files: tuple[Path, ...] = field(default=())  # everything written; the page first

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "name": self.name,
            "command": self.command,
            "seeds": list(self.seeds),
            "wall_seconds": round(self.wall_seconds, 3),
            "environment": dict(self.environment),
            "config": dict(self.config),
            "tables": {
                table.name: {
                    "caption": table.caption,
                    "published": table.published,
                    "rows": [
                        {str(key): plain_value(value) for key, value in row.items()}
                        for row in table.frame.to_dict("records")
                    ],
                }
                for table in self.tables
            },
            "verdicts": [
                {"claim": v.claim, "source": v.source, "measured": v.measured, "holds": v.holds} for v in self.verdicts
            ],
            "findings": self.findings,
            "files": [path.as_posix() for path in self.files],
        }


def plain_value(value: Any) -> Any:
    """NumPy scalars as Python's, NaN and infinities as None, tuples as lists, paths as text."""
    if isinstance(value, Mapping):
        return {str(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(item) for item in value]
    if isinstance(value, str | bool | int) or value is None:
        return value
    if isinstance(value, Path):
        return value.as_posix()
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, float):
        return number if abs(number) < float("inf") else None
    return number


def configure(config: type[Config], options: Mapping[str, Any]) -> Config:
    """The settings of an experiment with some defaults replaced."""
    hints = get_type_hints(config)
    unknown = sorted(set(options) - set(hints))
    if unknown:
        raise ValueError(f"unknown option {unknown[0]!r}: this experiment has {', '.join(hints)}")
    chosen = {name: typed_value(name, hints[name], value) for name, value in options.items()}
    for name, value in chosen.items():
        if value == ():
            raise ValueError(f"{name} must not be empty; leave it out for its default")
    return config(**chosen)

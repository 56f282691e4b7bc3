"""The arguments of `KernelSearchClassifier`, checked and definite."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np

from sureshot.data.checks import near
from sureshot.estimators.arguments import check_choice, check_count
from sureshot.estimators.search.rule import RULES
from sureshot.structure.grammar import GRAMMARS, Grammar
from sureshot.structure.rejuvenation import Rejuvenation
from sureshot.structure.smc import Representation, SmcSettings
from sureshot.structure.structure import Structure

SCHEDULES = ("logarithmic", "linear", "once")
FIRST_BATCH = 16
SWEEPS, SWEEPS_OF_FEW = 2, 6
"""After a batch, and while there are few rows (`sureshot.structure.smc.FEW`): structures that are lost then are
seldom found again, and moves are cheap."""


@dataclass(frozen=True)
class SearchSettings:
    """What the user asked for; the names are those of `KernelSearchClassifier`."""

    n_particles: int
    grammar: Grammar
    representation: Representation
    n_rejuvenation: int | None  # None: as many sweeps as suit
    schedule: str | tuple[int, ...]
    structure: Structure | None
    window: int | None
    n_inducing: int | None
    standardize: bool
    predictive: str

    @classmethod
    def checked(cls, arguments: Mapping[str, Any]) -> SearchSettings:
        """The settings that the constructor's arguments stand for, all checked."""
        predictive = check_choice("predictive", arguments["predictive"], ("auto", *RULES))
        representation = check_choice("representation", arguments["representation"], get_args(Representation))
        if predictive == "stacked" and representation != "collapsed":
            raise ValueError("predictive='stacked' needs representation='collapsed': use 'auto' or 'integral'.")
        window, n_inducing = arguments["window"], arguments["n_inducing"]
        if n_inducing is not None and representation != "collapsed":
            raise ValueError("n_inducing needs representation='collapsed': leave one of them out.")
        structure, callback = arguments["structure"], arguments.get("callback")
        if callback is not None and not callable(callback):
            raise ValueError(f"callback must be None or a function of a SearchStep; got {callback!r}.")
        return cls(
            check_count("n_particles", arguments["n_particles"]),
            _grammar(arguments["grammar"]),
            representation,
            _sweeps(arguments["n_rejuvenation"]),
            _schedule(arguments["schedule"]),
            None if structure is None else _structure(structure),
            None if window is None else check_count("window", window),
            None if n_inducing is None else check_count("n_inducing", n_inducing),
            bool(check_choice("standardize", arguments["standardize"], (True, False))),
            predictive,
        )

    def smc(self, n_jobs: int | None, of_numbers: bool = False) -> SmcSettings:
        """Of a step: the paper's moves for the paper's representation; numbers have no variables to refresh."""
        moves = Rejuvenation.preset("paper" if self.representation == "whitened" else "default")
        if self.structure is not None:
            moves = replace(moves, moves={})
        if of_numbers:
            moves = replace(moves, refreshes=0)
        if self.n_rejuvenation is None:
            return SmcSettings(moves, SWEEPS, SWEEPS_OF_FEW, n_jobs=n_jobs)
        return SmcSettings(moves, self.n_rejuvenation, n_jobs=n_jobs)

    def batches(self, n_rows: int) -> list[int]:
        """Sizes of the batches in which so many rows are taken in."""
        if isinstance(self.schedule, tuple):
            ends = [min(n_rows, end) for end in np.cumsum(self.schedule)]
        elif self.schedule == "linear":
            ends = list(range(FIRST_BATCH, n_rows, FIRST_BATCH))
        elif self.schedule == "logarithmic":
            ends = [FIRST_BATCH * 2**k for k in range(max(0, math.ceil(math.log2(max(1, n_rows / FIRST_BATCH)))))]
        else:
            ends = []
        sizes = np.diff([0, *ends, n_rows])
        return [int(size) for size in sizes if size > 0]


def _sweeps(value: Any) -> int | None:
    if not isinstance(value, str):
        return check_count("n_rejuvenation", value, 0)
    if value != "auto":
        raise ValueError(f"n_rejuvenation must be 'auto' or a number of sweeps, 0 or more; got {value!r}.")
    return None


def _grammar(value: Any) -> Grammar:
    if isinstance(value, Grammar):
        return value
    if isinstance(value, str):
        return Grammar.preset(value)
    raise ValueError(f"grammar must be a Grammar or one of {', '.join(map(repr, GRAMMARS))}; got {value!r}.")


def _structure(value: Any) -> Structure:
    if isinstance(value, Structure):
        return value
    if not isinstance(value, str):
        raise ValueError(f"structure must be None or text such as 'LINEAR + PERIODIC'; got {value!r}.")
    try:
        return Structure.parse(value)
    except ValueError as error:
        raise ValueError(f"structure must be None or text such as 'LINEAR + PERIODIC': {error}") from error


def _schedule(value: Any) -> str | tuple[int, ...]:
    if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
        return tuple(check_count("each number of schedule", size) for size in value)
    if isinstance(value, str) and value in SCHEDULES:
        return value
    alike = near(value, SCHEDULES) if isinstance(value, str) else ""
    names = ", ".join(map(repr, SCHEDULES))
    raise ValueError(f"schedule must be one of {names}, or a list of sizes; got {value!r}{alike}.")

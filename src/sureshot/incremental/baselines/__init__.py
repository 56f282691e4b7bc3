"""Baselines on frozen features, by the names they state: a new one is one file in this folder.

`make_baseline` makes one with options. What all of them promise is in ``tests/contracts/test_incremental.py``.
"""

from __future__ import annotations

from typing import Any

from sureshot.data.checks import listed, near
from sureshot.data.typed_values import check_call_options
from sureshot.incremental.baselines.base import Baseline
from sureshot.members import members

__all__ = ["BASELINES", "Baseline", "make_baseline"]

BASELINES: dict[str, type[Baseline]] = members(Baseline, __name__)
"""Every baseline by its public name."""


def make_baseline(name: str, **options: Any) -> Baseline:
    """A baseline by its name, with the arguments of its class; `ValueError` for what it does not take."""
    if name not in BASELINES:
        raise ValueError(f"no baseline called {name!r}{near(name, BASELINES)}; names: {listed(list(BASELINES))}")
    check_call_options(name, BASELINES[name], options)
    made: Baseline = BASELINES[name](**options)
    return made

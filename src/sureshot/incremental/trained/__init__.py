"""Methods for classes in sessions whose network goes on learning, by the names they state.

They take images, or any rows that a backbone takes; a new one is one file in this folder. `make_trained` makes one with
options. Nothing else of `sureshot.incremental` knows networks.
"""

from __future__ import annotations

from typing import Any

from sureshot.data.checks import listed, near
from sureshot.data.typed_values import check_call_options
from sureshot.incremental.trained.base import NetworkMethod
from sureshot.members import members

__all__ = ["TRAINED", "NetworkMethod", "make_trained"]

TRAINED: dict[str, type[NetworkMethod]] = members(NetworkMethod, __name__)
"""Every method by its public name."""


def make_trained(
    name: str,
    seed: int = 0,  # of whatever it draws
    **options: Any,
) -> NetworkMethod:
    """A method by its name, with the fields of its class; `ValueError` for what it does not take."""
    if name not in TRAINED:
        raise ValueError(f"no method called {name!r}{near(name, TRAINED)}; names: {listed(list(TRAINED))}")
    check_call_options(name, TRAINED[name], options, given_otherwise=("seed",))
    made: NetworkMethod = TRAINED[name](seed=seed, **options)
    return made

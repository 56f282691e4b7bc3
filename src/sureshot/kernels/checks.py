"""What may stand in a kernel's settings and in a file that describes one; everything else is a one-line ValueError.

Sizes are checked before memory is taken for them, so that a file cannot make loading take memory or time for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Far above any real kernel, far below harm.
MAX_SIZE = 1_000_000  # numbers in one parameter
_MAX_DEPTH = 20
_MAX_PARTS = 200


def integer(value: Any, name: str, low: int = 1, high: int = MAX_SIZE) -> int:
    """An integer from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"the kernel's {name} must be an integer from {low} to {high}, got {value!r}.")
    return value


def integers(value: Any, name: str, low: int = 1) -> list[int]:
    """A list of at least one integer."""
    values = [integer(item, name, low) for item in listing(value, name)]
    if not values:
        raise ValueError(f"the kernel's {name} must not be empty.")
    return values


def smoothness(value: Any, name: str) -> float:
    """The order of a Matern kernel."""
    if isinstance(value, bool) or value not in (0.5, 1.5, 2.5):
        raise ValueError(f"the kernel's {name} must be 0.5, 1.5 or 2.5, got {value!r}.")
    return float(value)


def power(value: Any, name: str) -> int:
    """The degree of a polynomial."""
    return integer(value, name, 1, 20)


def width(value: Any, name: str) -> int | None:
    """A number of features, or None where it is left open."""
    return None if value is None else integer(value, name)


def columns(value: Any, name: str) -> tuple[int, ...]:
    """The columns of a row that a kernel looks at."""
    return tuple(integers(list(value) if isinstance(value, tuple) else value, name, low=0))


def listing(value: Any, name: str) -> list[Any]:
    """A list, as JSON has them."""
    if not isinstance(value, list):
        raise ValueError(f"the kernel's {name} must be a list, got {value!r}.")
    return value


def only_keys(config: Mapping[str, Any], known: set[str], needed: set[str] | None = None) -> None:
    """No entry beside the `known`, and all that are `needed`."""
    unknown = [key for key in config if key not in known]
    missing = sorted((needed or set()) - config.keys())
    if unknown or missing:
        what = f"unknown entries {unknown}" if unknown else f"missing entries {missing}"
        raise ValueError(f"malformed kernel configuration: {what}.")


def limit_parts(config: Any, label: str) -> None:
    """Refuse a tree of too many parts or levels, before anything is built; a part has its name at `label`."""
    if _count(config, label, 0) > _MAX_PARTS:
        raise ValueError(f"the kernel configuration has more than {_MAX_PARTS} parts.")


def _count(config: Any, label: str, depth: int) -> int:
    if not isinstance(config, Mapping) or not isinstance(config.get(label), str):
        raise ValueError(f'each part of a kernel configuration must be a mapping with the name of a "{label}".')
    if depth > _MAX_DEPTH:
        raise ValueError(f"the kernel configuration is nested more than {_MAX_DEPTH} deep.")
    parts = listing(config.get("kernels", []), "kernels")
    if "base_kernel" in config:
        parts = [*parts, config["base_kernel"]]
    return 1 + sum(_count(part, label, depth + 1) for part in parts)

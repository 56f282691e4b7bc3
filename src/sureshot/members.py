"""Members of a kind by name, found where they are written: a new one is a module, and no line in a list.

A member is a class that a module of the kind's package defines and that states a public name in its own body, as
``name = "logistic"``. Interfaces, and bases that several members share, state none.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import import_module
from typing import Any


def stated_name(kind: type) -> str | None:
    """What a class's own body says its ``name`` is."""
    name: str | None = vars(kind).get("name")
    return name


def members(
    base: type,
    package: str,  # whose modules are imported; not those of its subpackages
    name_of: Callable[[type], str | None] = stated_name,  # None for a class that is no member
) -> dict[str, Any]:
    """Classes derived from `base` by their names, in alphabetical order; `ValueError` for a name of two classes."""
    found: dict[str, Any] = {}
    for module in sorted(info.name for info in pkgutil.iter_modules(import_module(package).__path__)):
        place = f"{package}.{module}"
        for kind in vars(import_module(place)).values():
            if not (isinstance(kind, type) and issubclass(kind, base) and kind.__module__ == place):
                continue
            name = name_of(kind)
            if name is None or found.get(name) is kind:
                continue
            if name in found:
                first = found[name]
                raise ValueError(
                    f"two classes have the name {name!r}: {first.__module__}.{first.__qualname__} and "
                    f"{place}.{kind.__qualname__}; give one of them another"
                )
            found[name] = kind
    return dict(sorted(found.items()))

"""Packages whose public names are imported when they are first asked for, so that importing one part needs no other.

Such a package states its names twice, as any other does: where they come from, under ``if TYPE_CHECKING:``, and in
``__all__``. Its ``__getattr__`` follows these imports one at a time:

    if TYPE_CHECKING:
        from package.part import Name

    __all__ = ["Name"]
    __getattr__ = imported_when_asked_for(__name__)
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Callable
from functools import cache
from typing import Any


def imported_when_asked_for(package: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package."""

    def __getattr__(name: str) -> Any:
        place = _places(package).get(name)
        if place is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, own_name = place
        value = getattr(importlib.import_module(module), own_name)
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__


@cache
def _places(package: str) -> dict[str, tuple[str, str]]:
    """The module of each of a package's public names, and its name there, as told to type checkers."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    source: str = spec.loader.get_source(package)  # type: ignore[union-attr]
    return {
        alias.asname or alias.name: (node.module, alias.name)
        for block in ast.parse(source).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }

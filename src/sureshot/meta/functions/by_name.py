"""Tasks of numbers: functions to learn from a few of their values, by the names that settings call them.

Options are the arguments of the class or function in the tables below; docs/neural-processes.md has them. To add
functions, write a `FunctionSource` in a file of its own, and enter it there and in `FUNCTION_NAMES`. Data sets of
others (`sureshot.data.register_dataset`) that return `FunctionData` count like ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sureshot.data.few_shot import DATASETS, FEW_SHOT_NAMES
from sureshot.data.root import DataError, Root
from sureshot.data.typed_values import assembled, check_call_options
from sureshot.meta.functions.gaussian import GaussianFunctions
from sureshot.meta.functions.groups import groups
from sureshot.meta.functions.images import images
from sureshot.meta.functions.sinusoids import Sinusoids
from sureshot.meta.functions.source import FunctionData, FunctionSource

_DRAWN: dict[str, type[FunctionSource]] = {"functions": GaussianFunctions, "sinusoids": Sinusoids}
_FOUND: dict[str, Callable[..., FunctionData]] = {"images": images, "groups": groups}


def load_functions(name: str, root: Root = None, **options: Any) -> FunctionData:
    """Functions by name; of those that are drawn there is no end, and all parts are one source."""
    if name in _DRAWN:
        check_call_options(name, _DRAWN[name], options)
        source = _DRAWN[name](**options)
        return FunctionData(source, source, source, source.identity)
    others = [one for one in DATASETS if one not in FEW_SHOT_NAMES]
    known = dict.fromkeys([*_DRAWN, *others], images) | _FOUND  # by name; of others only what is asked for is imported
    if name in others:
        known[name] = DATASETS[name]
    found = assembled("functions", known, name, root, options)
    if not isinstance(found, FunctionData):
        raise DataError(f"the data set {name!r} returns {type(found).__name__}, and functions are FunctionData")
    return found

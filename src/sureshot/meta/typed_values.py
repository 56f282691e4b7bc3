"""Values of settings against the annotations of the dataclass that declares them.

What the sections of a configuration file and the switches of a learner share: a value of the wrong type is refused
where it is read, by name, not where it first breaks an operation.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from sureshot.data.checks import near


def typed_value(where: str, hint: Any, value: Any) -> Any:
    """A setting's value, if it is of the annotated type.

    Parameters
    ----------
    where : str
        What the setting is called in messages.
    hint : type
        ``int``, ``float`` (whole numbers become floating-point), ``str``, ``bool``, a `Literal`, ``tuple[int, int]``
        (lists become tuples), ``dict``, or a union of these with None.
    value : Any
        As TOML, JSON or a caller has it.

    Raises
    ------
    ValueError
        If it is of another type or no choice of a `Literal`; the message says what was expected.
    """
    if get_origin(hint) in (UnionType, Union):
        alternatives = get_args(hint)
        for alternative in alternatives:
            if _fits(alternative, value):
                return typed_value(where, alternative, value)
        expected = " or ".join(_in_words(alternative) for alternative in alternatives if alternative is not type(None))
        raise ValueError(f"{where} must be {expected}, got {value!r}")
    if not _fits(hint, value):
        choices = near(value, get_args(hint)) if isinstance(value, str) and get_origin(hint) is Literal else ""
        raise ValueError(f"{where} must be {_in_words(hint)}, got {value!r}{choices}")
    if hint is float:
        return float(value)
    return tuple(value) if get_origin(hint) is tuple else value


def _fits(hint: Any, value: Any) -> bool:
    origin = get_origin(hint)
    if origin is Literal:
        return value in get_args(hint)
    if origin is tuple:
        return isinstance(value, list | tuple) and len(value) == 2 and all(type(number) is int for number in value)
    if origin is dict:
        return isinstance(value, Mapping)
    if hint is float:
        return type(value) in (int, float)
    return type(value) is hint


def _in_words(hint: Any) -> str:
    origin = get_origin(hint)
    if origin is Literal:
        return "one of " + ", ".join(map(repr, get_args(hint)))
    if origin is tuple:
        return "a range of two whole numbers such as [1, 5]"
    if origin is dict:
        return "a table of options"
    return {int: "a whole number", float: "a number", str: "text", bool: "true or false"}[hint]

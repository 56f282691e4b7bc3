"""Values of settings against the annotations that declare them.

Settings come from files, from the command line and from Python, so anything can be in them. A value of another type is
refused by name where it is read, not where it first breaks an operation, or never does: the text ``"no"`` would count
as true, the text ``"12"`` as a list of two labels. What a setting takes is said once, by the annotation of a field of a
dataclass or of a keyword argument; a type that is new to annotations needs a row in the table below. Ranges (a seed is
not negative) are checked where settings are used.

Data sets and methods are chosen by name, and their options are the keyword arguments of what makes them.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import reprlib
from collections.abc import Callable, Collection, Mapping, Sequence
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from sureshot.data.checks import listed, near
from sureshot.data.root import DataError, Root

Made = TypeVar("Made")


def typed_value(
    where: str,  # what the setting is called in messages
    hint: Any,  # of `_KINDS`, a Literal, tuple[int, int] (a range), tuple[T, ...], Sequence[T], or a union of these
    value: Any,  # as TOML, JSON or a caller has it
) -> Any:
    """A setting's value, if it is of the annotated type; otherwise a ValueError that says what was expected.

    Numbers become Python's, whole ones floating-point if annotated so; lists and arrays become tuples.
    """
    origin, of = get_origin(hint), get_args(hint)
    kind = origin or hint
    if kind in (UnionType, Union):
        for alternative in of:
            with contextlib.suppress(ValueError):
                return typed_value(where, alternative, value)
    elif kind is Literal:
        if value in of:
            return value
    elif kind in (tuple, Sequence):
        entries = value.tolist() if isinstance(value, np.ndarray) else value
        if isinstance(entries, Sequence) and not isinstance(entries, str | bytes):
            hints = of if _is_range(hint) else of[:1] * len(entries)
            if len(entries) == len(hints):
                pairs = zip(hints, entries, strict=True)
                return tuple(typed_value(f"each entry of {where}", one, entry) for one, entry in pairs)
    elif isinstance(value, _known(kind)[2]) and (kind is bool or not isinstance(value, bool)):
        return kind(value) if kind in (bool, int, float) else value
    choices = near(value, of) if kind is Literal and isinstance(value, str) else ""
    raise ValueError(f"{where} must be {_in_words(hint)}, got {reprlib.repr(value)}{choices}")


def check_call_options(
    name: str,  # what is being made, for messages
    make: Callable[..., object],  # a function, or a class with annotated arguments
    options: Mapping[str, object],
    given_otherwise: Collection[str] = (),  # its arguments that are no options
) -> None:
    """Refuse unknown options, options that are missing, and values of another type than the annotations say."""
    known = inspect.signature(make).parameters
    several = [key for key, value in known.items() if value.kind in (value.VAR_POSITIONAL, value.VAR_KEYWORD)]
    parameters = {key: value for key, value in known.items() if key not in (*given_otherwise, *several)}
    for option in options:
        if option not in parameters and not several:  # else whoever takes any option says so
            names = listed(list(parameters)) or "none"
            raise DataError(f"{name} has no option {option!r}{near(str(option), parameters)}; options: {names}")
    absent = [key for key, value in parameters.items() if value.default is value.empty and key not in options]
    if absent:
        raise DataError(f"{name} needs the option {listed(absent)}")
    check_values(name, make, options)


def assembled(
    what: str,  # is wanted, for messages
    assemblers: Mapping[str, Callable[..., Made]],  # by name
    name: str,
    root: Root,
    options: Mapping[str, Any],
) -> Made:
    """What the assembler of that name makes of the files below a data root, options checked."""
    if not isinstance(name, str) or name not in assemblers:
        raise DataError(f"no {what} called {name!r}{near(str(name), assemblers)}; names: {', '.join(assemblers)}")
    assemble = assemblers[name]
    check_call_options(name, assemble, options, given_otherwise=("root",))
    check_values(name, assemble, {"root": root})
    return assemble(root, **options)


def check_values(name: str, make: Callable[..., object], options: Mapping[str, object]) -> None:
    """Refuse values of another type than the annotations of what takes them say; what has none takes anything."""
    hints = get_type_hints(make.__init__ if isinstance(make, type) else make)  # type: ignore[misc]
    for option in [option for option in options if option in hints]:
        try:
            typed_value(option, hints[option], options[option])
        except ValueError as error:
            raise DataError(f"{name}: {error}") from None


def _is_range(hint: Any) -> bool:
    return get_origin(hint) is tuple and ... not in get_args(hint)


def _in_words(hint: Any, plural: bool = False) -> str:
    origin, of = get_origin(hint), get_args(hint)
    if origin in (UnionType, Union):
        return " or ".join(_in_words(alternative, plural) for alternative in of if alternative is not NoneType)
    if origin is Literal:
        return "one of " + ", ".join(map(repr, of))
    if _is_range(hint):
        return "a range of two whole numbers such as [1, 5]"
    if origin in (tuple, Sequence):
        return f"{'lists' if plural else 'a list'} of {_in_words(of[0], plural=True)}"
    one, many, _ = _known(origin or hint)
    return many if plural else one


def _known(kind: Any) -> tuple[str, str, Any]:
    """A row of the table; of a class that is not in it, as others may write, its name and itself."""
    return _KINDS.get(kind, (*[getattr(kind, "__name__", str(kind))] * 2, kind))


_KINDS: dict[Any, tuple[str, str, Any]] = {
    bool: ("true or false", "true or false", bool | np.bool_),
    int: ("a whole number", "whole numbers", Integral),
    float: ("a number", "numbers", Real),
    str: ("text", "text", str),
    os.PathLike: ("a path", "paths", os.PathLike),
    dict: ("a table of options", "tables of options", Mapping),
    Mapping: ("a table of options", "tables of options", Mapping),
    Any: ("anything", "anything", object),
    NoneType: ("nothing", "nothing", NoneType),
}
"""One and several of a type in words, and what passes for it."""

"""What the options of few-shot data may be.

Options come from files, from the command line and from Python, so anything can be in them. A wrong kind must not
pass: the text ``"no"`` would count as true, the text ``"12"`` as a list of two labels. What an option takes is said
once, by the annotation of the keyword argument in the function that assembles the set; the table below has what each
annotation means, and a new one needs a row there. Ranges (a seed is not negative) are checked where options are used.
"""

from __future__ import annotations

import functools
import operator
import os
import reprlib
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from types import NoneType
from typing import Any, get_args, get_type_hints

import numpy as np

from sureshot.data.root import DataError


def check_options(name: str, assemble: Callable[..., object], options: Mapping[str, object]) -> None:
    """Refuse values of another kind than the annotations say.

    Parameters
    ----------
    name : str
        Of the few-shot data, for messages.
    assemble : callable
        With an annotation for each option.
    options : mapping
        Values by keyword; all are arguments of the function.

    Raises
    ------
    DataError
        Naming the option, what was expected and what came.
    """
    hints = get_type_hints(assemble)
    for option, value in options.items():
        alternatives = get_args(hints[option])
        optional = NoneType in alternatives
        if optional and value is None:
            continue
        required = (kind for kind in alternatives if kind is not NoneType)
        kind = functools.reduce(operator.or_, required) if optional else hints[option]
        expected, fits = _KINDS[kind]
        if not fits(value):
            raise DataError(f"{name}: {option}={reprlib.repr(value)}, expected {expected}")


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_list(value: object, of: type | tuple[type, ...]) -> bool:
    value = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return False
    return all(isinstance(one, of) for one in value)


_KINDS: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    bool: ("true or false", lambda value: isinstance(value, bool | np.bool_)),
    int: ("a whole number", _is_whole),
    str: ("a text", lambda value: isinstance(value, str)),
    str | os.PathLike[str]: ("a path", lambda value: isinstance(value, str | os.PathLike)),
    str | int: ("a label, text or a whole number", lambda value: isinstance(value, str | Integral)),
    Sequence[float]: ("a list of numbers", lambda value: _is_list(value, Real)),
    Sequence[str | int]: ("a list of labels, texts or whole numbers", lambda value: _is_list(value, (str, Integral))),
    Mapping[str, Any]: ("a mapping of options by their names", lambda value: isinstance(value, Mapping)),
}

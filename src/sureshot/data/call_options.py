"""Options that are given by name to one of several functions, checked before it is called.

Data sets and methods are chosen by name, in files of settings and on the command line. What each takes is said once, by
the keyword arguments of what makes it and their annotations.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import get_type_hints

from sureshot.data.checks import listed, near
from sureshot.data.root import DataError
from sureshot.data.typed_values import typed_value


def check_call_options(
    name: str,  # what is being made, for messages
    make: Callable[..., object],  # a function, or a class with annotated arguments
    options: Mapping[str, object],
    given_otherwise: Collection[str] = (),  # its arguments that are no options
) -> None:
    """Refuse unknown options, options that are missing, and values of another type than the annotations say."""
    parameters = {key: value for key, value in inspect.signature(make).parameters.items() if key not in given_otherwise}
    for option in options:
        if option not in parameters:
            known = listed(list(parameters)) or "none"
            raise DataError(f"{name} has no option {option!r}{near(str(option), parameters)}; options: {known}")
    absent = [key for key, value in parameters.items() if value.default is value.empty and key not in options]
    if absent:
        raise DataError(f"{name} needs the option {listed(absent)}")
    check_values(name, make, options)


def check_values(name: str, make: Callable[..., object], options: Mapping[str, object]) -> None:
    """Refuse values of another type than the annotations of what takes them say."""
    hints = get_type_hints(make.__init__ if isinstance(make, type) else make)  # type: ignore[misc]
    for option, value in options.items():
        try:
            typed_value(option, hints[option], value)
        except ValueError as error:
            raise DataError(f"{name}: {error}") from None

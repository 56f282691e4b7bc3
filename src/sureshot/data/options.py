"""What the options of few-shot data may be: what the function that assembles the set says of its keyword arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import get_type_hints

from sureshot.data.root import DataError
from sureshot.data.typed_values import typed_value


def check_options(
    name: str,  # of the few-shot data, for messages
    assemble: Callable[..., object],  # with an annotation for each option
    options: Mapping[str, object],  # values by keyword; all are arguments of the function
) -> None:
    """Refuse values of another type than the annotations say; see `sureshot.data.typed_values`."""
    hints = get_type_hints(assemble)
    for option, value in options.items():
        try:
            typed_value(option, hints[option], value)
        except ValueError as error:
            raise DataError(f"{name}: {error}") from None

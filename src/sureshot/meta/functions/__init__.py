"""Tasks of numbers: functions to learn from a few of their values; see `by_name`."""

from typing import TYPE_CHECKING

from sureshot.lazy import imported_when_asked_for

if TYPE_CHECKING:
    from sureshot.meta.functions.by_name import load_functions
    from sureshot.meta.functions.source import FunctionData, FunctionRows, FunctionSource
    from sureshot.meta.protocols import FunctionProtocol

__all__ = ["FUNCTION_NAMES", "FunctionData", "FunctionProtocol", "FunctionRows", "FunctionSource", "load_functions"]

FUNCTION_NAMES = ("functions", "sinusoids", "images", "groups")  # here, as settings are read before anything slow

__getattr__ = imported_when_asked_for(__name__)

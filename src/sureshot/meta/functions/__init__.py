"""Tasks of numbers: functions to learn from a few of their values; `load_functions` has them by name."""

from sureshot.meta.functions.by_name import FUNCTION_NAMES, FunctionData, load_functions
from sureshot.meta.functions.source import FunctionProtocol, FunctionRows, FunctionSource

__all__ = ["FUNCTION_NAMES", "FunctionData", "FunctionProtocol", "FunctionRows", "FunctionSource", "load_functions"]

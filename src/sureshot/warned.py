"""Warnings that point at the caller's line, however deep inside they come from; imports nothing of ours."""

from __future__ import annotations

import sys
import warnings

_PACKAGE = __name__.partition(".")[0]


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """As `warnings.warn`, at the line that called this package: of several calls within each other the outermost."""
    level = outermost = 1
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame, level = frame.f_back, level + 1
        if str(frame.f_globals.get("__name__")).partition(".")[0] == _PACKAGE:
            outermost = level
    warnings.warn(message, category, stacklevel=outermost + 2)

"""How numbers are shown to people; imports nothing of ours."""

from __future__ import annotations

import math

ROUNDING = 1e-12
"""Of sums of numbers about one: what is smaller is zero."""


def rounded(value: float, decimals: int, error: float = math.nan) -> str:
    """With so many decimals, or more where they would hide the first two digits; with the standard error if finite."""
    known = math.isfinite(error)
    size = max(abs(value), error if known else 0.0)
    if ROUNDING < size < 1:
        decimals = max(decimals, 1 - math.floor(math.log10(size)))
    return f"{value:.{decimals}f}" + f" ± {error:.{decimals}f}" * known

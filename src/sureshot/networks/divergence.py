"""When a run has diverged, and from which checkpoint another can start.

A loss beyond `LARGEST_LOSS` is one sign of it. Numbers that are not finite are another; they come up late and far from
their cause: in a loss, in a gradient, in a factorisation deep inside the inference, or in a validation long after the
step that was too long. An error from there may also be a mistake, such as settings that do not fit the tasks, and must
then stay what it is. So an error is one of numbers only if a matrix could not be factorised or its message says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

_ABOUT_NUMBERS = re.compile(r"\b(finite|infinite|infinity|definite|nan|inf|overflow)\b", re.IGNORECASE)


LARGEST_LOSS = 1e6
"""In nats for each row, of a run that continues; the true class then has probability ``exp(-1e6)``."""


class DivergedError(ValueError):
    """Training came to a loss beyond any use, or to numbers that are not finite.

    The message names step, trainee and last good checkpoint.
    """


@dataclass(frozen=True)
class Saved:
    """A checkpoint that a run has written."""

    path: Path
    units: int  # trained when it was written


def is_about_numbers(error: Exception) -> bool:
    """Whether an error comes from numbers that are not finite, as far as its type and message tell."""
    return isinstance(error, torch.linalg.LinAlgError) or _ABOUT_NUMBERS.search(str(error)) is not None


def not_finite(arrays: Mapping[str, Tensor]) -> list[str]:
    """The names of those that hold NaN or infinite numbers."""
    return [name for name, value in arrays.items() if not bool(torch.isfinite(value).all())]


def last_good_checkpoint(saved: Iterable[Saved], units: int, unit: str) -> str:
    """In words, the last checkpoint that a run which failed after so many units had left behind without trouble.

    That of the very state that failed is no good one: resuming from it fails again.
    """
    found = sorted(saved, key=lambda checkpoint: checkpoint.units)
    good = [checkpoint for checkpoint in found if checkpoint.units < units]
    if good:
        return f"the last good checkpoint is {good[-1].path} (after {good[-1].units} {unit})"
    if found:
        return f"the last checkpoint, {found[-1].path}, is of the state that failed, so it may be affected already"
    return "no checkpoint was written yet"

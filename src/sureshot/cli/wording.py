"""Errors of the library in the words of the command line: options in the place of arguments."""

from __future__ import annotations

import re

_OPTIONS = {
    "n_particles": "--particles",
    "n_rejuvenation": "--rejuvenation",
    "n_inducing": "--inducing",
    "n_jobs": "--jobs",
    "random_state": "--seed",
    "row_id": "--id",
    "kernel": "--kernel",
    "likelihood": "--likelihood",
    "inference": "--inference",
    "objective": "--objective",
    "strategy": "--strategy",
    "schedule": "--schedule",
    "structure": "--structure",
    "grammar": "--grammar",
    "window": "--window",
}
"""Of arguments, by name."""
_ARGUMENT = "|".join(_OPTIONS)


def as_options(message: str) -> str:
    """The message of an error with options where it names arguments."""
    message = re.sub(r"""columns=\{(['"])(.*?)\1: '(\w+)'\}""", r"--kind \1\2=\3\1", message)
    message = re.sub(r"\brow_id=(?= )", "--id", message)
    message = re.sub(rf"\b({_ARGUMENT})='?([\w.]+)'?", lambda found: f"{_OPTIONS[found[1]]} {found[2]}", message)
    message = re.sub(rf"^({_ARGUMENT})\b", lambda found: _OPTIONS[found[1]], message)
    message = re.sub(r"^each number of schedule\b", "each number of --schedule", message)
    message = message.removesuffix(" partial_fit takes one class, and others later.")
    return re.sub(r"\bpartial_fit\b", "`sureshot update`", message)

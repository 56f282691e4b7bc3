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
_KIND = re.compile(r"""(['"])(.*?)\1: '(\w+)'""")
_TOKEN = re.compile(r"""(['"])(.*?)\1""")


def as_options(message: str) -> str:
    """The message of an error with options where it names arguments."""
    message = re.sub(r"columns=\{([^{}]*)\}", _kinds, message)
    message = re.sub(r"read_table\(\.\.\., missing=\[([^]]*)\]\)", _tokens, message)
    message = re.sub(r"^influence\b", "--why: influence", message)
    message = re.sub(r"\btask='(\w+)'", r"--task \1", message)
    message = re.sub(r"\brow_id=(?= )", "--id", message)
    message = re.sub(rf"\b({_ARGUMENT})='?([\w.]+)'?", lambda found: f"{_OPTIONS[found[1]]} {found[2]}", message)
    message = re.sub(rf"^({_ARGUMENT})\b", lambda found: _OPTIONS[found[1]], message)
    message = re.sub(r"^each number of schedule\b", "each number of --schedule", message)
    message = message.removesuffix(" partial_fit takes one class, and others later.")
    return re.sub(r"\bpartial_fit\b", "`sureshot update`", message)


def _kinds(found: re.Match[str]) -> str:
    """Kinds of columns, as in `columns={'a': 'date', 'b': 'number'}`."""
    return " ".join(f"--kind {quote}{name}={kind}{quote}" for quote, name, kind in _KIND.findall(found[1]))


def _tokens(found: re.Match[str]) -> str:
    """Cells that are gaps, as in `missing=['unknown', 'n/k']`."""
    return " ".join(f"--missing {quote}{token}{quote}" for quote, token in _TOKEN.findall(found[1]))

"""What ``sureshot search`` found, as the terminal and the report tell it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

    from sureshot.data import DataTable

SCORES = {"accuracy": "accuracy", "nll": "NLL (nats)", "brier": "Brier", "ece": "ECE"}


class Rows(NamedTuple):
    """What is learnt, part by part, and what is asked about."""

    parts: list[np.ndarray]  # row numbers of `table` that come together, in the order in which they come
    table: DataTable
    test: DataTable | None  # None if no row is left for it
    baseline: Any  # the frequencies of the classes, with scikit-learn's contract
    streamed: bool


def meaning_of_evidence(summary: dict[str, Any]) -> str:
    """The log-evidence in words."""
    each = summary["evidence_for_each_label"]
    if summary["waits"]:
        return "all rows that are kept are of one class, so nothing is learnt, and kernels are those of the prior"
    if len(summary["classes"]) == 2 and each is None:
        return "of a window, whose rows come and go with an error each; to compare kernels, fit the rows of one window"
    if each is None:
        return "of comparisons of classes; compares searches of the same rows"
    return f"as if each label had been given {each:.2f} before it was seen"


def evidence_and_error(summary: dict[str, Any]) -> str:
    """The log-evidence with its standard error, where it has one."""
    error = summary["log_evidence_error"]
    return f"{summary['log_evidence']:.2f}" + (f" ± {error:.2f}" if error else "")


def columns_named(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Number and name of each column that a structure names by its number."""
    text = " ".join(one["structure"] for one in summary["kernel_posterior"])
    places = sorted({int(place) for place in re.findall(r"\[(\d+)\]", text)})
    return [(f"[{place}]", summary["kernel_columns"][place]) for place in places]

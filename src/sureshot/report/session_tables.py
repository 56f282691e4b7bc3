"""What is shown of a comparison in sessions: its tables and figures, for any page that has one.

The study's frames are averaged over seeds; a table leaves out what was not measured.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Literal

import numpy as np
import pandas as pd

from sureshot.evaluation.session_study import HIGHER_IS_BETTER, SUMMARY, SessionStudy, averaged
from sureshot.report.content import Cell, Measured, Picture, Table, as_sentence
from sureshot.report.session_plots import session_lines, session_matrices

_KNOWN = ("accuracy", "average_accuracy", "forgetting", "base_accuracy", "novel_accuracy", "harmonic_mean")
_PROBABILITIES = ("nll", "ece", "brier", "out_of_scope_auroc")
_COST = ("numbers_per_class", "shared_numbers", "learn_seconds", "predict_seconds")
_COUNTS = ("numbers_per_class", "shared_numbers")
_CURVES = {
    "accuracy": "accuracy",
    "forgetting": "average forgetting",
    "harmonic_mean": "harmonic mean of base and novel",
    "nll": "NLL (nats)",
    "ece": "ECE",
    "out_of_scope_auroc": "out-of-scope AUROC",
}


def session_tables(study: SessionStudy) -> tuple[Table, ...]:
    """What is known after the last session, how sure methods are, what they cost; then scores by session."""
    table = averaged(study.summary(), ["method"])
    several = len(next(iter(study.evaluations.values()))) > 1
    errors = " ± is the standard error over seeds." if several else ""
    parts = [
        ("After the last session", _KNOWN, "Of all classes; the average accuracy is over all sessions." + errors),
        ("Probabilities", _PROBABILITIES, "After the last session." + errors),
        (
            "Memory and time",
            _COST,
            "Numbers kept after the last session: for a class, on average, and whatever the number of classes is. "
            "Seconds to learn all sessions, and to predict all test rows after the last.",
        ),
    ]
    return (
        *(_table(table, columns, several, heading, note) for heading, columns, note in parts),
        *(_by_session(study, column, heading) for column, heading in _CURVES.items() if _measured(study, column)),
    )


def session_curves(study: SessionStudy) -> Picture:
    """A panel for each score that was measured, a line for each method."""
    frame = averaged(study.by_session(), ["method", "session"])
    panels = {
        heading: {
            str(method): [Measured(*pair) for pair in zip(group[column], group[f"{column} s.e."], strict=True)]
            for method, group in frame.groupby("method", sort=False)
        }
        for column, heading in _CURVES.items()
        if _measured(study, column)
    }
    return Picture(
        "Session by session",
        session_lines(panels),
        "Scores of each method after each session",
        "After each session, of all classes seen so far; bands are standard errors over the seeds. Forgetting: how far "
        "the accuracy on earlier sessions' classes is below its best so far; new classes take a share of it even where "
        "nothing that was learnt changes.",
    )


def matrices_picture(study: SessionStudy) -> Picture:
    """What each method knows of each session's classes."""
    matrices = {
        method: np.mean([found.matrix for found in by_seed.values()], axis=0)
        for method, by_seed in study.evaluations.items()
    }
    return Picture(
        "Who is still known",
        session_matrices(matrices),
        "Accuracy on the classes of each session after each session",
        "A row is a moment, a column the classes of one session: downwards one sees how well they are still known.",
    )


def _table(frame: pd.DataFrame, wanted: tuple[str, ...], several: bool, heading: str, note: str) -> Table:
    columns = [column for column in wanted if frame[column].notna().any()]

    def cell(record: dict[Hashable, Any], column: str) -> Cell:
        value = float(record[column])
        if value != value:
            return None
        if column in _COST:
            return round(value) if column in _COUNTS else round(value, 2)
        return Measured(value, float(record[f"{column} s.e."])) if several else round(value, 3)

    marks = tuple(None if column in _COST else _better(column) for column in columns)
    return Table(
        ("method", *(SUMMARY[column] for column in columns)),
        tuple((str(row["method"]), *(cell(row, column) for column in columns)) for row in frame.to_dict("records")),
        better=(None, *marks),
        note=note,
        heading=heading,
    )


def _by_session(study: SessionStudy, column: str, heading: str) -> Table:
    frame = averaged(study.by_session(), ["method", "session"]).pivot(index="method", columns="session", values=column)
    frame = frame.loc[list(study.evaluations)].dropna(axis=1, how="all")
    columns, better = [str(session) for session in frame.columns], [_better(column)] * len(frame.columns)
    note = "Columns are sessions, 0 the base session; means over the seeds."
    if column == "accuracy" and len(columns) > 1:
        frame = frame.assign(drop=frame.iloc[:, 0] - frame.iloc[:, -1])
        columns, better = [*columns, "drop"], [*better, "lower"]
        note += " Drop: from the first to the last."
    rows = tuple(
        (str(method), *(None if value != value else round(float(value), 3) for value in values))
        for method, values in zip(frame.index, frame.to_numpy(), strict=True)
    )
    return Table(("method", *columns), rows, better=(None, *better), note=note, heading=as_sentence(heading))


def _better(column: str) -> Literal["higher", "lower"]:
    return "higher" if column in HIGHER_IS_BETTER else "lower"


def _measured(study: SessionStudy, column: str) -> bool:
    return bool(study.by_session()[column].notna().any())

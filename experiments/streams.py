"""Streams in time order: each batch is predicted, then learnt, by a classifier that knows when rows came and by others.

Whole streams, with all their columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from experiments.batch_learners import AdaptiveForest, BatchLearner, Incremental, Refitted, quiet, river_is_installed
from experiments.campaigns.cells import CampaignConfig
from experiments.campaigns.methods import MethodCell, Record, check_names, described, what_is_missing
from experiments.experiment import Experiment, Outcome, Progress, Verdict, configure
from experiments.smc_streams import (
    ADAPTIVE,
    STREAMS,
    curve_frame,
    load_stream,
    prequential_curves,
    prequential_step,
    stream_tables,
    summary_frame,
)
from sureshot.computing.threads import one_thread
from sureshot.estimators.gp.classifier import GPClassifier

NAME = "streams"
OURS, FREQUENCIES = "sureshot", "class frequencies of 500 rows"
REFITTED: dict[str, tuple[Callable[[], Any], int]] = {
    FREQUENCIES: (DummyClassifier, 500),
    "logistic regression on 1000 rows": (LogisticRegression, 1000),
    "HistGradientBoosting on 5000 rows": (
        partial(HistGradientBoostingClassifier, early_stopping=True, random_state=0),
        5000,
    ),
}
"""By name, what is refitted to the rows of a window after every batch, and how many these are."""
METHODS = (FREQUENCIES, "logistic regression on 1000 rows", ADAPTIVE, "HistGradientBoosting on 5000 rows", OURS)
MOST_NLL = {"elec2": 0.40, "noaa_weather": 0.43}
_AIM = "this project's aim"


@dataclass(frozen=True)
class StreamsConfig(CampaignConfig):
    """Settings."""

    streams: tuple[str, ...] = STREAMS
    methods: tuple[str, ...] = METHODS
    first: int = 500  # rows that are learnt from before the first is predicted
    batch: int = 50
    rows: int = 0  # the first so many of each stream; 0: all
    seed: int = 0


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """Run the missing cells, and make the page of all that are there."""
    settings = configure(StreamsConfig, options)
    cells = campaign_cells(settings)
    runnable = [cell for cell in cells if cell.method != ADAPTIVE or river_is_installed() or not settings.train]
    records = settings.records(NAME, runnable, partial(run_cell, data_root, settings), progress)
    return outcome_of(records, cells, settings)


def campaign_cells(settings: StreamsConfig) -> list[MethodCell]:
    """The quick ones first."""
    check_names("stream", settings.streams, STREAMS)
    check_names("method", settings.methods, METHODS)
    further = {name: getattr(settings, name) for name in ("first", "batch", "rows")}
    protocol: dict[str, str | int] = {"protocol": "prequential", "seed": settings.seed}
    return [
        MethodCell(stream, method, protocol, _described(method), further)
        for method in METHODS
        if method in settings.methods
        for stream in settings.streams
    ]


def run_cell(
    root: Path | None, settings: StreamsConfig, cell: MethodCell, folder: Path, progress: Progress
) -> dict[str, Any]:
    """Run a cell; the result for its record."""
    x, y = load_stream(cell.data, root, settings.rows or None, every_column=True)
    starts = [0, *range(settings.first, len(y), settings.batch)]
    with quiet(), one_thread():
        learner = _learner(cell.method, np.unique(y), settings.seed)
        found = []
        for start, stop in zip(starts, [*starts[1:], len(y)], strict=True):
            progress(f"row {start}", start / len(y))
            found.append(prequential_step(learner, x[start:stop], y[start:stop], first=start == 0))
    return {"batches": found}


def outcome_of(records: Sequence[Record], cells: Sequence[MethodCell], settings: StreamsConfig) -> Outcome:
    """The outcome as far as the campaign has been run; ValueError if no cell has scores."""
    curves = curve_frame(records)
    if curves.empty:
        raise ValueError("no cell of this campaign has a result yet, so there is no table to make")
    summary = summary_frame(curves, records).drop(columns=["last ten batches"])
    of_rows = curves.groupby(["stream", "method"], sort=False)[["predict_seconds", "learn_seconds", "rows"]].sum()
    for part in ("predict", "learn"):
        of_row = 1000 * of_rows[f"{part}_seconds"] / of_rows["rows"]
        summary[f"{part}, ms a row"] = of_row.reindex(
            pd.MultiIndex.from_frame(summary[["stream", "method"]])
        ).to_numpy()
    return Outcome(
        title="Streams",
        introduction=(
            f"The {settings.rows or 'rows'} of each stream in time order, with all columns, in batches of "
            f"{settings.batch} after the first {settings.first}: a batch is predicted, scored, then learnt. "
            '`GPClassifier(time="arrival")` learns with `retune="auto"`: it chooses settings anew when the latest '
            "labels cost more than was promised, and when rows have doubled. Peers are refitted to their windows after "
            "every batch; the adaptive random forest is river's. One thread. Probabilities are clipped at 1e-6."
        ),
        tables=stream_tables("Over all rows but the first; seconds of the clock.", summary, curves),
        pictures=(prequential_curves(curves, OURS),),
        config=settings,
        seeds=(settings.seed,),
        findings=tuple(what_is_missing(records, cells)),
        verdicts=verdicts_of(summary),
    )


def verdicts_of(summary: pd.DataFrame) -> tuple[Verdict, ...]:
    """This project's aims, by stream."""
    found = []
    for stream, part in summary.groupby("stream", sort=False):
        nll = part.set_index("method")["nll"].dropna()
        if OURS not in nll or len(nll) < 2:
            continue
        ours, peers = nll[OURS], nll.drop(OURS)
        if str(stream) in MOST_NLL:
            most = MOST_NLL[str(stream)]
            found.append(Verdict(f"{stream}: NLL at most {most:.2f}", _AIM, f"{ours:.3f}", bool(ours <= most)))
        best = str(peers.idxmin())
        measured = f"{ours:.3f}; {best} {peers[best]:.3f}"
        found.append(Verdict(f"{stream}: NLL ahead of every peer", _AIM, measured, bool(ours < peers[best])))
    return tuple(found)


def _described(method: str) -> dict[str, Any]:
    if method == ADAPTIVE:
        return {"class": "river.forest.ARFClassifier"}
    if method in REFITTED:
        make, window = REFITTED[method]
        return {**described(make()), "window": window}
    return {**described(GPClassifier(time="arrival")), "retune": "auto"}


def _learner(method: str, classes: np.ndarray, seed: int) -> BatchLearner:
    if method == ADAPTIVE:
        return AdaptiveForest(classes, seed)
    if method in REFITTED:
        make, window = REFITTED[method]
        return Refitted(make, classes, window)
    return Incremental(GPClassifier(time="arrival"), classes, retune="auto")


EXPERIMENT = Experiment(NAME, "whole streams in time order beside peers, prequentially", True, run)

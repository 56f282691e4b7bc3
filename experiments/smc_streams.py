"""Structure discovery on streams: the first rows of three time-ordered tables, each batch predicted, then learned.

Kernel search and the random forest, which is fitted anew to each batch, know the rows of the window alone; the others
know what they have made of all rows so far.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.batch_learners import (
    LEAST_PROBABILITY,
    AdaptiveForest,
    BatchLearner,
    Incremental,
    quiet,
    river_is_installed,
)
from experiments.campaigns.cells import FAILED, CampaignConfig
from experiments.campaigns.methods import MethodCell, Record, check_names, described, what_is_missing
from experiments.experiment import Experiment, Outcome, Picture, Progress, Table, Verdict, configure
from experiments.figures import line_styles, new_figure, tidy
from experiments.smc_methods import METHODS, OURS, Context, search
from sureshot.data.root import data_file
from sureshot.estimators import KernelSearchClassifier
from sureshot.evaluation.streams import evaluate_batch
from sureshot.metrics.calibration import ReliabilityCurve
from sureshot.structure.grammar import Grammar

NAME = "smc-streams"
STREAMS = ("elec2", "noaa_weather", "sea")
DROPPED = {"elec2": ("date", "nswprice")}
"""Columns that the source advises to leave out: a price that the label follows from, and a clock."""
ADAPTIVE = "adaptive random forest"
LEAVES = ("LINEAR", "SQUARED-EXPONENTIAL", "GAMMA-EXPONENTIAL", "PERIODIC", "CONSTANT", "MATERN")
"""Kinds of leaves that kernel search has here."""
PEERS = ("naive Bayes", "SGD", "passive-aggressive", "random forest", ADAPTIVE)
_SCORES = ("accuracy", "nll", "brier")


@dataclass(frozen=True)
class SmcStreamsConfig(CampaignConfig):
    """Settings."""

    streams: tuple[str, ...] = STREAMS
    methods: tuple[str, ...] = (OURS, *PEERS)
    rows: int = 5000  # the first
    batch: int = 100
    window: int = 1000  # of kernel search and of the random forest
    particles: int = 16
    seed: int = 0


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """Run the missing cells, and make the page of all that are there."""
    settings = configure(SmcStreamsConfig, options)
    cells = campaign_cells(settings)
    runnable = [cell for cell in cells if cell.method != ADAPTIVE or river_is_installed() or not settings.train]
    run_one = partial(run_cell, data_root, settings)
    return outcome_of(settings.records(NAME, runnable, run_one, progress), cells, settings)


def campaign_cells(settings: SmcStreamsConfig) -> list[MethodCell]:
    """The quick ones first."""
    check_names("stream", settings.streams, STREAMS)
    check_names("method", settings.methods, (OURS, *PEERS))
    further = {name: getattr(settings, name) for name in ("rows", "batch", "window")}
    protocol: dict[str, str | int] = {"protocol": "prequential", "seed": settings.seed}
    methods = sorted(settings.methods, key=lambda method: method == OURS)
    return [
        MethodCell(stream, method, protocol, _described(method, settings), further)
        for method in methods
        for stream in settings.streams
    ]


def run_cell(
    root: Path | None, settings: SmcStreamsConfig, cell: MethodCell, folder: Path, progress: Progress
) -> dict[str, Any]:
    """Run a cell; the result for its record."""
    x, y = load_stream(cell.data, root, settings.rows)
    classes = np.unique(y)
    with quiet():
        learner = _learner(cell.method, settings, x.shape[1], classes)
        found = []
        for number, rows in enumerate(_batches(len(y), settings.batch)):
            progress(f"row {rows.start}", number * settings.batch / len(y))
            found.append(prequential_step(learner, x[rows], y[rows], first=number == 0))
    return {"batches": found}


def prequential_step(learner: BatchLearner, x: np.ndarray, y: np.ndarray, first: bool) -> dict[str, Any]:
    """Scores of a batch before it is learned, and seconds; accuracy alone for learners without probabilities."""
    found = asdict(evaluate_batch(learner, x, y, first, LEAST_PROBABILITY))
    if not learner.says_probabilities:
        found |= dict.fromkeys(("nll", "brier", "ece", "bins"))
    return {**found, "seconds": found["predict_seconds"] + found["learn_seconds"]}


def load_stream(
    name: str, root: Path | None, rows: int | None = None, every_column: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The first rows of a stream, or all; in time order without columns that tell the time or leak."""
    with np.load(data_file(f"streams/{name}.npz", root, "with arrays X, y and feature_names")) as data:
        kept = ~np.isin(data["feature_names"], () if every_column else DROPPED.get(name, ()))
        return data["X"][:rows][:, kept].astype(np.float64), data["y"][:rows].astype(np.int64)


def outcome_of(records: Sequence[Record], cells: Sequence[MethodCell], settings: SmcStreamsConfig) -> Outcome:
    """The outcome as far as the campaign has been run; ValueError if no cell has scores."""
    curves = curve_frame(records)
    if curves.empty:
        raise ValueError("no cell of this campaign has a result yet, so there is no table to make")
    summary = summary_frame(curves, records)
    return Outcome(
        title="Structure discovery on streams",
        introduction=(
            f"The first {settings.rows} rows of each stream in batches of {settings.batch}: a batch is predicted, "
            "scored, then learnt. Kernel search keeps the rows of its window and follows by resampling and moving its "
            "kernels; the random forest is fitted anew to the rows of the same window after each batch. Columns are "
            "standardised by all rows so far, for kernel search by the first batch. Probabilities are clipped at 1e-6."
        ),
        tables=stream_tables(
            "Over all rows but those of the first batch; ECE of all of them together; seconds to predict and learn "
            "everything. Passive-aggressive learning has no probabilities.",
            summary,
            curves,
        ),
        pictures=(prequential_curves(curves, OURS),),
        config=settings,
        seeds=(settings.seed,),
        findings=tuple(what_is_missing(records, cells)),
        verdicts=verdicts_of(summary),
        differences=(
            "The paper has no streams.",
            "Of elec2 the columns date and nswprice are left out, as its source advises.",
            "Kernel search has six kinds of leaves here; the default grammar has BROWNIAN, too.",
        ),
    )


def stream_tables(caption: str, summary: pd.DataFrame, curves: pd.DataFrame) -> tuple[Table, Table]:
    """That of streams and methods, and beside the page that of batches."""
    of_batches = curves.drop(columns=["bins", "new_classes"], errors="ignore")
    return Table("prequential", caption, summary), Table("curves", "Each batch.", of_batches, on_page=False)


def curve_frame(records: Sequence[Record]) -> pd.DataFrame:
    """One row for each scored batch."""
    rows = []
    for record in records:
        if FAILED in record:
            continue
        seen = 0
        for batch in record["batches"]:
            seen += batch["rows"]
            if batch.get("accuracy") is not None:
                labels = {"stream": record["labels"]["data"], "method": record["labels"]["method"]}
                rows.append({**labels, "seen": seen, **batch})
    frame = pd.DataFrame(rows)
    return frame if frame.empty else frame.astype(dict.fromkeys(_SCORES, float))


def summary_frame(curves: pd.DataFrame, records: Sequence[Record]) -> pd.DataFrame:
    """One row for each stream and method."""
    seconds = {
        (record["labels"]["data"], record["labels"]["method"]): sum(batch["seconds"] for batch in record["batches"])
        for record in records
        if FAILED not in record
    }
    rows = []
    for (stream, method), part in curves.groupby(["stream", "method"], sort=False):
        means = {name: float(np.average(part[name], weights=part["rows"])) for name in _SCORES}
        filled = [bins for bins in part["bins"] if bins is not None]
        ece = ReliabilityCurve.from_sums(*np.sum(filled, axis=0)).expected_error if filled else np.nan
        last = part["accuracy"].iloc[-10:].mean()
        rows.append(
            {"stream": stream, "method": method, **means, "ece": ece, "last ten batches": last}
            | {"seconds": seconds[stream, method]}
        )
    return pd.DataFrame(rows)


def verdicts_of(summary: pd.DataFrame) -> tuple[Verdict, ...]:
    """Whether ours is first, by stream."""
    found = []
    for stream, part in summary.groupby("stream", sort=False):
        for column, name, sign in (("accuracy", "accuracy", -1), ("nll", "NLL", 1)):
            by = part.set_index("method")[column].dropna()
            if OURS in by and len(by) > 1:
                best = str((sign * by.drop(OURS)).idxmin())
                claim = f"first of all methods in prequential {name} ({stream})"
                measured = f"{by[OURS]:.3f}; {best} {by[best]:.3f}"
                holds = bool(sign * by[OURS] < sign * by[best])
                found.append(Verdict(claim, "expected here", measured, holds))
    return tuple(found)


def prequential_curves(curves: pd.DataFrame, ours: str) -> Picture:
    """Accuracy and NLL of all rows so far, by stream."""
    streams, methods = list(curves["stream"].unique()), list(curves["method"].unique())
    styles = line_styles(methods, ours)
    figure = new_figure(3.3 * len(streams) + 0.6, 6.2)
    panels = figure.subplots(2, len(streams), squeeze=False, sharex=True)
    for column, stream in enumerate(streams):
        for axes, score in zip(panels[:, column], ("accuracy", "nll"), strict=True):
            for method in methods:
                part = curves[(curves["stream"] == stream) & (curves["method"] == method)]
                total = (part[score] * part["rows"]).cumsum() / part["rows"].cumsum()
                axes.plot(part["seen"], total, label=method, **styles[method])
            tidy(
                axes,
                stream if score == "accuracy" else "",
                "" if score == "accuracy" else "rows",
                "" if column else f"cumulative {score}",
            )
            if score == "nll":
                axes.set_ylim(0, min(1.5, axes.get_ylim()[1]))
    lines, names = panels[0, 0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return Picture("cumulative", "Prequential accuracy and NLL so far; NLL above 1.5 nats is cut off.", figure)


def _batches(n: int, size: int) -> Iterator[slice]:
    for begin in range(0, n, size):
        yield slice(begin, min(begin + size, n))


def _search(context: Context, settings: SmcStreamsConfig) -> KernelSearchClassifier:
    return search(context, window=settings.window).set_params(grammar=Grammar(leaves=dict.fromkeys(LEAVES, 1.0)))


def _described(method: str, settings: SmcStreamsConfig) -> dict[str, Any]:
    context = Context(1, settings.seed, settings.particles)
    if method == ADAPTIVE:
        return {"class": "river.forest.ARFClassifier"}
    return described(_search(context, settings) if method == OURS else METHODS[method].make(context))


def _learner(method: str, settings: SmcStreamsConfig, width: int, classes: np.ndarray) -> BatchLearner:
    context = Context(width, settings.seed, settings.particles)
    if method == ADAPTIVE:
        return AdaptiveForest(classes, settings.seed)
    if method == OURS:
        return Incremental(_search(context, settings), classes)
    return METHODS[method].learner(context, classes, settings.window)


EXPERIMENT = Experiment(
    NAME, "structure discovery on three streams beside five other methods, prequentially", True, run
)

"""Tables above 2000 rows beside boosting and forests, and how time and memory grow with the number of rows.

A campaign with a cell for each set, method and split, and for each method and number of rows of a simulated set. Each
is computed in a process of its own, whose memory is the method's alone (as Linux counts it), on one thread.

    python -m experiments large-tables --data FOLDER --set 'datasets=["phoneme"]' --set 'seeds=[0]' --set slope_rows=0
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from threadpoolctl import threadpool_limits

from experiments.batch_learners import quiet, scores
from experiments.campaigns.cells import FAILED, CampaignConfig
from experiments.campaigns.methods import (
    MethodCell,
    Record,
    by_split,
    check_names,
    described,
    tables_of_sets,
    what_is_missing,
)
from experiments.defaults import CATBOOST
from experiments.experiment import Experiment, Outcome, Progress, Table, Verdict, configure
from experiments.mixed_tables import AsCategories, AsText, CatBoostOnText, one_hot
from experiments.own_process import measured, on_its_own
from experiments.peers import random_forest
from experiments.smc_streams import load_stream
from sureshot.computing.threads import one_thread
from sureshot.data import load_table
from sureshot.data.root import data_file
from sureshot.estimators.gp.classifier import GPClassifier

NAME = "large-tables"
OURS, BOOSTING = "sureshot", "HistGradientBoosting"
LARGE = (
    *("magic", "eeg_eye_state", "dry_bean", "adult", "shuttle", "phishing", "online_shoppers", "nursery", "texture"),
    "phoneme",
)
STREAMS = ("elec2", "noaa_weather")
UCI = ("letter", "satimage", "pendigits", "spambase")
SIMULATED = {"simulated_2": 2, "simulated_5": 5}
"""By name, the number of classes."""
SETS = (*LARGE, *STREAMS, *UCI, *SIMULATED)
SIMULATED_ROWS, MOST_TEST_ROWS, SLOPE_TEST_ROWS = 25_000, 5000, 1000
MEASURES = {
    "nll": "Negative log-likelihood in nats, and its standard error over splits",
    "accuracy": "Accuracy",
    "ece": "Calibration error",
    "fit seconds": "Processor seconds of a fit",
    "prediction seconds": "Processor seconds of the prediction of all test rows",
    "fit MB": "Peak memory of a fit, MB above what was there before",
}
MOST_NLL = {"elec2": 0.13, "letter": 0.085, "satimage": 0.21, "spambase": 0.120}
_AIM = "this project's aim"


def boosting(**options: Any) -> Any:
    """Gradient boosting on text as categories, stopped early by a tenth of the rows."""
    model = HistGradientBoostingClassifier(
        categorical_features="from_dtype", early_stopping=True, random_state=0, **options
    )
    return make_pipeline(AsCategories(), model)


METHODS: dict[str, Callable[[], Any]] = {
    OURS: GPClassifier,
    BOOSTING: boosting,
    f"{BOOSTING}, 500 iterations": partial(boosting, max_iter=500),
    CATBOOST: lambda: make_pipeline(AsText(), CatBoostOnText()),
    "random forest": lambda: one_hot(random_forest()),
}
INSTALLED = tuple(name for name in METHODS if name != CATBOOST or find_spec("catboost") is not None)
"""Methods whose packages are installed."""


@dataclass(frozen=True)
class LargeTablesConfig(CampaignConfig):
    """Settings."""

    datasets: tuple[str, ...] = SETS  # of `SETS` and `INSTALLED`
    methods: tuple[str, ...] = INSTALLED
    seeds: tuple[int, ...] = (0, 1)  # each splits the rows
    most_rows: int = 20_000  # to learn from
    slope_rows: int = 1_000_000  # the most of those by which time and memory are followed


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """Run the missing cells, and make the page of all that are there."""
    settings = configure(LargeTablesConfig, options)
    cells = campaign_cells(settings)
    return outcome_of(settings.records(NAME, cells, partial(run_cell, data_root), progress), cells, settings)


def campaign_cells(settings: LargeTablesConfig) -> list[MethodCell]:
    """One set after the other, then one number of rows after the other."""
    check_names("data set", settings.datasets, SETS)
    check_names("method", settings.methods, INSTALLED)
    models = {method: METHODS[method]() for method in settings.methods}
    what = {name: described(model[-1] if isinstance(model, Pipeline) else model) for name, model in models.items()}
    further = {"most_rows": settings.most_rows}
    splits = [
        MethodCell(data, method, {"protocol": "split", "seed": seed}, what[method], further)
        for data in settings.datasets
        for seed in settings.seeds
        for method in settings.methods
    ]
    sizes = [n * 10**power for power in range(3, 9) for n in (1, 3) if n * 10**power <= settings.slope_rows]
    return splits + [
        MethodCell(next(iter(SIMULATED)), method, {"protocol": "slope", "rows": n}, what[method])
        for n in sizes
        for method in settings.methods
        if method in (OURS, BOOSTING)
    ]


def run_cell(data_root: Path | None, cell: MethodCell, folder: Path, progress: Progress) -> dict[str, Any]:
    """The record of a cell, from a new process."""
    progress("on its own", 0.0)
    return on_its_own(fit_and_score, data_root, cell)


def fit_and_score(data_root: Path | None, cell: MethodCell) -> dict[str, Any]:
    """Scores, seconds and memory of a method, or why it cannot be fitted."""
    x, test_x, y, test_y = rows_of(cell, data_root)
    model = METHODS[cell.method]()
    with quiet(), one_thread(), threadpool_limits(1, user_api="openmp"):
        try:
            _, *fit = measured(lambda: model.fit(x, y))
            found, *prediction = measured(lambda: model.predict_proba(test_x))
        except (MemoryError, ValueError) as error:  # boosting can set no row of a class aside that has one
            if cell.method == OURS and isinstance(error, ValueError):
                raise
            return {FAILED: str(error)}
    classes = np.unique(np.concatenate([y, test_y]))
    p = np.zeros((len(test_y), len(classes)))
    p[:, np.searchsorted(classes, model.classes_)] = found
    names = ("fit seconds", "fit MB", "prediction seconds", "prediction MB")
    return {"run": {**scores(p, test_y, classes), **dict(zip(names, (*fit, *prediction), strict=True))}}


def rows_of(cell: MethodCell, data_root: Path | None) -> list[Any]:
    """Rows to learn from and to test on, then the labels of both."""
    if cell.protocol["protocol"] == "slope":
        n_rows = int(cell.protocol["rows"])
        x, y = simulated(SIMULATED[cell.data], n_rows + SLOPE_TEST_ROWS)
        sizes, seed = (n_rows, SLOPE_TEST_ROWS), 0
    else:
        x, y = load(cell.data, data_root)
        n_test = min(MOST_TEST_ROWS, len(y) // 4)
        sizes, seed = (min(cell.further["most_rows"], len(y) - n_test), n_test), int(cell.protocol["seed"])
    found: list[Any] = train_test_split(x, y, train_size=sizes[0], test_size=sizes[1], stratify=y, random_state=seed)
    return found


def load(name: str, data_root: Path | None) -> tuple[pd.DataFrame, np.ndarray]:
    """Columns as they are in the file, and labels as text."""
    if name in SIMULATED:
        return simulated(SIMULATED[name], SIMULATED_ROWS)
    if name in STREAMS:
        x, y = load_stream(name, data_root, every_column=True)
        return pd.DataFrame(x).add_prefix("x"), y.astype(str)
    path = data_file(f"{'uci' if name in UCI else 'large'}/{name}.csv.gz", data_root, "with a column label")
    table = load_table(path, "label", mixed=True, text_labels=True)
    assert isinstance(table.X, pd.DataFrame)
    assert table.y is not None
    return table.X, table.y


def simulated(n_classes: int, n_rows: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Twenty columns, of which ten say something about the class."""
    x, y = make_classification(n_rows, 20, n_informative=10, n_classes=n_classes, random_state=0)
    return pd.DataFrame(x).add_prefix("x"), y.astype(str)


def outcome_of(records: Sequence[Record], cells: Sequence[MethodCell], settings: LargeTablesConfig) -> Outcome:
    """The outcome as far as the campaign has been run; ValueError if no split has scores."""
    rows = [{**record["labels"], **record["run"]} for record in records if FAILED not in record]
    splits = pd.DataFrame([row for row in rows if row["protocol"] == "split"])
    if splits.empty:
        raise ValueError("no split of this campaign has a result yet, so there is no table to make")
    by_measure = {name: by_split(splits, name).dropna() for name in MEASURES}  # splits that all methods have
    means = {name: wide.groupby("data", sort=False).mean() for name, wide in by_measure.items()}
    summary = pd.DataFrame({name: wide.mean() for name, wide in means.items()})
    of_all = Table("means", f"Means over {len(means['nll'])} sets.", summary.rename_axis("method").reset_index())
    tables = [of_all, *tables_of_sets(by_measure, MEASURES, judged="nll")]
    return Outcome(
        title="Large tables",
        introduction=(
            f"At most {settings.most_rows} rows to learn from, and {MOST_TEST_ROWS} to test on or a quarter, drawn at "
            f"random with the classes' frequencies, {len(settings.seeds)} times; means over the draws on which all "
            "methods have a result. One thread; defaults, but for early stopping. `GPClassifier` gets the DataFrame as "
            "it is read, boosting text as categories, the forest one-hot columns and filled gaps. Rows of elec2 and "
            f"noaa_weather come shuffled, with all their columns. Simulated sets have {SIMULATED_ROWS} rows, and 10 "
            "informative columns of 20. Probabilities are clipped at 1e-6."
        ),
        tables=(*tables, *slope_tables(pd.DataFrame([row for row in rows if row["protocol"] == "slope"]))),
        config=settings,
        seeds=settings.seeds,
        findings=tuple(what_is_missing(records, cells)),
        verdicts=tuple(verdicts_of(means["nll"], means["ece"])),
    )


def slope_tables(frame: pd.DataFrame) -> list[Table]:
    """Time and memory by number of rows, and the slopes of time."""
    if frame.empty:
        return []
    seconds = ["fit seconds", "prediction seconds"]
    what = frame[["method", "rows", "fit seconds", "fit MB", "prediction seconds", "prediction MB"]]
    slopes = [
        {"method": method, **{name: np.polyfit(np.log(part["rows"]), np.log(part[name]), 1)[0] for name in seconds}}
        for method, part in what.groupby("method", sort=False)
        if len(part) > 1
    ]
    caption = f"By rows of the simulated set of two classes: a fit, and the prediction of {SLOPE_TEST_ROWS} rows."
    of_slopes = Table("slopes", "Slopes of log seconds over log rows.", pd.DataFrame(slopes), digits=2)
    return [Table("rows", caption, what.sort_values(["method", "rows"])), *([of_slopes] if slopes else [])]


def verdicts_of(nll: pd.DataFrame, ece: pd.DataFrame) -> list[Verdict]:
    """This project's aims: those of means by all sets only."""
    if OURS not in nll:
        return []
    ours, found = nll[OURS], []
    if set(SETS) <= set(nll.index):
        for other, factor, claim in ((BOOSTING, 0.85, "at least 15 % below that"), (CATBOOST, 1, "below that")):
            if other in nll:
                measured = f"{ours.mean():.4f}; {other} {nll[other].mean():.4f}"
                holds = bool(ours.mean() < factor * nll[other].mean())
                found.append(Verdict(f"mean NLL {claim} of {other}", _AIM, measured, holds))
        if BOOSTING in nll:
            behind = ours.index[ours > 1.03 * nll[BOOSTING]].tolist()
            measured = f"{len(behind)} of {len(ours)}{': ' * bool(behind)}{', '.join(behind)}"
            claim = f"more than 3 % behind {BOOSTING} in NLL on at most one set in five"
            found.append(Verdict(claim, _AIM, measured, 5 * len(behind) <= len(ours)))
        mean = float(ece[OURS].mean())
        found.append(Verdict("mean calibration error at most .02", _AIM, f"{mean:.4f}", mean <= 0.02))
    for data, most in MOST_NLL.items():
        if data in ours.index:
            found.append(Verdict(f"{data}: NLL at most {most}", _AIM, f"{ours[data]:.4f}", bool(ours[data] <= most)))
    return found


EXPERIMENT = Experiment(NAME, "tables above 2000 rows beside boosting, with time and memory by rows", True, run)

"""Numbers beside boosting and other processes: how far off, how probable, and how often inside intervals.

A campaign with a cell for each set, method and split: the published splits of seven sets (Hernandez-Lobato & Adams
2015), and splits of larger tables drawn at random.

    python -m experiments regression --data FOLDER --set 'datasets=["concrete"]' --set splits=2
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from experiments.batch_learners import quiet
from experiments.campaigns.cells import FAILED, CampaignConfig
from experiments.campaigns.methods import MethodCell, Record, check_names, described, what_is_missing
from experiments.experiment import Experiment, Outcome, Progress, Table, Verdict, configure
from experiments.large_tables import measured, of_splits
from experiments.number_peers import INSTALLED, METHODS, OURS, PROCESS, Answers
from sureshot import GPRegressor
from sureshot.computing.threads import one_thread
from sureshot.data import read_table
from sureshot.data.root import data_file

NAME = "regression"
PUBLISHED = {
    "boston": "bostonHousing",
    "concrete": "concrete",
    "energy": "energy",
    "wine_red": "wine_quality_red",
    "power_plant": "power_plant",
    "naval": "naval_propulsion_plant",
    "protein": "protein_tertiary_structure",
}
LARGE = (
    *("airfoil", "wine_white", "cpu_act", "sulfur", "elevators", "bike_hour", "california_housing"),
    *("appliances_energy", "diamonds"),
)
SETS = (*PUBLISHED, *LARGE)
COVERAGES = (0.5, 0.9, 0.95)
LEVELS = (np.arange(40) + 0.5) / 40  # quantiles by which the continuous ranked probability score is approximated
MEASURES = {
    "rmse": "Root mean squared error, in units of the target",
    "log density": "Mean log density of test numbers in nats, and its standard error over splits",
    "crps": "Continuous ranked probability score, by 40 quantiles",
    "coverage 90": "Share of test numbers inside intervals of nominal 90 %",
    "fit seconds": "Processor seconds of a fit",
    "prediction seconds": "Processor seconds of the prediction of all test rows: means alone",
}
MOST_RMSE = {"protein": 3.35, "power_plant": 2.45, "naval": 5e-5}
# Mean log densities of the papers on the published splits, twenty of them, five of protein.
PAPERS = pd.DataFrame(
    {
        "data": ["boston", "concrete", "energy", "naval", "power_plant", "protein", "wine_red"],
        "dropout, Gal & Ghahramani 2016": [-2.46, -3.04, -1.99, 3.80, -2.80, -2.89, -0.93],
        "ensembles, Lakshminarayanan et al. 2017": [-2.41, -3.06, -1.38, 5.63, -2.79, -2.83, -0.94],
    }
)
_AIM = "this project's aim"


@dataclass(frozen=True)
class RegressionConfig(CampaignConfig):
    """Settings."""

    datasets: tuple[str, ...] = SETS  # of `SETS` and `INSTALLED`
    methods: tuple[str, ...] = INSTALLED
    splits: int = 20  # of sets with published ones, where there are so many
    seeds: tuple[int, ...] = (0, 1)  # of the others
    most_rows: int = 20_000  # to learn from, of sets without published splits


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """Run the missing cells, and make the page of all that are there."""
    settings = configure(RegressionConfig, options)
    cells = campaign_cells(settings)
    return outcome_of(settings.records(NAME, cells, partial(run_cell, data_root), progress), cells, settings)


def campaign_cells(settings: RegressionConfig) -> list[MethodCell]:
    """One set after the other."""
    check_names("data set", settings.datasets, SETS)
    check_names("method", settings.methods, INSTALLED)
    what = {name: described(GPRegressor() if name == OURS else METHODS[name]()) for name in settings.methods}
    found = []
    for data in settings.datasets:
        splits = range(min(settings.splits, 5 if data == "protein" else 20)) if data in PUBLISHED else settings.seeds
        further = {} if data in PUBLISHED else {"most_rows": settings.most_rows}
        for split in splits:
            for method in settings.methods:
                protocol = {"protocol": "published" if data in PUBLISHED else "random", "seed": split}
                found.append(MethodCell(data, method, protocol, what[method], further))
    return found


def run_cell(data_root: Path | None, cell: MethodCell, folder: Path, progress: Progress) -> dict[str, Any]:
    """Scores and seconds of a method, or why it cannot be fitted."""
    progress("fitting", 0.0)
    x, test_x, y, test_y = rows_of(cell, data_root)
    model = METHODS[cell.method]()
    with quiet(), one_thread(), threadpool_limits(1, user_api="openmp"):
        try:
            _, fit_seconds, _ = measured(lambda: model.fit(x, y))
        except (MemoryError, ValueError) as error:
            if cell.method == OURS:
                raise
            return {FAILED: str(error)}
        found, seconds, _ = measured(lambda: model.answers(test_x))
        scores = scored(found, test_y)
    return {"run": {**scores, "fit seconds": fit_seconds, "prediction seconds": seconds}}


def scored(found: Answers, y: np.ndarray) -> dict[str, float]:
    """Of numbers (n,); the ranked probability score is twice the mean pinball loss of all quantiles."""
    error = y[:, None] - found.quantiles(LEVELS)
    pinball = np.maximum(LEVELS * error, (LEVELS - 1) * error)
    inside = {}
    for coverage in COVERAGES:
        lower, upper = found.interval(coverage)
        inside[f"coverage {100 * coverage:g}"] = float(((lower <= y) & (y <= upper)).mean())
    return {
        "rmse": float(np.sqrt(np.mean((found.mean - y) ** 2))),
        "log density": float(found.log_density(y).mean()),
        "crps": 2 * float(pinball.mean()),
        **inside,
    }


def rows_of(cell: MethodCell, data_root: Path | None) -> tuple[Any, Any, np.ndarray, np.ndarray]:
    """Rows to learn from and to test on, then the numbers of both."""
    seed = int(cell.protocol["seed"])
    if cell.data in PUBLISHED:
        file = data_file(f"regression/{PUBLISHED[cell.data]}.npz", data_root, "with arrays X, y and test")
        with np.load(file) as stored:
            x, y = pd.DataFrame(stored["X"]).add_prefix("x"), stored["y"].ravel().astype(float)
            test = np.unpackbits(stored["test"], axis=1)[seed, : len(y)].astype(bool)
        return x[~test], x[test], y[~test], y[test]
    table = read_table(data_file(f"large/{cell.data}.csv.gz", data_root, "with a column target"))
    x = pd.DataFrame(table.X)
    y = x.pop("target").to_numpy(dtype=float)
    n_test = min(5000, len(y) // 4)
    size = min(int(cell.further["most_rows"]), len(y) - n_test)
    parts = train_test_split(x, y, train_size=size, test_size=n_test, random_state=seed)
    return parts[0], parts[1], parts[2], parts[3]


def outcome_of(records: Sequence[Record], cells: Sequence[MethodCell], settings: RegressionConfig) -> Outcome:
    """The outcome as far as the campaign has been run; ValueError if no split has scores."""
    rows = [{**record["labels"], **record["run"]} for record in records if FAILED not in record]
    splits = pd.DataFrame(rows)
    if splits.empty:
        raise ValueError("no split of this campaign has a result yet, so there is no table to make")
    means = {name: splits.pivot_table(index="data", columns="method", values=name, sort=False) for name in MEASURES}
    errors = of_splits(splits, "log density").groupby("data", sort=False).sem().add_suffix(" s.e.")
    tables = []
    for name, caption in MEASURES.items():
        wide = means[name].join(errors) if name == "log density" else means[name]
        tables.append(Table(name.replace(" ", "-"), f"{caption}.", wide.rename_axis(columns=None).reset_index()))
    caption = "Log densities that papers print for the published splits."
    tables.append(Table("published", caption, PAPERS, digits=2, published=True))
    counts = splits[splits["method"] == OURS].groupby("data", sort=False)["seed"].nunique()
    return Outcome(
        title="Regression",
        introduction=(
            "Means over splits: the published ones of seven sets "
            f"({', '.join(f'{name} {n}' for name, n in counts.items() if name in PUBLISHED)}), of other tables drawn "
            f"at random, at most {settings.most_rows} rows to learn from and 5000 to test on or a quarter. One thread, "
            "defaults, early stopping for boosting, whose mean is a fit of its own beside seven quantiles; its density "
            "is that of the normal with this mean and the width of its 90 %. scikit-learn's process has one "
            "length-scale for each column and is given up to 1700 rows."
        ),
        tables=tuple(tables),
        config=settings,
        seeds=settings.seeds,
        findings=tuple(what_is_missing(records, cells)),
        verdicts=tuple(verdicts_of(means)),
    )


def verdicts_of(means: dict[str, pd.DataFrame]) -> list[Verdict]:
    """This project's aims."""
    density, found = means["log density"], []
    if OURS not in density:
        return []
    for other in [name for name in density if name != OURS]:
        both = density[[OURS, other]].dropna()
        ahead = int((both[OURS] >= both[other]).sum())
        wanted = len(both) if other == PROCESS else round(0.8 * len(both))
        claim = f"log density at or above that of {other} on {wanted} of {len(both)} sets"
        found.append(Verdict(claim, _AIM, f"{ahead} of {len(both)}", ahead >= wanted))
    inside = means["coverage 90"][OURS].between(0.88, 0.92)
    claim = "intervals of nominal 90 % cover 88 to 92 % on 8 of 10 sets"
    found.append(Verdict(claim, _AIM, f"{int(inside.sum())} of {len(inside)}", bool(inside.mean() >= 0.8)))
    for data, most in MOST_RMSE.items():
        if data in means["rmse"].index:
            reached = float(means["rmse"][OURS][data])
            found.append(Verdict(f"{data}: RMSE at most {most:g}", _AIM, f"{reached:.4g}", reached <= most))
    return found


EXPERIMENT = Experiment(NAME, "numbers: errors, densities and intervals beside boosting and other processes", True, run)

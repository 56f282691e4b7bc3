"""Numbers of larger tables beside boosting, and of simulated rows up to a million, whose noise is known.

A campaign with a cell for each set, method and split drawn at random, and for each method and number of simulated rows.
Each is computed in a process of its own, whose memory is the method's alone (as Linux counts it), on one thread.

    python -m experiments large-regression --data FOLDER --set 'datasets=["airfoil"]' --set 'simulated_rows=[10000]'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import make_friedman1
from sklearn.model_selection import train_test_split

from experiments.campaigns.cells import CampaignConfig
from experiments.campaigns.methods import MethodCell, Record, check_names, what_is_missing
from experiments.experiment import Experiment, Outcome, Progress, Table, configure
from experiments.number_peers import INSTALLED, MOST_ROWS
from experiments.number_scores import MEASURES, PEERS, Rows, aims_of, descriptions, fit_and_score, runs_of, tables_of
from experiments.own_process import on_its_own
from experiments.uci_regression import SETS as PUBLISHED
from sureshot.data import read_table
from sureshot.data.root import data_file

NAME = "large-regression"
LARGE = (
    *("airfoil", "wine_white", "cpu_act", "sulfur", "elevators", "bike_hour", "california_housing"),
    *("appliances_energy", "diamonds"),
)
OF_PUBLISHED = ("power_plant", "protein")
SETS = (*LARGE, *OF_PUBLISHED)
SIMULATED = "simulated"
COLUMNS, NOISE, MOST_TEST_ROWS = 10, 1.0, 5000
CAPTIONS = {**MEASURES, "fit MB": "Peak memory of a fit, MB above what was there before"}


@dataclass(frozen=True)
class LargeRegressionConfig(CampaignConfig):
    """Settings."""

    datasets: tuple[str, ...] = SETS  # of `SETS` and `INSTALLED`
    methods: tuple[str, ...] = INSTALLED
    seeds: tuple[int, ...] = (0, 1)  # each splits the rows; simulated rows are drawn by the first
    most_rows: int = 20_000  # to learn from
    simulated_rows: tuple[int, ...] = (10_000, 100_000, 1_000_000)  # to learn from
    simulated_test_rows: int = 100_000


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """Run the missing cells, and make the page of all that are there."""
    settings = configure(LargeRegressionConfig, options)
    cells = campaign_cells(settings)
    return outcome_of(settings.records(NAME, cells, partial(run_cell, data_root), progress), cells, settings)


def campaign_cells(settings: LargeRegressionConfig) -> list[MethodCell]:
    """One set after the other, then one number of simulated rows after the other, of methods that are given so many."""
    check_names("data set", settings.datasets, SETS)
    check_names("method", settings.methods, INSTALLED)
    what = descriptions(settings.methods)
    splits = [
        MethodCell(data, method, {"protocol": "split", "seed": seed}, what[method], {"most_rows": settings.most_rows})
        for data in settings.datasets
        for seed in settings.seeds
        for method in settings.methods
    ]
    test_rows = {"test_rows": settings.simulated_test_rows}
    return splits + [
        MethodCell(
            SIMULATED, method, {"protocol": SIMULATED, "rows": n, "seed": settings.seeds[0]}, what[method], test_rows
        )
        for n in settings.simulated_rows
        for method in settings.methods
        if n <= MOST_ROWS.get(method, n)
    ]


def run_cell(data_root: Path | None, cell: MethodCell, folder: Path, progress: Progress) -> dict[str, Any]:
    """The record of a cell, from a new process."""
    progress("on its own", 0.0)
    return on_its_own(compute, data_root, cell)


def compute(data_root: Path | None, cell: MethodCell) -> dict[str, Any]:
    """The record of a cell."""
    return fit_and_score(cell.method, rows_of(cell, data_root))


def rows_of(cell: MethodCell, data_root: Path | None) -> Rows:
    """As a cell's seed draws them."""
    seed = int(cell.protocol["seed"])
    if cell.data == SIMULATED:
        return simulated(int(cell.protocol["rows"]), int(cell.further["test_rows"]), seed)
    x, y = load(cell.data, data_root)
    n_test = min(MOST_TEST_ROWS, len(y) // 4)
    size = min(int(cell.further["most_rows"]), len(y) - n_test)
    x, test_x, y, test_y = train_test_split(x, y, train_size=size, test_size=n_test, random_state=seed)
    return Rows(x, y, test_x, test_y)


def load(name: str, data_root: Path | None) -> tuple[pd.DataFrame, np.ndarray]:
    """Columns as they are in the file, and numbers."""
    if name in OF_PUBLISHED:
        with np.load(data_file(f"regression/{PUBLISHED[name]}.npz", data_root, "with arrays X and y")) as stored:
            return pd.DataFrame(stored["X"]).add_prefix("x"), stored["y"].ravel().astype(float)
    table = read_table(data_file(f"large/{name}.csv.gz", data_root, "with a column target"))
    x = pd.DataFrame(table.X)
    return x, x.pop("target").to_numpy(dtype=float)


def simulated(n_rows: int, n_test: int, seed: int) -> Rows:
    """Friedman's function of five columns of ten, with normal noise."""
    x, function = make_friedman1(n_rows + n_test, COLUMNS, noise=0.0, random_state=seed)
    y = function + NOISE * np.random.default_rng(seed).normal(size=len(function))
    frame = pd.DataFrame(x).add_prefix("x")
    return Rows(frame[:n_rows], y[:n_rows], frame[n_rows:], y[n_rows:], function[n_rows:])


def outcome_of(records: Sequence[Record], cells: Sequence[MethodCell], settings: LargeRegressionConfig) -> Outcome:
    """The outcome as far as the campaign has been run; ValueError if no cell has scores."""
    splits, drawn = runs_of(records, "split"), runs_of(records, SIMULATED)
    if splits.empty and drawn.empty:
        raise ValueError("no cell of this campaign has a result yet, so there is no table to make")
    return Outcome(
        title="Regression: larger tables",
        introduction=(
            f"At most {settings.most_rows} rows to learn from, and {MOST_TEST_ROWS} to test on or a quarter, drawn at "
            f"random {len(settings.seeds)} times. Simulated rows have {COLUMNS} columns, of which five make a smooth "
            f"function (Friedman 1991), and normal noise of deviation {NOISE:g}. {PEERS}"
        ),
        tables=(*([] if splits.empty else tables_of(splits, CAPTIONS)), *simulated_tables(drawn, settings)),
        config=settings,
        seeds=settings.seeds,
        findings=tuple(what_is_missing(records, cells)),
        verdicts=() if splits.empty else tuple(aims_of(splits)),
    )


def simulated_tables(drawn: pd.DataFrame, settings: LargeRegressionConfig) -> list[Table]:
    """Beside what nobody can be better than."""
    if drawn.empty:
        return []
    frame = drawn.assign(
        **{"rmse / noise": drawn["rmse"] / NOISE, "function error / noise": drawn["function error"] / NOISE}
    )
    best = -0.5 * np.log(2 * np.pi * np.e * NOISE**2)
    columns = ["rows", "method", "rmse / noise", "function error / noise", "log density", "coverage 90"]
    costs = ["fit seconds", "prediction seconds", "fit MB", "prediction MB"]
    caption = (
        f"Simulated rows, {settings.simulated_test_rows} to test on: the function itself is off by the noise, "
        f"whose log density is {best:.3f}."
    )
    return [Table(SIMULATED, caption, frame[columns + costs])]


EXPERIMENT = Experiment(NAME, "numbers of larger tables and of simulated rows, with time and memory", True, run)

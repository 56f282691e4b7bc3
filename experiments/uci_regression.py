"""Numbers on published splits of seven sets (Hernandez-Lobato & Adams 2015), beside boosting and other processes.

A campaign with a cell for each set, method and split.

    python -m experiments uci-regression --data FOLDER --set 'datasets=["concrete"]' --set splits=2
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.campaigns.cells import CampaignConfig
from experiments.campaigns.methods import MethodCell, Record, check_names, what_is_missing
from experiments.experiment import Experiment, Outcome, Progress, Table, Verdict, configure
from experiments.number_peers import INSTALLED, OURS
from experiments.number_scores import (
    AIM,
    MEASURES,
    PEERS,
    Rows,
    aims_of,
    descriptions,
    fit_and_score,
    means_of,
    runs_of,
    tables_of,
)
from sureshot.data.root import data_file

NAME = "uci-regression"
SETS = {
    "boston": "bostonHousing",
    "concrete": "concrete",
    "energy": "energy",
    "wine_red": "wine_quality_red",
    "power_plant": "power_plant",
    "naval": "naval_propulsion_plant",
    "protein": "protein_tertiary_structure",
}
"""By name, the file."""
SPLITS, SPLITS_OF_PROTEIN = 20, 5
MOST_RMSE = {"protein": 3.35, "power_plant": 2.45, "naval": 5e-5}
# Mean log densities of the papers on the published splits, twenty of them, five of protein.
PAPERS = pd.DataFrame(
    {
        "data": ["boston", "concrete", "energy", "naval", "power_plant", "protein", "wine_red"],
        "dropout, Gal & Ghahramani 2016": [-2.46, -3.04, -1.99, 3.80, -2.80, -2.89, -0.93],
        "ensembles, Lakshminarayanan et al. 2017": [-2.41, -3.06, -1.38, 5.63, -2.79, -2.83, -0.94],
    }
)


@dataclass(frozen=True)
class UciRegressionConfig(CampaignConfig):
    """Settings."""

    datasets: tuple[str, ...] = tuple(SETS)  # of `SETS` and `INSTALLED`
    methods: tuple[str, ...] = INSTALLED
    splits: int = SPLITS  # the first of them, where there are so many


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """Run the missing cells, and make the page of all that are there."""
    settings = configure(UciRegressionConfig, options)
    cells = campaign_cells(settings)
    return outcome_of(settings.records(NAME, cells, partial(run_cell, data_root), progress), cells, settings)


def campaign_cells(settings: UciRegressionConfig) -> list[MethodCell]:
    """One set after the other."""
    check_names("data set", settings.datasets, SETS)
    check_names("method", settings.methods, INSTALLED)
    what = descriptions(settings.methods)
    return [
        MethodCell(data, method, {"protocol": "published", "seed": split}, what[method])
        for data in settings.datasets
        for split in range(min(settings.splits, SPLITS_OF_PROTEIN if data == "protein" else SPLITS))
        for method in settings.methods
    ]


def run_cell(data_root: Path | None, cell: MethodCell, folder: Path, progress: Progress) -> dict[str, Any]:
    """The record of a method on a split."""
    progress("fitting", 0.0)
    return fit_and_score(cell.method, rows_of(cell, data_root))


def rows_of(cell: MethodCell, data_root: Path | None) -> Rows:
    """Of a published split."""
    file = data_file(f"regression/{SETS[cell.data]}.npz", data_root, "with arrays X, y and test")
    with np.load(file) as stored:
        x, y = pd.DataFrame(stored["X"]).add_prefix("x"), stored["y"].ravel().astype(float)
        test = np.unpackbits(stored["test"], axis=1)[int(cell.protocol["seed"]), : len(y)].astype(bool)
    return Rows(x[~test], y[~test], x[test], y[test])


def outcome_of(records: Sequence[Record], cells: Sequence[MethodCell], settings: UciRegressionConfig) -> Outcome:
    """The outcome as far as the campaign has been run; ValueError if no split has scores."""
    splits = runs_of(records, "published")
    if splits.empty:
        raise ValueError("no split of this campaign has a result yet, so there is no table to make")
    caption = "Log densities that papers print for the published splits."
    counts = splits.groupby("data", sort=False)["seed"].nunique()
    return Outcome(
        title="Regression: published splits",
        introduction=(
            f"Means over published splits ({', '.join(f'{name} {n}' for name, n in counts.items())}), nine tenths to "
            f"learn from. {PEERS}"
        ),
        tables=(*tables_of(splits, MEASURES), Table("published", caption, PAPERS, digits=2, published=True)),
        config=settings,
        seeds=tuple(sorted(splits["seed"].unique().tolist())),
        findings=tuple(what_is_missing(records, cells)),
        verdicts=(*aims_of(splits), *aims_of_errors(means_of(splits, "rmse"))),
    )


def aims_of_errors(rmse: pd.DataFrame) -> list[Verdict]:
    """Of sets that have one."""
    reached = rmse[OURS].dropna().to_dict() if OURS in rmse else {}
    return [
        Verdict(f"{data}: RMSE at most {most:g}", AIM, f"{reached[data]:.4g}", bool(reached[data] <= most))
        for data, most in MOST_RMSE.items()
        if data in reached
    ]


EXPERIMENT = Experiment(NAME, "numbers on published splits: errors, densities and intervals beside peers", True, run)

"""How methods are scored that predict numbers, and the tables and aims that campaigns of them share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from experiments.batch_learners import quiet
from experiments.campaigns.cells import FAILED
from experiments.campaigns.methods import Record, by_split, described, tables_of_sets
from experiments.experiment import Table, Verdict
from experiments.number_peers import METHODS, OURS, PROCESS, Answers
from experiments.own_process import measured
from sureshot import GPRegressor
from sureshot.computing.threads import one_thread

COVERAGES = (0.5, 0.9, 0.95)
LEVELS = (np.arange(40) + 0.5) / 40  # quantiles by which the continuous ranked probability score is approximated
MEASURES = {
    "rmse": "Root mean squared error, in units of the target",
    "log density": "Mean log density of test numbers in nats, and its standard error over splits",
    "crps": "Continuous ranked probability score, by 40 quantiles",
    "coverage 90": "Share of test numbers inside intervals of nominal 90 %",
    "fit seconds": "Processor seconds of a fit",
    "prediction seconds": "Processor seconds of all that is said of the test rows",
}
AIM = "this project's aim"
PEERS = (
    "One thread, defaults, early stopping for boosting by quantiles and NGBoost. The mean of boosting is a fit of its "
    "own beside seven quantiles; its density is that of the normal with this mean and the width of its 90 %. "
    "scikit-learn's process has one length-scale for each column and is given up to 1700 rows."
)


@dataclass(frozen=True)
class Rows:
    """To learn from and to test on."""

    x: Any  # (n, D)
    y: np.ndarray  # (n,)
    test_x: Any  # (m, D)
    test_y: np.ndarray  # (m,)
    function: np.ndarray | None = None  # (m,), test numbers without their noise, where it is known


def descriptions(methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Arguments of methods, by which records are known to be theirs."""
    return {name: described(GPRegressor() if name == OURS else METHODS[name]()) for name in methods}


def fit_and_score(method: str, rows: Rows) -> dict[str, Any]:
    """Scores, seconds and memory of a method, or why it cannot be fitted."""
    model = METHODS[method]()
    with quiet(), one_thread(), threadpool_limits(1, user_api="openmp"):
        try:
            _, *fit = measured(lambda: model.fit(rows.x, rows.y))
        except (MemoryError, ValueError) as error:
            if method == OURS and isinstance(error, ValueError):
                raise
            return {FAILED: str(error)}
        found, *prediction = measured(lambda: model.answers(rows.test_x))
        scores = scored(found, rows.test_y)
    if rows.function is not None:
        scores["function error"] = float(np.sqrt(np.mean((found.mean - rows.function) ** 2)))
    names = ("fit seconds", "fit MB", "prediction seconds", "prediction MB")
    return {"run": {**scores, **dict(zip(names, (*fit, *prediction), strict=True))}}


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


def runs_of(records: Sequence[Record], protocol: str) -> pd.DataFrame:
    """A row for each record of a protocol that has scores."""
    rows = [{**record["labels"], **record["run"]} for record in records if FAILED not in record]
    return pd.DataFrame([row for row in rows if row["protocol"] == protocol])


IN_UNITS = ("rmse", "crps")
"""Measures in units of the target."""


def tables_of(splits: pd.DataFrame, captions: dict[str, str]) -> list[Table]:
    """One for each measure."""
    by_measure = {name: by_split(splits, name) for name in captions}
    return tables_of_sets(by_measure, captions, judged="log density", significant=IN_UNITS)


def means_of(splits: pd.DataFrame, measure: str) -> pd.DataFrame:
    """A row for each set, a column for each method."""
    return by_split(splits, measure).groupby("data", sort=False).mean()


def aims_of(splits: pd.DataFrame) -> list[Verdict]:
    """Aims of densities and coverage on all sets."""
    density, found = means_of(splits, "log density"), []
    if OURS not in density:
        return []
    for other in [name for name in density if name != OURS]:
        both = density[[OURS, other]].dropna()
        ahead = int((both[OURS] >= both[other]).sum())
        wanted = len(both) if other == PROCESS else round(0.8 * len(both))
        claim = f"log density at or above that of {other} on {wanted} of {len(both)} sets"
        found.append(Verdict(claim, AIM, f"{ahead} of {len(both)}", ahead >= wanted))
    inside = means_of(splits, "coverage 90")[OURS].between(0.88, 0.92)
    claim = "intervals of nominal 90 % cover 88 to 92 % on 8 of 10 sets"
    found.append(Verdict(claim, AIM, f"{int(inside.sum())} of {len(inside)}", bool(inside.mean() >= 0.8)))
    return found

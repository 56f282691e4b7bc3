"""Time, memory and error of every approximation that `GPRegressor` has by name, as rows grow.

Kernel and noise are given, so that only inference is timed; once more with what is learnt. A campaign with a cell for
each approximation and number of rows, each in a process of its own (as Linux counts its memory), on one thread.

    python -m experiments approximations --set seconds=10 --set 'sizes=[500, 1000, 2000]'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from experiments.approximation_problems import NOISE, PROBLEMS, SERIES, TABLE, Drawn, Problem, exact_answers
from experiments.approximations_report import GIVEN, LEARNT, outcome_of
from experiments.batch_learners import quiet
from experiments.campaigns.cells import FAILED, CampaignConfig, Cell
from experiments.campaigns.methods import MethodCell, Record, check_names, described
from experiments.experiment import Experiment, Outcome, Progress, configure
from experiments.own_process import measured, on_its_own
from sureshot import GPRegressor
from sureshot.computing.threads import one_thread
from sureshot.estimators.gp.options import NEAREST_NEIGHBOURS
from sureshot.estimators.gp.regressor import APPROXIMATIONS
from sureshot.estimators.numbers.answers import Forecast
from sureshot.kernels import RBF
from sureshot.progress import within

NAME = "approximations"
NAMES = tuple(name for name in APPROXIMATIONS if name not in ("auto", "low_rank"))  # an RBF has no finite rank
OF_GRIDS = tuple(name for name in NAMES if name in ("toeplitz", "kronecker", "kiss"))


@dataclass(frozen=True)
class ApproximationsConfig(CampaignConfig):
    """Settings."""

    methods: tuple[str, ...] = NAMES
    sizes: tuple[int, ...] = (500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
    # of a fit and predictions: a size is left out where those of the two before, continued on log-log axes, are more
    seconds: float = 60.0
    exact_rows: int = 5000  # up to which answers are compared with the exact posterior


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """Run the missing cells, and make the page of all that are there."""
    settings = configure(ApproximationsConfig, options)
    check_names("approximation", settings.methods, NAMES)
    records, cells = list[Record](), list[Cell]()
    lines = lines_of(settings)
    for number, (problem, method, scales) in enumerate(lines):
        tell, line = within(progress, NAME, number / len(lines), 1 / len(lines)), list[Record]()
        for n in sorted(settings.sizes):
            if continued(line, n) > settings.seconds:
                break
            cell = cell_of(settings, problem, method, scales, n)
            cells.append(cell)
            line += settings.records(NAME, [cell], run_cell, tell)
            if line and FAILED in line[-1]:
                break
        records += line
    return outcome_of(records, cells, settings)


def lines_of(settings: ApproximationsConfig) -> list[tuple[str, str, str]]:
    """Problems, methods, and what is done with scales: grids are asked for where there is one, beside the exact."""
    of_series = ("exact", *OF_GRIDS) if OF_GRIDS else ()
    named = {TABLE: [name for name in NAMES if name not in OF_GRIDS], SERIES: of_series}
    return [
        (problem, method, scales)
        for problem, methods in named.items()
        for method in methods
        for scales in (GIVEN, LEARNT)
        if method in settings.methods and (method, scales) != (NEAREST_NEIGHBOURS, GIVEN)
    ]


def continued(line: Sequence[Record], n_rows: int) -> float:
    """Seconds of a fit of so many rows and predictions, by the last two on log-log axes; the slope is 1 at least."""
    if not line:
        return 0.0
    rows, seconds = (np.array([get(record) for record in line[-2:]], dtype=float) for get in (_rows, _seconds))
    slope = max(1.0, *np.diff(np.log(seconds)) / np.diff(np.log(rows))) if len(line) > 1 else 1.0
    return float(seconds[-1] * (n_rows / rows[-1]) ** slope)


def _rows(record: Record) -> int:
    return int(record["labels"]["rows"])


def _seconds(record: Record) -> float:
    return float(record["run"]["fit seconds"] + record["run"]["prediction seconds"])


def cell_of(settings: ApproximationsConfig, problem: str, method: str, scales: str, n_rows: int) -> MethodCell:
    """Of an approximation and a number of rows."""
    further = {"exact_rows": settings.exact_rows} if n_rows <= settings.exact_rows else {}
    what = described(model_of(method, scales, PROBLEMS[problem].lengthscale))
    return MethodCell(problem, method, {"protocol": scales, "rows": n_rows}, what, further)


def model_of(method: str, scales: str, lengthscale: float, unit: float = 1.0) -> GPRegressor:
    """With the true kernel, whose variance counts in squared units, and noise; nearest neighbours learn theirs."""
    is_given = scales == GIVEN
    return GPRegressor(
        unit**-2 * RBF(torch.tensor([lengthscale])) if is_given else "rbf",
        objective=None if is_given else "auto",
        noise=NOISE if is_given else "gaussian",
        target_transform="none",
        standardize=False,
        approximation=method,
        random_state=0,
    )


def run_cell(cell: MethodCell, folder: Path, progress: Progress) -> dict[str, Any]:
    """The record of a cell, from a new process."""
    progress("on its own", 0.0)
    return on_its_own(compute, cell)


def compute(cell: MethodCell) -> dict[str, Any]:
    """Seconds, memory and errors, or why there are none."""
    problem, n_rows = PROBLEMS[cell.data], int(cell.protocol["rows"])
    drawn = problem.drawn(n_rows)
    model = model_of(cell.method, str(cell.protocol["protocol"]), problem.lengthscale, float(drawn.y.std()))
    with quiet(), one_thread(), threadpool_limits(1, user_api="openmp"):
        try:
            _, *fit = measured(lambda: model.fit(drawn.x, drawn.y))
            answers, *prediction = measured(lambda: model.forecast(drawn.queries))
        except (MemoryError, ValueError) as error:
            return {FAILED: str(error)}
    names = ("fit seconds", "fit MB", "prediction seconds", "prediction MB")
    return {"run": {**dict(zip(names, (*fit, *prediction), strict=True)), **errors_of(cell, problem, drawn, answers)}}


def errors_of(cell: MethodCell, problem: Problem, drawn: Drawn, answers: Forecast) -> dict[str, float]:
    """Of means in deviations of the noise; of deviations relative to those of the exact posterior."""
    mean, deviation, inside = answers.mean, answers.deviation, drawn.is_inside
    found = {"function error": rms(mean - drawn.function, inside) / NOISE}
    if "exact_rows" in cell.further:
        exact_mean, exact_deviation = exact_answers(problem, drawn)
        ratio = deviation / exact_deviation
        found["mean error"] = rms(mean - exact_mean, inside) / NOISE
        found["deviation error"] = rms(ratio - 1, inside)
        found["deviation outside"] = float(ratio[~inside].mean())
    return found


def rms(error: np.ndarray, where: np.ndarray) -> float:
    """The root of the mean square."""
    return float(np.sqrt(np.mean(error[where] ** 2)))


EXPERIMENT = Experiment(NAME, "time, memory and error of approximations by name, as rows grow", False, run)

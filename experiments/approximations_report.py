"""The page of `experiments.approximations`: costs and errors by rows, slopes on log-log axes, and a figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from experiments.approximation_problems import QUERIES, SERIES, TABLE
from experiments.campaigns.cells import FAILED, Cell
from experiments.campaigns.methods import Record, what_is_missing
from experiments.experiment import Outcome, Picture, Table, Verdict
from experiments.figures import label, line_styles, new_figure, tidy
from sureshot.approximations.by_name import BY_NAME, FEATURE_MAPS

EXACT, GIVEN, LEARNT = "exact", "given", "learnt"
COSTS = ["fit seconds", "prediction seconds", "fit MB"]
ERRORS = ["function error", "mean error", "deviation error", "deviation outside"]
LAST = 3  # sizes that slopes are of
LINEAR, CUBIC, QUADRATIC = (0.0, 1.3), (2.4, 3.4), (1.7, 2.3)
"""Slopes that count as such."""
_LECTURE = "lecture on Gaussian processes"


def outcome_of(records: Sequence[Record], cells: Sequence[Cell], settings: Any) -> Outcome:
    """The outcome as far as the campaign has been run; ValueError if no cell has a result."""
    rows = [{**record["labels"], **record["run"]} for record in records if FAILED not in record]
    if not rows:
        raise ValueError("no cell of this campaign has a result yet, so there is no table to make")
    frame = pd.DataFrame(rows)
    slopes = slopes_of(frame)
    tables = [Table("slopes", f"Slopes on log-log axes, of the last {LAST} sizes.", slopes, digits=2)]
    for problem in frame["data"].unique():
        tables += tables_of(frame[frame["data"] == problem], problem)
    return Outcome(
        title="Approximations",
        introduction=(
            "An RBF process with noise of a tenth of its deviation, whose kernel and noise are given, so that a fit is "
            f"inference alone. `{TABLE}`: three columns from 0 to 1, length-scale .2. `{SERIES}`, for what needs a "
            "grid: even steps of which a tenth are gaps, length-scale 20 steps. 500 features or inducing inputs "
            "(nearest neighbours: 64), one thread, a process for each fit. Sizes go on while seconds of a fit and of "
            f"predictions, by the last two on log-log axes, stay below {settings.seconds:g} together. Predictions are "
            f"means and deviations of about {2 * QUERIES} rows. Nearest neighbours always learn their kernel. Where "
            "nothing is learnt `ssgp` is `random_features`, `a_la_carte` is `fastfood`, and `svgp` is `vfe`."
        ),
        tables=tuple(tables),
        config=settings,
        seeds=(0,),
        findings=tuple(what_is_missing(records, cells)),
        pictures=tuple(pictures_of(frame)),
        verdicts=tuple(verdicts_of(slopes)),
    )


def tables_of(frame: pd.DataFrame, problem: str) -> list[Table]:
    """Of given scales, then of learnt ones."""
    what = frame.rename(columns={"method": "approximation"})
    given, learnt = (what[what["protocol"] == scales] for scales in (GIVEN, LEARNT))
    errors = [name for name in ERRORS if name in what]
    caption = (
        f"{problem.capitalize()}, scales given. Errors of means, as the function and as the exact posterior's mean, "
        "are root mean squares in deviations of the noise, those of deviations relative to the exact posterior's; "
        "outside the rows, deviations divided by its."
    )
    found = [Table(problem, caption, given[["approximation", "rows", *COSTS, *errors]])]
    if len(learnt):
        columns = ["approximation", "rows", "fit seconds", "fit MB", "function error"]
        caption = f"{problem.capitalize()}, length-scales and noise learnt, and what else an approximation learns."
        found.append(Table(f"{problem}-learnt", caption, learnt[columns]))
    return found if len(given) else found[1:]


def slopes_of(frame: pd.DataFrame) -> pd.DataFrame:
    """A row for each problem, approximation and treatment of scales that has two sizes."""
    found = []
    for (problem, method, scales), part in frame.groupby(["data", "method", "protocol"], sort=False):
        last = part.sort_values("rows").tail(LAST)
        if len(last) > 1:
            row = {"data": problem, "approximation": method, "scales": scales, "from": last["rows"].min()}
            row |= {"to": last["rows"].max(), "seconds by the lecture": by_lecture(str(method))}
            found.append(row | {name: slope(last["rows"], last[name]) for name in COSTS})
    return pd.DataFrame(found)


def slope(rows: pd.Series, values: pd.Series) -> float:
    """Of logarithms."""
    return float(np.polyfit(np.log(rows), np.log(np.maximum(values, 1e-9)), 1)[0])


def by_lecture(method: str) -> str:
    """What the lecture says that computations grow as; of M features or inducing points."""
    if method == EXACT:
        return "n^3"
    if method in FEATURE_MAPS:
        return "m^2 n, finite basis"
    if method in BY_NAME or method == "inducing":
        return "m^2 n, inducing points"
    return {"kiss": "n, inducing points", "toeplitz": "less, structure", "kronecker": "less, structure"}.get(method, "")


def verdicts_of(slopes: pd.DataFrame) -> list[Verdict]:
    """Orders that the lecture states, by given scales."""
    if slopes.empty:
        return []
    given, found = slopes[slopes["scales"] == GIVEN], []
    for name, claim, (least, most) in (
        ("fit seconds", "exact inference takes n^3 computations", CUBIC),
        ("fit MB", "exact inference takes n^2 storage", QUADRATIC),
    ):
        exact = given[given["approximation"] == EXACT]
        if len(exact):
            said = "; ".join(f"{row['data']} {row[name]:.2f}" for _, row in exact.iterrows())
            holds = bool(exact[name].between(least, most).all())
            found.append(Verdict(f"{claim}: slope from {least:g} to {most:g}", _LECTURE, said, holds))
    least, most = LINEAR
    linear = given[given["seconds by the lecture"].ne("") & given["approximation"].ne(EXACT)]
    if len(linear):
        said = "; ".join(f"{row['approximation']} {row['fit seconds']:.2f}" for _, row in linear.iterrows())
        claim = f"with few features, inducing points or structure inference is O(n): slope at most {most:g}"
        found.append(Verdict(claim, _LECTURE, said, bool((linear["fit seconds"] <= most).all())))
    return found


def pictures_of(frame: pd.DataFrame) -> list[Picture]:
    """One for each problem."""
    found = []
    for problem in frame["data"].unique():
        caption = f"{problem.capitalize()}: kernel and noise given, and learnt."
        found.append(Picture(problem, caption, draw(frame[frame["data"] == problem])))
    return found


def draw(frame: pd.DataFrame) -> Figure:
    """Seconds, memory and error by rows; a row of panels for each treatment of scales."""
    treatments, methods = list(frame["protocol"].unique()), list(frame["method"].unique())
    figure = new_figure(11, 0.8 + 2.8 * len(treatments))
    panels = figure.subplots(len(treatments), 3, sharex=True, sharey="col", squeeze=False)
    styles = line_styles(methods, EXACT)
    shown = {"fit seconds": "processor seconds of a fit", "fit MB": "MB of a fit", "function error": "error / noise"}
    sizes = sorted(frame["rows"].unique())
    for row, treatment in zip(panels, treatments, strict=True):
        for axes, (name, title) in zip(row, shown.items(), strict=True):
            for method, part in frame[frame["protocol"] == treatment].groupby("method", sort=False):
                values = np.maximum(part[name], 1) if name == "fit MB" else part[name]
                axes.plot(part["rows"], values, marker="o", markersize=2.5, **styles[str(method)])
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_locator(NullLocator())
            axes.set_xticks(sizes, [f"{n // 1000}k" if n >= 1000 else str(n) for n in sizes])
            axes.xaxis.set_minor_locator(NullLocator())
            tidy(axes, f"{title}, {treatment} scales")
            label(axes, xlabel="rows" if row is panels[-1] else "")
    for method in methods:
        panels[0, 2].plot([], [], label=method, **styles[method])
    panels[0, 2].legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure

"""The page of the campaign on three small tables: scores, paired differences, curves of the online protocol, verdicts.

A standard error offline is over folds, whose training rows overlap; online over seeds, each the mean of both first
classes. Differences are paired: of the same fold, or seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.campaigns.cells import FAILED, Cell
from experiments.campaigns.methods import Record, paired, what_is_missing
from experiments.experiment import Outcome, Picture, Table, Verdict
from experiments.figures import line_styles, new_figure, tidy
from experiments.smc_methods import GAUSSIAN_PROCESSES, METHODS, OURS
from sureshot.metrics.calibration import ReliabilityCurve

SCORES = ("accuracy", "nll", "brier", "ece", "seconds")
TITLES = {"ionosphere": "Ionosphere", "musk1": "Musk", "heart_cleveland": "Heart (Cleveland)"}
BARS = {"ionosphere": 0.224, "musk1": 0.325, "heart_cleveland": 0.385}
"""NLL of the best of scikit-learn's Gaussian processes and forests when the bars were set, other folds."""
AIMS = {"ionosphere": 0.154, "musk1": 0.182}
"""That of the SVM."""

PAPER = pd.DataFrame(
    {
        "method": ["their method", *list(METHODS)[1:7]],
        "Ionosphere offline": [90.7, 87.2, 84.3, 75.1, 80.8, 81.5, 87.2],
        "Ionosphere online": [81.1, 74.4, 73.2, 72.9, 65.6, 61.8, 73.3],
        "Musk offline": [86.3, 61.7, 65.4, 75.3, 64.3, 78.5, 76.4],
        "Musk online": [61.7, 54.9, 58.9, 58.8, 56.4, 55.8, 52.1],
        "Heart offline": [89.9, 82.3, 84.0, 84.0, 80.6, 76.4, 81.5],
        "Heart online": [72.0, 66.7, 70.7, 74.6, 66.6, 71.4, 62.2],
    }
)
_PUBLISHED = {"ionosphere": 90.7, "musk1": 86.3, "heart_cleveland": 89.9}


def outcome_of(records: Sequence[Record], cells: Sequence[Cell], settings: Any) -> Outcome:
    """The outcome as far as the campaign has been run; ValueError if no cell has scores."""
    runs, curves = run_frame(records), curve_frame(records)
    if runs.empty:
        raise ValueError("no cell of this campaign has a result yet, so there is no table to make")
    return Outcome(
        title="Structure discovery on three small tables",
        introduction=(
            "Offline: stratified ten-fold cross-validation, gaps filled and columns standardised by the training rows; "
            "`grouped` keeps the conformations of a molecule of Musk in one fold. Online: a third of the rows is held "
            "out; a tenth of the others comes first, all of one class (each class in turn), then the rest in four "
            "mixed batches; both classes are announced; after each of the five batches the held-out rows are asked. "
            "Online, a method without `partial_fit` is fitted anew to all rows so far, and says what the rule of "
            "succession does while there is one class. Probabilities of the SVM, and offline of passive-aggressive "
            "learning and SGD, are Platt's sigmoids by five folds. Probabilities are clipped at 1e-6."
        ),
        tables=(*_score_tables(records, runs), *_difference_tables(runs), *_curve_tables(curves), _published()),
        pictures=() if curves.empty else (_picture(curves),),
        config=settings,
        seeds=settings.seeds,
        findings=(*what_is_missing(records, cells), *_findings(records)),
        verdicts=verdicts_of(runs),
        differences=(
            "The paper states neither splits nor scaling nor the number of batches, nor whether classes are announced.",
            "In the paper's first batch all rows of the first class come; here a tenth of the rows do.",
            "The two processes with a given structure average over their latents, as in the paper; the stacked rule of "
            "kernel search is not the paper's.",
            "Its random forest is a Julia package's; ours has 500 trees of scikit-learn's.",
            "Gaps of Cleveland (6 cells) are filled by the mean of all training rows online, too.",
            "Standard errors are over folds as if these were independent: both repeats test the same rows, and folds "
            "share rows to learn from, so that they are too small, by a factor of 1.4 at worst where repeats agree.",
        ),
    )


def run_frame(records: Sequence[Record]) -> pd.DataFrame:
    """One row for each run: a fold, or a seed with the means over batches and both first classes."""
    rows = []
    for record in records:
        if FAILED in record:
            continue
        labels = dict(record["labels"])
        place = {name: labels[name] for name in ("data", "protocol", "method")}
        if "scores" in record:
            rows.append({**place, "run": (labels["repeat"], labels["fold"]), **record["scores"]})
        else:
            batches = pd.DataFrame(record["batches"]).astype(float)
            means = {**batches[list(SCORES)].mean(), "seconds": batches["seconds"].sum()}
            rows.append({**place, "run": (labels["seed"],), **means, "last accuracy": batches["accuracy"].iloc[-1]})
    if not rows:
        return pd.DataFrame()
    frame = pd.DataFrame(rows)
    frame["last accuracy"] = frame.get("last accuracy", np.nan)
    return frame.groupby([*place, "run"], sort=False)[[*SCORES, "last accuracy"]].mean().reset_index()


def curve_frame(records: Sequence[Record]) -> pd.DataFrame:
    """One row for each batch of each online run."""
    rows = [
        {**record["labels"], "batch": number, **batch}
        for record in records
        for number, batch in enumerate(record.get("batches", ()))
    ]
    return pd.DataFrame(rows).astype(dict.fromkeys(SCORES, float)) if rows else pd.DataFrame()


def verdicts_of(runs: pd.DataFrame) -> tuple[Verdict, ...]:
    """The bars, as far as they were measured."""
    found: list[Verdict] = []
    for (data, protocol), part in runs.groupby(["data", "protocol"], sort=False):
        mean = part.groupby("method", sort=False)[["accuracy", "nll"]].mean()
        if OURS not in mean.index or len(mean) < 2:
            continue
        where = f"{TITLES[str(data)]}, {protocol}"
        if protocol == "online":
            found += [_first(mean, "accuracy", where), _first(mean, "nll", where)]
            continue
        found += _below(mean, where)
        found.append(_as_accurate(part, mean, where))
        if protocol == "offline":
            found += _bars(mean, str(data), where)
    return tuple(found)


def _below(mean: pd.DataFrame, where: str) -> list[Verdict]:
    others = mean.loc[[name for name in (*GAUSSIAN_PROCESSES, "random forest") if name in mean.index], "nll"]
    if others.empty:
        return []
    ours, best = float(mean["nll"][OURS]), str(others.idxmin())
    measured = f"{ours:.3f}; {best} {others[best]:.3f}"
    claim = f"NLL ahead of every Gaussian process and of the random forest ({where})"
    return [Verdict(claim, "this project's target", measured, bool(ours < others[best]))]


def _bars(mean: pd.DataFrame, data: str, where: str) -> list[Verdict]:
    nll, accuracy = float(mean["nll"][OURS]), 100 * float(mean["accuracy"][OURS])
    found = [
        Verdict(f"NLL below {limits[data]} ({where})", source, f"{nll:.3f}", nll < limits[data])
        for limits, source in ((BARS, "measured when the bars were set"), (AIMS, "the SVM's, then"))
        if data in limits
    ]
    claim = f"more accurate than {_PUBLISHED[data]} %, what the paper says of its method ({where})"
    return [
        *found,
        Verdict(claim, "table 1, whose splits are not stated", f"{accuracy:.1f} %", accuracy > _PUBLISHED[data]),
    ]


def _as_accurate(part: pd.DataFrame, mean: pd.DataFrame, where: str) -> Verdict:
    best = str(mean["accuracy"].drop(OURS).idxmax())
    gap, error, n = paired(part, "accuracy", OURS, best)
    measured = f"less {best}: {100 * gap:.1f} ± {100 * error:.1f} points, {n} folds"
    claim = f"no method is more accurate by more than a paired standard error ({where})"
    return Verdict(claim, "this project's target", measured, bool(gap >= -np.nan_to_num(error)))


def _first(mean: pd.DataFrame, column: str, where: str) -> Verdict:
    others = mean[column].drop(OURS).dropna() * (1 if column == "nll" else -1)
    best, ours = str(others.idxmin()), float(mean[column][OURS])
    theirs = float(mean[column][best])
    name = "NLL" if column == "nll" else "accuracy"
    measured = f"{ours:.3f}; {best} {theirs:.3f}"
    holds = ours < theirs if column == "nll" else ours > theirs
    return Verdict(
        f"first of all methods in mean {name} over batches ({where})", "this project's target", measured, holds
    )


def _score_tables(records: Sequence[Record], runs: pd.DataFrame) -> list[Table]:
    groups = runs.groupby(["data", "protocol", "method"], sort=False)
    frame = groups[["accuracy"]].mean()
    frame.insert(0, "runs", groups.size())
    for name in ("accuracy", "nll"):
        frame[name], frame[f"{name} se"] = groups[name].mean(), groups[name].sem()
    frame["brier"], frame["ece"] = groups["brier"].mean(), groups["ece"].mean()
    for key, curve in _pooled(records).items():
        frame.loc[key, "ece"] = curve.expected_error
    frame["seconds"], frame["last accuracy"] = groups["seconds"].mean(), groups["last accuracy"].mean()
    frame = frame.reset_index()
    whole, online = frame[frame["protocol"] != "online"], frame[frame["protocol"] == "online"]
    captions = {
        "offline": (
            "Means over folds, standard errors (se) over folds; ECE of all folds' rows together. Seconds are those of "
            "the machine that a cell was run on: GPClassifier's were run later than the others', on one about half as "
            "fast."
        ),
        "online": (
            "Means over the five batches, then over first classes and seeds, with standard errors over seeds; seconds "
            "of all batches; accuracy after the last."
        ),
    }
    offline_table = Table("offline", captions["offline"], whole.drop(columns="last accuracy"))
    online_table = Table("online", captions["online"], online.drop(columns="protocol"))
    return [table for table in (offline_table, online_table) if len(table.frame)]


def _pooled(records: Sequence[Record]) -> dict[tuple[Any, ...], ReliabilityCurve]:
    sums: dict[tuple[Any, ...], np.ndarray] = {}
    for record in records:
        if "bins" in record:
            key = tuple(record["labels"][name] for name in ("data", "protocol", "method"))
            sums[key] = sums.get(key, 0) + np.array(record["bins"])
    return {key: ReliabilityCurve.from_sums(*bins) for key, bins in sums.items()}


def _difference_tables(runs: pd.DataFrame) -> list[Table]:
    rows = []
    for (data, protocol), part in runs.groupby(["data", "protocol"], sort=False):
        for other in [name for name in part["method"].unique() if name != OURS]:
            row: dict[str, Any] = {"data": data, "protocol": protocol, f"{OURS} less": other}
            for column, scale in (("accuracy", 100), ("nll", 1)):
                gap, error, n = paired(part, column, OURS, other)
                row |= {column: scale * gap, f"{column} se": scale * error, "runs": max(n, row.get("runs", 0))}
            rows.append(row)
    caption = (
        "Paired differences (of the same fold, or seed) with their standard errors: accuracy in points, NLL in nats."
    )
    return [Table("differences", caption, pd.DataFrame(rows))] if rows else []


def _curve_tables(curves: pd.DataFrame) -> list[Table]:
    if curves.empty:
        return []
    means = curves.groupby(["data", "method", "batch"], sort=False)[["seen", *SCORES]].mean().reset_index()
    return [Table("curves", "Online, after each batch.", means, on_page=False)]


def _published() -> Table:
    caption = "Accuracy in %, Huang & Wang (2025), table 1; online averaged over batches."
    return Table("paper", caption, PAPER, digits=1, published=True)


def _findings(records: Sequence[Record]) -> list[str]:
    """The kernels that were found most, by data set."""
    mass: dict[str, dict[str, float]] = {}
    for record in records:
        labels = record["labels"]
        if labels.get("protocol") == "offline" and labels["method"] == OURS:
            own = mass.setdefault(str(labels["data"]), {})
            for share, structure in record.get("kernels", ()):
                own[structure] = own.get(structure, 0.0) + share
    return [
        f"Heaviest structures on {TITLES[data]}, offline: "
        + ", ".join(f"`{name}`" for name in sorted(own, key=lambda name: -own[name])[:4])
        + "."
        for data, own in mass.items()
    ]


def _picture(curves: pd.DataFrame) -> Picture:
    datasets, methods = list(curves["data"].unique()), list(curves["method"].unique())
    figure: Figure = new_figure(3.3 * len(datasets) + 0.6, 6.2)
    panels = figure.subplots(2, len(datasets), squeeze=False, sharex="col")
    styles = line_styles(methods, OURS)
    for column, data in enumerate(datasets):
        for axes, score in zip(panels[:, column], ("accuracy", "nll"), strict=True):
            part = curves[curves["data"] == data].groupby(["method", "batch"], sort=False)[["seen", score]].mean()
            for method in methods:
                if method in part.index and not part.loc[method, score].isna().all():
                    line = part.loc[method]
                    axes.plot(line["seen"], line[score], label=method, **styles[method])
            title = TITLES[str(data)] if score == "accuracy" else ""
            tidy(axes, title, "" if score == "accuracy" else "rows seen", score if not column else "")
            if score == "nll":
                axes.set_ylim(0, min(2.0, 1.05 * float(part[score].max())))
    lines, names = panels[0, 0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=2 + len(datasets), fontsize=8, frameon=False)
    caption = (
        "Online: held-out rows after each of the five batches, the first of one class only; means over seeds and both "
        "first classes. NLL above 2 nats is cut off."
    )
    return Picture("online", caption, figure)

"""From the records of cells to tables of numbers: one row for each evaluation of a cell, then averages over seeds.

A single seed has the standard errors of its test tasks. Several seeds have those between seeds, which hold the
randomness of training, too, and their 95 % intervals are Student's, as seeds are few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

LABELS = ("learner", "preset", "kernel", "shots", "budget", "precision")
"""What distinguishes rows after averaging over seeds, beside the evaluation."""

Record = Mapping[str, Any]


def one_precision_each(records: Sequence[Record]) -> list[Record]:
    """The first of the records that differ in precision only, all labelled alike, for comparisons of learners."""
    found: dict[tuple[Any, ...], Record] = {}
    for record in records:
        labels = record["labels"]
        same = (*(labels[name] for name in (*LABELS, "seed") if name != "precision"), *record["evaluations"])
        found.setdefault(same, {**record, "labels": {**labels, "precision": "any"}})
    return list(found.values())


def score_frame(records: Sequence[Record]) -> pd.DataFrame:
    """One row for each evaluation of each cell.

    Columns: the labels, ``seed`` and ``evaluation``; accuracy, ``batch sd`` (the papers' deviation between batches of
    episodes), nll, ece, mce and brier as they are and, beginning with ``T``, after one temperature; ``P ece`` and ``P
    mce`` after the temperatures that make these two the lowest on validation tasks; ``out AUROC`` and
    ``own AUROC``; ``corrupted``, the accuracy at the highest severity averaged over corruptions; ``ms/task``,
    ``trained`` and ``best at`` (episodes) and ``minutes``. Standard errors over test tasks end in ``se``. What was not
    measured is missing (NaN).
    """
    rows = [row for record in records for row in _rows(record)]
    frame = pd.DataFrame(rows)
    missing = [column for column in METRICS if column not in frame]
    return frame.assign(**dict.fromkeys(missing, np.nan))


def averaged(frame: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds, with ``seeds``, the standard errors, and ``+-``, the half width of accuracy's 95 % interval."""
    keys = [*LABELS, "evaluation"]
    groups = frame.groupby(keys, sort=False)
    columns = [column for column in frame.columns if column not in (*keys, "seed")]
    means = groups[columns].mean()
    means["seeds"] = groups["seed"].nunique()
    return _with_intervals(
        means, means["seeds"], {metric: groups[metric].sem() for metric in WITH_ERRORS}
    ).reset_index()


def robustness_frame(records: Sequence[Record]) -> pd.DataFrame:
    """Scores under corruption, averaged over seeds: one row for each learner, evaluation, kind and severity.

    Severity 0 is the clean images; ``+-`` is the half width of accuracy's 95 % interval. Empty if nothing was measured.
    """
    rows = [row for record in records for row in _robustness_rows(record)]
    if not rows:
        return pd.DataFrame()
    groups = pd.DataFrame(rows).groupby([*LABELS, "evaluation", "kind", "severity"], sort=False)
    means = groups[["accuracy", "accuracy se", "brier", "ece"]].mean()
    return _with_intervals(means, groups["accuracy"].count(), {"accuracy": groups["accuracy"].sem()}).reset_index()


def _with_intervals(means: pd.DataFrame, seeds: pd.Series, between: Mapping[str, pd.Series]) -> pd.DataFrame:
    """Means with the standard errors between seeds where there are several, and accuracy's interval."""
    several = seeds > 1
    for metric, error in between.items():
        means[f"{metric} se"] = means[f"{metric} se"].where(~several, error)
    quantile = np.where(several, stats.t.ppf(0.975, np.maximum(seeds - 1, 1)), 1.96)
    return means.assign(**{"+-": quantile * means["accuracy se"]})


WITH_ERRORS = ("accuracy", "nll", "ece", "T ece", "P ece", "P mce", "corrupted")
"""Scores that have standard errors."""

METRICS = (
    "accuracy",
    "accuracy se",
    "batch sd",
    "nll",
    "nll se",
    "ece",
    "ece se",
    "mce",
    "brier",
    "T",
    "T nll",
    "T ece",
    "T ece se",
    "T mce",
    "T brier",
    "P ece",
    "P ece se",
    "P mce",
    "P mce se",
    "out AUROC",
    "own AUROC",
    "corrupted",
    "corrupted se",
    "ms/task",
    "trained",
    "best at",
    "minutes",
)
"""Columns of `score_frame` beside the labels."""


def _rows(record: Record) -> list[dict[str, Any]]:
    found = []
    labels = {name: record["labels"][name] for name in (*LABELS, "seed")}
    for name, scores in record["evaluations"].items():
        accuracy = scores["accuracy"]
        row: dict[str, Any] = {
            **labels,
            "evaluation": name,
            "accuracy": accuracy["mean"],
            "accuracy se": accuracy["standard_error"],
            "batch sd": accuracy["batch_deviation"],
        }
        for variant, prefix in (("none", ""), ("temperature", "T ")):
            if variant in scores["calibration"]:
                row |= _calibration(scores["calibration"][variant], prefix)
        for error in ("ece", "mce"):
            if (variant := f"least_{error}") in scores["calibration"]:
                found_error = scores["calibration"][variant][error]
                row |= {f"P {error}": found_error["mean"], f"P {error} se": found_error["standard_error"]}
        row |= _detection(scores["out_of_episode"]) | _worst(scores["robustness"])
        if scores["time"] is not None:
            row["ms/task"] = 1e3 * scores["time"]["batched"]
        row["trained"] = record["training"]["episodes"]
        row["best at"] = record["training"]["best_episodes"]
        row["minutes"] = record["training"]["seconds_of_last_run"] / 60
        found.append(row)
    return found


def _calibration(part: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    found = {prefix + metric: part[metric]["mean"] for metric in ("nll", "ece", "mce", "brier")}
    found[f"{prefix}ece se"] = part["ece"]["standard_error"]
    if prefix:
        return found | {"T": part["temperature"]}
    return found | {"nll se": part["nll"]["standard_error"]}


def _detection(part: Mapping[str, Any] | None) -> dict[str, Any]:
    """AUROC within episodes; results of an earlier version lack the learner's own score."""
    if part is None:
        return {}
    names = {"out AUROC": part["primary"], "own AUROC": "outlier_score"}
    return {
        column: part["scores"][name]["per_episode"]["mean"] for column, name in names.items() if name in part["scores"]
    }


def _worst(part: Mapping[str, Any] | None) -> dict[str, Any]:
    if part is None:
        return {}
    highest = max(scores["severity"] for scores in part["scores"])
    worst = [scores["accuracy"] for scores in part["scores"] if scores["severity"] == highest]
    return {
        "corrupted": float(np.mean([accuracy["mean"] for accuracy in worst])),
        # The same tasks under every corruption: as if their errors were fully correlated.
        "corrupted se": float(np.mean([accuracy["standard_error"] for accuracy in worst])),
    }


def _robustness_rows(record: Record) -> list[dict[str, Any]]:
    found = []
    for name, scores in record["evaluations"].items():
        part = scores["robustness"]
        if part is None:
            continue
        labels = {label: record["labels"][label] for label in LABELS} | {"evaluation": name}
        clean = {"severity": 0, "accuracy": part["clean_accuracy"]["mean"]} | {
            "accuracy se": part["clean_accuracy"]["standard_error"]
        }
        found += [{**labels, "kind": kind, **clean} for kind in dict.fromkeys(s["kind"] for s in part["scores"])]
        found += [
            {
                **labels,
                "kind": s["kind"],
                "severity": s["severity"],
                "accuracy": s["accuracy"]["mean"],
                "accuracy se": s["accuracy"]["standard_error"],
                "brier": s["brier"]["mean"],
                "ece": s["ece"],
            }
            for s in part["scores"]
        ]
    return found

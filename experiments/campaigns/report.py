"""The page of a few-shot campaign, from the results of its cells.

Every table names the budget of every row; cells without a result and cells that failed are named on the page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.campaigns.cells import FAILED, stale_reason
from experiments.campaigns.few_shot import FewShotCell
from experiments.campaigns.pictures import campaign_pictures, slug
from experiments.campaigns.published import published_tables
from experiments.campaigns.scores import (
    LABELS,
    Record,
    averaged,
    one_precision_each,
    robustness_frame,
    score_frame,
)
from experiments.campaigns.verdicts import BASELINES, aim_verdicts, paper_verdicts
from experiments.experiment import Outcome, Table


def campaign_outcome(
    *,
    title: str,
    introduction: str,
    records: Sequence[Record],
    cells: Sequence[FewShotCell],
    results: Path,
    settings: Any,
    seeds: tuple[int, ...],
    published: str | None,
    differences: tuple[str, ...],
    recommended: str,
) -> Outcome:
    """The outcome of a campaign as far as it has been run; ValueError if no cell has scores."""
    scored = [record for record in records if FAILED not in record]
    if not scored:
        raise ValueError("no cell of this campaign has a result yet, so there is no table to make")
    summary, robustness = averaged(score_frame(scored)), robustness_frame(scored)
    decisive = one_precision_each(scored)
    frame = score_frame(decisive)
    return Outcome(
        title=title,
        introduction=introduction,
        tables=(
            *_score_tables(summary),
            *_calibration_tables(summary),
            *_robustness_tables(robustness),
            *published_tables(published),
        ),
        pictures=campaign_pictures(decisive, recommended),
        config=settings,
        seeds=seeds,
        findings=_findings(records, cells, results),
        verdicts=(*aim_verdicts(frame, recommended), *paper_verdicts(frame, published)),
        differences=(*differences, _FITTED),
    )


def _findings(records: Sequence[Record], cells: Sequence[FewShotCell], results: Path) -> tuple[str, ...]:
    """How complete the campaign is; results that other settings made are named with what changed."""
    scored = [record for record in records if FAILED not in record]
    hours = sum(record["training"]["seconds_of_last_run"] + record["evaluation_seconds"] for record in scored) / 3600
    found = [f"{len(scored)} of {len(cells)} cells have a result; they took {hours:.1f} hours (the last run of each)."]
    failures = [f"`{record['key']}`: {record[FAILED]}" for record in records if FAILED in record]
    if failures:
        found.append("Failed:\n\n" + "\n".join(f"- {line}" for line in failures))
    done = {record["key"] for record in records}
    missing = [cell for cell in cells if cell.key not in done]
    reasons = {cell.key: stale_reason(cell, results) for cell in missing}
    for reason in dict.fromkeys(reasons.values()):
        those = [cell for cell in missing if reasons[cell.key] == reason]
        what = "Not run" if reason is None else f"Left out, as {reason}"
        found.append(f"{what}: {_listed(those)}.")
    return tuple(found)


def _listed(cells: Sequence[FewShotCell]) -> str:
    """A few by name, many by number."""
    if len(cells) <= _MISSING_BY_NAME:
        return ", ".join(f"`{cell.key}`" for cell in cells)
    counts = Counter((cell.labels["learner"], cell.examinations[0].name) for cell in cells)
    parts = [f"{count} of `{learner}` ({name})" for (learner, name), count in counts.items()]
    return f"{len(cells)} cells, {', '.join(parts)}"


_MISSING_BY_NAME = 12
"""Cells without a result that are named one by one; more are counted."""


_FITTED = (
    "`ove_mean_field_*`, ours, fit their normalisation and temperature to validation classes as part of meta-training; "
    "the other learners are as published, with the columns T for what one temperature does to them."
)
_CAPTION = (
    "Accuracy with the half width of its 95 % interval (+-); negative log likelihood, calibration error (ECE, 15 bins) "
    "and Brier score of the probabilities as they are, then (T) after one temperature fitted on validation classes; "
    "out-of-episode AUROC within episodes, by the negative maximum logit (out) and by the learner's own outlier score "
    "(own), which is another one for Gaussian processes only; accuracy at the highest severity, averaged over "
    "corruptions; milliseconds of adaptation for each task; training episodes, and those at the checkpoint chosen. "
    "Intervals are over test tasks for one seed, between seeds for several."
)
_ON_PAGE = (
    "learner",
    "preset",
    "kernel",
    "budget",
    "precision",
    "seeds",
    "accuracy",
    "+-",
    "nll",
    "ece",
    "brier",
    "T nll",
    "T ece",
    "out AUROC",
    "own AUROC",
    "corrupted",
    "ms/task",
    "trained",
    "best at",
)
_EPISODES = ("trained", "best at")


def _score_tables(summary: pd.DataFrame) -> list[Table]:
    """One table for each evaluation, the lowest NLL first, and a file with everything."""
    shown = _kernels_of_gaussian_processes(summary).dropna(axis="columns", how="all")
    tables = []
    for evaluation, part in shown.groupby("evaluation", sort=False):
        measured = part.dropna(axis="columns", how="all").sort_values("nll")
        rows = measured[[column for column in _ON_PAGE if column in measured]]
        rows = rows.assign(**{column: rows[column].round().astype(int) for column in _EPISODES})
        tables.append(
            Table(f"scores-{slug(str(evaluation))}", f"**{evaluation}.** {_CAPTION}", rows.reset_index(drop=True), 4)
        )
    everything = Table("scores", "All scores of all evaluations.", shown, digits=4, on_page=False)
    return [*tables, everything]


_CALIBRATION = ("learner", "preset", "kernel", "precision", "ece", "mce", "T", "T ece", "T mce", "P ece", "P mce")


def _calibration_tables(summary: pd.DataFrame) -> list[Table]:
    """Calibration errors by the procedure of Ke et al. (2023) and by ours, where both were measured."""
    shown = _kernels_of_gaussian_processes(summary).dropna(subset=["P ece"])
    return [
        Table(
            f"calibration-{slug(str(evaluation))}",
            f"**{evaluation}.** Calibration errors of the probabilities as they are; after one temperature fitted on "
            "validation classes by their likelihood (T); and by the procedure of Ke et al. (P): after the temperature "
            "of lowest ECE on validation classes, and after another of lowest MCE.",
            part[list(_CALIBRATION)].sort_values("P ece").reset_index(drop=True),
            digits=4,
        )
        for evaluation, part in shown.groupby("evaluation", sort=False)
    ]


def _kernels_of_gaussian_processes(frame: pd.DataFrame) -> pd.DataFrame:
    """The same with no kernel for the learners that have none."""
    return frame.assign(kernel=frame["kernel"].where(~frame["learner"].isin(BASELINES), ""))


def _robustness_tables(robustness: pd.DataFrame) -> list[Table]:
    if robustness.empty:
        return []
    highest = robustness["severity"].max()
    worst = robustness[robustness["severity"] == highest]
    index = [*LABELS, "evaluation"]
    wide = worst.pivot_table(index=index, columns="kind", values=["accuracy", "brier"], sort=False)
    wide.columns = [f"{kind} {metric}" for metric, kind in wide.columns]
    return [
        Table(
            f"robustness-severity-{highest}",
            f"Accuracy and Brier score when support and query images are corrupted with severity {highest}; the files "
            "have all severities.",
            _kernels_of_gaussian_processes(wide.reset_index()),
            digits=4,
        ),
        Table("robustness", "Corrupted images; severity 0 is clean.", robustness, digits=4, on_page=False),
    ]

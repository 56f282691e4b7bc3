"""What computing the backbone in bfloat16 changes: the same learners trained in both precisions, with several seeds.

The cells are those of `omniglot-choice` at five shots, and are shared with it. A pair of cells differs in nothing but
the precision: same initial weights, same tasks, in training and in tests. What remains of their difference, when seeds
are averaged over, is bfloat16's; what differs between seeds is training's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from scipy import stats

from experiments.campaigns.cells import FAILED, CampaignConfig
from experiments.campaigns.few_shot import data_loader
from experiments.campaigns.grids import check_budget, check_learners
from experiments.campaigns.images import OMNIGLOT_CHOICE, ImageCampaignConfig
from experiments.campaigns.scores import score_frame
from experiments.experiment import Experiment, Outcome, Progress, Table, Verdict, configure

NAME = "bfloat16"
PRECISIONS = ("bfloat16", "float32")
METRICS = ("accuracy", "nll", "T nll")


@dataclass(frozen=True)
class Bfloat16Config(CampaignConfig):
    """Settings."""

    budget: str = "standard"
    learners: tuple[str, ...] = ("protonet", "feature_transfer")
    shots: int = 5
    seeds: tuple[int, ...] = (0, 1, 2)


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """Run the missing cells, and compare those that are there in both precisions."""
    settings = configure(Bfloat16Config, options)
    check_budget(settings.budget)
    check_learners(settings.learners)
    grid = ImageCampaignConfig(settings.budget, settings.learners, shots=(settings.shots,), seeds=settings.seeds)
    cells = [cell for precision in PRECISIONS for cell in OMNIGLOT_CHOICE.cells(grid, precision)]
    records = OMNIGLOT_CHOICE.records(cells, settings, data_loader(data_root), progress)
    pairs = paired(score_frame([record for record in records if FAILED not in record]))
    if pairs.empty:
        raise ValueError("no learner has results in both precisions yet, so there is nothing to compare")
    summary = differences(pairs)
    missing = len(cells) // 2 - len(pairs)
    return Outcome(
        title="What bfloat16 changes",
        introduction=(
            f"{OMNIGLOT_CHOICE.introduction} Learners of the campaign `{OMNIGLOT_CHOICE.name}` at 5-way "
            f"{settings.shots}-shot, trained and tested with the backbone's arithmetic in bfloat16 (autocast; weights, "
            "statistics and everything after the backbone stay in float32) and in float32, with the same initial "
            "weights and the same tasks."
        ),
        tables=(
            Table("runs", "Every pair of trainings, and what bfloat16 adds to the scores of float32.", pairs, digits=4),
            Table(
                "differences",
                "Mean differences (bfloat16 less float32) with their standard errors between seeds, Student's p, and "
                "the standard deviation of a score between seeds of the same precision, averaged over both.",
                summary,
                digits=4,
            ),
        ),
        config=settings,
        seeds=settings.seeds,
        findings=(f"{missing} of {len(cells) // 2} pairs of trainings are missing.",) if missing else (),
        verdicts=_verdicts(summary),
        differences=("The papers train in float32.",),
    )


def paired(frame: pd.DataFrame) -> pd.DataFrame:
    """One row for each learner and seed with results in both precisions: the scores and their differences."""
    if frame.empty:
        return frame
    wide = frame.pivot(index=["learner", "seed"], columns="precision", values=[*METRICS, "best at"])
    if not set(PRECISIONS) <= set(frame["precision"]):
        return pd.DataFrame()
    wide = wide.dropna()
    columns: dict[str, Any] = {}
    for metric in METRICS:
        columns |= {f"{metric} {name}": wide[metric, name] for name in PRECISIONS}
        columns[f"{metric} difference"] = wide[metric, PRECISIONS[0]] - wide[metric, PRECISIONS[1]]
    columns |= {f"best at, {name}": wide["best at", name].astype(int) for name in PRECISIONS}
    return pd.DataFrame(columns).reset_index()


def differences(pairs: pd.DataFrame) -> pd.DataFrame:
    """Mean differences of every learner and metric; standard errors and p are missing (NaN) with a single seed."""
    rows = []
    for learner, part in pairs.groupby("learner", sort=False):
        for metric in METRICS:
            added = part[f"{metric} difference"].to_numpy(dtype=float)
            several = len(added) > 1
            rows.append(
                {
                    "learner": learner,
                    "score": metric,
                    "seeds": len(added),
                    "difference": added.mean(),
                    "se": stats.sem(added) if several else math.nan,
                    "p": stats.ttest_1samp(added, 0.0).pvalue if several else math.nan,
                    "sd between seeds": sum(part[f"{metric} {name}"].std() for name in PRECISIONS) / len(PRECISIONS),
                }
            )
    return pd.DataFrame(rows)


def _verdicts(summary: pd.DataFrame) -> tuple[Verdict, ...]:
    """Of accuracy, for the learners with several seeds: the difference against that of trainings with other seeds."""
    decided = summary[(summary["score"] == "accuracy") & summary["p"].notna()]
    return tuple(
        Verdict(
            claim=f"bfloat16 changes the accuracy of {row['learner']} by no more than trainings differ",
            source="this project's aims",
            measured=(
                f"{row['difference']:+.4f} (standard error {row['se']:.4f}, p = {row['p']:.2f}) against a standard "
                f"deviation of {row['sd between seeds']:.4f} between seeds"
            ),
            holds=bool(abs(row["difference"]) <= row["sd between seeds"]),
        )
        for row in decided.to_dict("records")
    )


EXPERIMENT = Experiment(NAME, "two learners of omniglot-choice trained in bfloat16 and in float32", True, run)

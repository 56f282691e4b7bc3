"""Does a quarter of the papers' training do? Learners of `omniglot-choice` trained for both budgets.

Learning rates do not change in training, so the shorter training is the first quarter of the longer one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.ticker import MaxNLocator

from experiments.campaigns.cells import FAILED, CampaignConfig
from experiments.campaigns.few_shot import data_loader
from experiments.campaigns.grids import BUDGETS, check_learners
from experiments.campaigns.images import OMNIGLOT_CHOICE, ImageCampaignConfig
from experiments.campaigns.scores import score_frame
from experiments.experiment import Experiment, Outcome, Picture, Progress, Table, Verdict, configure
from sureshot.report.plots import BLUE, FULL, INK, NORMAL, new_figure, tidy

NAME = "training-budgets"
SHORT, LONG = "standard", "full"
METRICS = ("accuracy", "nll", "ece", "T nll", "T ece", "corrupted")
WORTH = 0.01
"""Accuracy that would be worth four times the training: a point, about what seeds of one learner differ by."""


@dataclass(frozen=True)
class TrainingBudgetsConfig(CampaignConfig):
    """Settings."""

    learners: tuple[str, ...] = ("ove_mean_field_transfer", "cdkt_ml", "ove_gibbs_ml")
    shots: tuple[int, ...] = (5, 1)
    seeds: tuple[int, ...] = (0,)


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """Run the missing cells, and compare those that are there with both budgets."""
    settings = configure(TrainingBudgetsConfig, options)
    check_learners(settings.learners)
    grid = partial(ImageCampaignConfig, learners=settings.learners, shots=settings.shots, seeds=settings.seeds)
    cells = [cell for budget in (SHORT, LONG) for cell in OMNIGLOT_CHOICE.cells(grid(budget=budget))]
    records = OMNIGLOT_CHOICE.records(cells, settings, data_loader(data_root), progress)
    records = [record for record in records if FAILED not in record]
    pairs = paired(score_frame(records))
    if pairs.empty:
        raise ValueError("no learner has results of both budgets yet, so there is nothing to compare")
    curves = learning_curves(records)
    missing = len(cells) // 2 - len(pairs)
    return Outcome(
        title="What four times the training is worth",
        introduction=(
            f"{OMNIGLOT_CHOICE.introduction} Learners of the campaign `{OMNIGLOT_CHOICE.name}`, trained for the "
            "papers' 60,000 (one shot) and 40,000 (five shots) episodes, and for a quarter of them, with the same "
            "first weights, tasks and learning rates, so that the shorter training is the beginning of the longer one "
            "but for rounding, and for the draws of learners by Gibbs sampling, whose sampler has become another since "
            "the shorter ones were run. Of either the checkpoint that was best on validation tasks is tested."
        ),
        tables=(
            Table("budgets", "Scores on test tasks, the same for both budgets.", pairs, digits=4),
            Table("learning-curves", "Every validation of the longer training.", curves, digits=4, on_page=False),
        ),
        pictures=(_picture(curves),) if len(curves) else (),
        config=settings,
        seeds=settings.seeds,
        findings=(
            *_course(curves),
            *((f"{missing} of {len(cells) // 2} pairs of trainings are missing.",) if missing else ()),
        ),
        verdicts=_verdicts(pairs),
    )


def paired(frame: pd.DataFrame) -> pd.DataFrame:
    """One row for each learner, number of shots and seed with results of both budgets, with the gain in accuracy.

    Its standard error is that of two separate sets of tasks; they are the same, so it is too large rather than too
    small.
    """
    if frame.empty or not {SHORT, LONG} <= set(frame["budget"]):
        return pd.DataFrame()
    keys = ["learner", "shots", "seed", "evaluation"]
    wide = frame.pivot(index=keys, columns="budget", values=[*METRICS, "accuracy se", "best at"])
    wide = wide.dropna(subset=[("accuracy", SHORT), ("accuracy", LONG)])
    columns: dict[str, Any] = {"gain": wide["accuracy", LONG] - wide["accuracy", SHORT]}
    columns["gain se"] = (wide["accuracy se", LONG] ** 2 + wide["accuracy se", SHORT] ** 2) ** 0.5
    for metric in METRICS:
        columns |= {f"{metric}, {budget}": wide[metric, budget] for budget in (SHORT, LONG)}
    columns |= {f"best at, {budget}": wide["best at", budget].astype(int) for budget in (SHORT, LONG)}
    return pd.DataFrame(columns).reset_index().drop(columns="evaluation")


def learning_curves(records: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Scores on validation tasks by the episodes trained, of the trainings of the longer budget."""
    rows = []
    for record in records:
        labels = record["labels"]
        if labels["budget"] == LONG:
            same = {name: labels[name] for name in ("learner", "shots", "seed")}
            rows += [{**same, **line} for line in record["training"].get("validations", ())]
    return pd.DataFrame(rows)


def _course(curves: pd.DataFrame) -> tuple[str, ...]:
    """In a sentence what the longer trainings do after the standard budget has ended; nothing without curves."""
    if curves.empty:
        return ()
    trainings = [one for _, one in curves.groupby(["learner", "shots", "seed"])]
    best = [one.sort_values("accuracy").iloc[-1] for one in trainings]
    early = sum(row["episodes"] <= BUDGETS[SHORT][row["shots"]] for row in best)
    losses = [100 * (row["accuracy"] - one["accuracy"].iloc[-1]) for row, one in zip(best, trainings, strict=True)]
    return (
        f"Of {len(losses)} trainings by the papers' budget {early} are best on validation tasks in the first quarter, "
        f"and at their end accuracy there is {min(losses):.1f} to {max(losses):.1f} points below its best.",
    )


def _picture(curves: pd.DataFrame) -> Picture:
    shots = sorted(curves["shots"].unique(), reverse=True)
    learners = list(dict.fromkeys(curves["learner"]))
    figure = new_figure(FULL, 2.6 * len(learners))
    panels = figure.subplots(len(learners), len(shots), squeeze=False)
    for row, learner in zip(panels, learners, strict=True):
        for axes, k in zip(row, shots, strict=True):
            part = curves[(curves["learner"] == learner) & (curves["shots"] == k)]
            for _, one in part.groupby("seed"):
                axes.plot(one["episodes"], one["accuracy"], color=BLUE, linewidth=1.2)
            axes.axvline(BUDGETS[SHORT][k], color=INK, linewidth=1.2, linestyle=(0, (4, 3)))
            axes.set_title(f"{learner}, {k} shot{'s' if k > 1 else ''}", loc="left", color=INK, fontsize=NORMAL)
            axes.set(xlabel="episodes", ylabel="accuracy, validation")
            axes.set_xlim(0, BUDGETS[LONG][k])
            axes.xaxis.set_major_locator(MaxNLocator(5))
    tidy(*panels.ravel())
    return Picture(
        "curves",
        "Accuracy on tasks of validation classes in the papers' number of episodes; dashed: where the standard budget "
        "ends.",
        figure,
    )


def _verdicts(pairs: pd.DataFrame) -> tuple[Verdict, ...]:
    return tuple(
        Verdict(
            claim=f"four times the training gains {row['learner']} less than a point at {row['shots']}-shot",
            source="this project's aims",
            measured=(
                f"{100 * row['gain']:+.2f} points (standard error {100 * row['gain se']:.2f}); best after "
                f"{row[f'best at, {SHORT}']:,} of the first quarter and {row[f'best at, {LONG}']:,} of all episodes"
            ),
            holds=bool(row["gain"] < WORTH),
        )
        for row in pairs.to_dict("records")
    )


EXPERIMENT = Experiment(
    NAME, "learners of omniglot-choice trained for the papers' budget and a quarter of it", True, run
)

"""Figures of a campaign: scores by learner, reliability diagrams, accuracy against the severity of corruptions.

One kernel is shown, the cosine kernel where it was run, and of reliability and robustness only some learners: the
tables have all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from experiments.campaigns.grids import MEAN_FIELD, preset_of
from experiments.campaigns.scores import Record, averaged, robustness_frame, score_frame
from experiments.campaigns.verdicts import BASELINES
from experiments.experiment import Picture
from sureshot.meta.learners import LEARNER_NAMES
from sureshot.metrics import ReliabilityCurve
from sureshot.report.content import Measured
from sureshot.report.few_shot_plots import reliability_panels, severity_lines
from sureshot.report.plots import BLUE, FULL, GREY, INK, NORMAL, VERMILION, new_figure, tidy

SHOWN = (
    "ove_mean_field_transfer",
    "ove_mean_field_pl",
    "ove_gibbs_pl",
    "logistic_softmax_gibbs_pl",
    "cdkt_ml",
    "dkt",
    "protonet",
    "matchingnet",
    "feature_transfer",
)
"""Learners in figures that have no room for all."""

_VARIANTS = {"none": "as they are", "temperature": "one temperature"}


def campaign_pictures(records: Sequence[Record], recommended: str) -> tuple[Picture, ...]:
    """All figures for which there are results, with the recommended learner pointed out."""
    records = [record for record in records if _in_pictures(record["labels"])] or records
    summary, robustness = averaged(score_frame(records)), robustness_frame(records)
    kernel = "cosine" if (summary["kernel"] == "cosine").any() else str(summary["kernel"].iloc[0])
    of_kernel = summary[summary["kernel"] == kernel]
    return (
        Picture(
            "accuracy",
            f"Accuracy with 95 % intervals ({kernel} kernel). Orange: the recommended learner; grey: learners that "
            "are no Gaussian processes.",
            _dots(of_kernel, recommended, "accuracy", "+-"),
        ),
        Picture(
            "ece",
            f"Expected calibration error ({kernel} kernel): filled as the learners are, open after one temperature.",
            _dots(of_kernel, recommended, "ece", None, "T ece"),
        ),
        *_reliability(records, kernel),
        *_severities(robustness, kernel),
    )


def _in_pictures(labels: Mapping[str, Any]) -> bool:
    """Whether it is the one preset of its learner that figures show."""
    return labels["learner"] not in MEAN_FIELD or labels["preset"] == preset_of(labels["learner"])


def _dots(
    summary: pd.DataFrame, recommended: str, score: str, half_width: str | None, second: str | None = None
) -> Figure:
    """A panel for each evaluation, a line for each learner."""
    learners = sorted(set(summary["learner"]), key=LEARNER_NAMES.index)
    evaluations = sorted(dict.fromkeys(summary["evaluation"]), key=_by_way)
    figure = new_figure(FULL, 0.8 + 0.24 * len(learners))
    panels = figure.subplots(1, len(evaluations), squeeze=False, sharey=True)[0]
    for axes, evaluation in zip(panels, evaluations, strict=True):
        rows = summary[summary["evaluation"] == evaluation]
        for row in rows.to_dict("records"):
            place, colour = learners.index(row["learner"]), _colour(row["learner"], recommended)
            error = 0.0 if half_width is None else row[half_width]
            axes.errorbar(row[score], place, xerr=error, fmt="o", color=colour, markersize=5, linewidth=1.6)
            if second is not None:
                axes.plot(row[second], place, "o", markerfacecolor="white", color=colour, markersize=5)
        axes.set_title(evaluation, loc="left", color=INK, fontsize=NORMAL, weight="bold")
        axes.set_xlabel(score if score != "ece" else "ECE")
        axes.xaxis.set_major_locator(MaxNLocator(5 if len(evaluations) < 3 else 3))
        if score == "ece":
            axes.set_xlim(left=0)
        tidy(axes, grid="x")
    panels[0].set_yticks(np.arange(len(learners)), learners)
    panels[0].set_ylim(len(learners) - 0.5, -0.5)
    return figure


def _colour(learner: str, recommended: str) -> str:
    return VERMILION if learner == recommended else GREY if learner in BASELINES else BLUE


def _by_way(evaluation: str) -> tuple[int, ...]:
    """Ways and shots of a name such as "75-way 1-shot", in this order."""
    return tuple(int(word.split("-")[0]) for word in evaluation.split() if word.split("-")[0].isdigit())


def _reliability(records: Sequence[Record], kernel: str) -> Iterator[Picture]:
    evaluations = dict.fromkeys(name for record in records for name in record["evaluations"])
    for evaluation in sorted(evaluations, key=_by_way):
        curves = {}
        for learner in SHOWN:
            found = [
                record["evaluations"][evaluation]["calibration"]
                for record in records
                if record["labels"]["learner"] == learner
                and record["labels"]["kernel"] == kernel
                and evaluation in record["evaluations"]
            ]
            if found:
                curves[learner] = {
                    text: pooled_curve([part[variant]["bins"] for part in found])
                    for variant, text in _VARIANTS.items()
                    if all(variant in part for part in found)
                }
        if curves:
            yield Picture(
                f"reliability-{slug(evaluation)}",
                f"Reliability, {evaluation}: below the dashed line a learner is too sure. ECE before and after one "
                "temperature fitted on validation classes; the area of a point is the share of queries.",
                reliability_panels(curves),
            )


def pooled_curve(bins: Sequence[Mapping[str, Any]]) -> ReliabilityCurve:
    """One reliability diagram of several with the same edges, as records hold them."""
    count = np.array([part["count"] for part in bins], dtype=np.int64)  # (parts, bins)
    total = count.sum(axis=0)

    def mean(name: str) -> np.ndarray:
        values = np.nan_to_num(np.array([part[name] for part in bins], dtype=np.float64))
        weighted = (values * count).sum(axis=0)
        return np.divide(weighted, total, out=np.full(total.shape, np.nan), where=total > 0)

    return ReliabilityCurve(np.array(bins[0]["edges"]), total, mean("confidence"), mean("accuracy"))


def _severities(robustness: pd.DataFrame, kernel: str) -> Iterator[Picture]:
    if robustness.empty:
        return
    shown = robustness[(robustness["kernel"] == kernel) & robustness["learner"].isin(SHOWN)]
    for evaluation in sorted(dict.fromkeys(shown["evaluation"]), key=_by_way):
        rows = shown[shown["evaluation"] == evaluation]
        learners = [name for name in SHOWN if name in set(rows["learner"])]
        severities = sorted(set(rows["severity"]) - {0})
        scores: dict[str, dict[str, list[Measured]]] = {}
        clean: dict[str, Measured] = {}
        for learner in learners:
            by_kind: dict[str, list[Measured]] = {}
            for kind, part in rows[rows["learner"] == learner].groupby("kind", sort=False):
                ordered = part.set_index("severity").sort_index()
                points = [
                    Measured(mean, half / 1.96)  # drawn as 1.96 times this
                    for mean, half in zip(ordered["accuracy"], ordered["+-"], strict=True)
                ]
                clean[learner], by_kind[str(kind)] = points[0], points[1:]
            scores[learner] = by_kind
        yield Picture(
            f"robustness-{slug(evaluation)}",
            f"Accuracy with 95 % intervals when support and query images are corrupted, {evaluation}.",
            severity_lines(scores, clean, severities, chance=1 / _by_way(evaluation)[0]),
        )


def slug(evaluation: str) -> str:
    """The name of an evaluation for file names."""
    return evaluation.lower().replace(" ", "-")

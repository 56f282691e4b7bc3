"""CDKT's own studies: its temperature, its steps, the gradient through them, its prior mean in use.

One thing is changed at a time, around the settings of its paper (Ke et al. 2023) and around ours. The cells are kept
with those of the campaign `miniimagenet32`, which has three of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from experiments.campaigns.cells import FAILED, CampaignConfig
from experiments.campaigns.few_shot import FewShotCell, data_loader
from experiments.campaigns.grids import BUDGETS
from experiments.campaigns.images import MINIIMAGENET32
from experiments.campaigns.methods import check_names
from experiments.campaigns.scores import averaged, score_frame
from experiments.experiment import Experiment, Outcome, Picture, Progress, Table, Verdict, configure
from experiments.figures import GREY, new_figure, tidy

NAME = "cdkt-studies"
LEARNER, SHOTS, WAY = "cdkt_ml", 1, 5
BASES = {"paper": "#0072B2", "recommended": "#D55E00"}
"""Presets around which one thing is changed, and their colours."""

NOTABLE, COLLAPSE = 0.005, 0.05
"""Differences in accuracy that count as a gain, and as a collapse."""


class Study(NamedTuple):
    """One thing that is changed."""

    name: str  # and heading of the column of its values
    values: tuple[Any, ...]
    usual: Any  # the value of both presets
    source: str


STUDIES = (
    Study("temperature", (0.2, 0.5, 0.75, 1.0, 1.5), 0.2, "Ke et al. 2023, table 4"),
    Study("steps", (1, 2, 3, 4, 5, 6, 7), 2, "Ke et al. 2023, figure 2"),
    Study("inner loop", ("attached", "detached"), "attached", "Ke et al. 2023, section 5 and appendix VIII"),
    Study("prior mean in use", (-5, 0), -5, "Ke et al. 2023, section 5.1"),
)


@dataclass(frozen=True)
class StudiesConfig(CampaignConfig):
    """Settings; those of the same names are those of `ImageCampaignConfig`."""

    budget: str = "standard"
    bases: tuple[str, ...] = tuple(BASES)
    studies: tuple[str, ...] = tuple(study.name for study in STUDIES)
    seeds: tuple[int, ...] = (0,)
    precision: str = "bfloat16"


def change_of(study: Study, value: Any, base: str) -> tuple[str, Mapping[str, Any]] | None:
    """A value's name and the options that it stands for; None for the usual one.

    The paper has prior mean -5 in use below temperature 1 only.
    """
    if value == study.usual:
        return None
    if study.name == "temperature":
        untempered = {"prediction_prior_mean": 0.0} if base == "paper" and value >= 1 else {}
        return f"temperature {value:g}", {"temperature": value, **untempered}
    if study.name == "steps":
        return f"{value} steps", {"n_steps": value}
    if study.name == "inner loop":
        return "inner loop detached", {"detach_inner": True}
    return f"prior mean {value} in use", {"prediction_prior_mean": float(value)}


def cell_of(study: Study, value: Any, base: str, seed: int, settings: StudiesConfig) -> FewShotCell:
    """One training and its tests, a cell of the campaign's."""
    return MINIIMAGENET32.cell(
        LEARNER,
        shots=SHOTS,
        seed=seed,
        budget=settings.budget,
        preset=base,
        precision=settings.precision,
        change=change_of(study, value, base),
    )


def run(*, data_root: Path | None, progress: Progress, **options: Any) -> Outcome:
    """Run the missing cells, and make tables and a figure of those that are there."""
    settings = configure(StudiesConfig, options)
    check_names("budget", (settings.budget,), BUDGETS)
    check_names("preset", settings.bases, BASES)
    check_names("study", settings.studies, [study.name for study in STUDIES])
    studies = [study for study in STUDIES if study.name in settings.studies]
    cells = {
        cell.key: cell
        for base in settings.bases
        for study in studies
        for value in study.values
        for seed in settings.seeds
        for cell in [cell_of(study, value, base, seed, settings)]
    }
    records = MINIIMAGENET32.records(list(cells.values()), settings, data_loader(data_root), progress)
    scored = [record for record in records if FAILED not in record]
    if not scored:
        raise ValueError("no training has a result yet, so there is nothing to compare")
    summary = averaged(score_frame(scored)).set_index("preset")
    frames = {study.name: frame_of(study, settings, summary) for study in studies}
    return Outcome(
        title="CDKT: temperature, steps, the gradient through them, prior mean",
        introduction=(
            f"`{LEARNER}`, {WAY}-way {SHOTS}-shot, Conv4 and the cosine kernel on mini-ImageNet at 32 pixels, with one "
            "thing changed at a time: in the settings of its paper (`paper`: temperature 0.2, two warm attached steps, "
            "prior mean 0 in training and -5 in use; 0 in use from temperature 1 on) and in ours (`recommended`: "
            "negative-multinomial augmentation, cold steps, prior mean -5 throughout). Test classes, 3000 tasks; "
            f"chance is {1 / WAY:.3f}."
        ),
        tables=tuple(
            Table(name.replace(" ", "-"), _CAPTION.format(name=name), frame, digits=4) for name, frame in frames.items()
        ),
        pictures=(Picture("accuracy", _PICTURE, figure_of(frames)),),
        config=settings,
        seeds=settings.seeds,
        findings=tuple(_findings(records, len(cells))),
        verdicts=tuple(verdict for study in studies for verdict in verdicts_of(study, frames[study.name])),
        differences=(
            "mini-ImageNet at 32 pixels in place of CUB and its transfer, at 84.",
            "A quarter of the training episodes (`--budget full` has all).",
        ),
    )


_CAPTION = (
    "The {name}: accuracy on test classes with the half width of its 95 % interval, negative log likelihood, and both "
    "calibration errors after one temperature fitted on validation classes."
)
_PICTURE = (
    "Accuracy with 95 % intervals when one thing is changed: blue in the paper's settings, orange in ours. Dashed: "
    "chance."
)


def frame_of(
    study: Study,
    settings: StudiesConfig,
    summary: pd.DataFrame,  # scores averaged over seeds, by the preset's label
) -> pd.DataFrame:
    """A row for each preset and value that has results."""
    columns = ["seeds", "accuracy", "+-", "nll", "T ece", "T mce"]
    rows = []
    for base in settings.bases:
        for value in study.values:
            change = change_of(study, value, base)
            label = base if change is None else f"{base}, {change[0]}"
            if label in summary.index:
                scores = {column: summary.at[label, column] for column in columns}
                rows.append({"preset": base, study.name: value, **scores})
    return pd.DataFrame(rows, columns=["preset", study.name, *columns])


def figure_of(frames: Mapping[str, pd.DataFrame]) -> Figure:
    """A panel for each study, a line for each preset."""
    figure = new_figure(2.2 * len(frames) + 0.6, 2.6)
    panels = figure.subplots(1, len(frames), sharey=True, squeeze=False)[0]
    for axes, (name, frame) in zip(panels, frames.items(), strict=True):
        for base, rows in frame.groupby("preset", sort=False):
            axes.errorbar(rows[name], rows["accuracy"], yerr=rows["+-"], fmt="o-", markersize=4, color=BASES[str(base)])
        axes.axhline(1 / WAY, color=GREY, linestyle=(0, (4, 3)), linewidth=1)
        tidy(axes, xlabel=name, ylabel="accuracy" if axes is panels[0] else "")
        axes.margins(x=0.15)
    return figure


def verdicts_of(study: Study, frame: pd.DataFrame) -> Iterator[Verdict]:
    """Claims of the paper on a study, for each preset whose values all have results."""
    for base, rows in frame.groupby("preset", sort=False):
        if len(rows) < len(study.values):
            continue
        accuracy = rows.set_index(study.name)["accuracy"]
        claim, holds = _judged(study, accuracy)
        measured = ", ".join(f"{value}: {score:.4f}" for value, score in accuracy.items())
        yield Verdict(f"{base}: {claim}", study.source, measured, bool(holds))


def _judged(study: Study, accuracy: pd.Series) -> tuple[str, bool]:
    """A paper's statement and whether accuracies by value agree with it."""
    if study.name == "temperature":
        return "accuracy falls as the temperature rises", bool(accuracy.sort_index().is_monotonic_decreasing)
    if study.name == "steps":
        best = max(accuracy[2], accuracy[3])  # all alike where nothing is learnt
        return "two or three steps are best", best == accuracy.max() and best >= accuracy.min() + NOTABLE
    if study.name == "inner loop":
        return "detaching the inner loop leads to a collapse", accuracy["detached"] < accuracy["attached"] - COLLAPSE
    gain = accuracy[-5] - accuracy[0]
    return "prior mean -5 in use gains half a point to a point over 0", gain >= NOTABLE


def _findings(records: Sequence[Mapping[str, Any]], n_cells: int) -> Iterator[str]:
    """Missing and diverged trainings."""
    if len(records) < n_cells:
        yield f"{n_cells - len(records)} of {n_cells} trainings are missing."
    for record in records:
        if FAILED in record:
            yield f"`{record['key']}` diverged: {record[FAILED]}"


EXPERIMENT = Experiment(NAME, "CDKT's own studies, at one shot on mini-ImageNet at 32 px (a campaign)", True, run)

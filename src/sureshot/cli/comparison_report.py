"""The page of ``meta-compare``: several learners on the same tasks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from sureshot.cli.console import command_line
from sureshot.cli.few_shot import LoadedLearner
from sureshot.cli.few_shot_report import (
    READ_RELIABILITY,
    SCORES,
    VARIANTS,
    detection_note,
    measured,
    robustness_note,
    robustness_pictures,
    task_name,
    temperature_note,
)
from sureshot.meta.evaluation import Comparison, Evaluation
from sureshot.report import Picture, Report, Table, environment, write_report
from sureshot.report.content import Cell
from sureshot.report.few_shot_plots import difference_intervals, reliability_panels

Better = Literal["higher", "lower"] | None


def write_comparison_page(
    found: Comparison, loaded: Mapping[str, LoadedLearner], description: str, split: str, folder: Path
) -> Path:
    """The page of several learners."""
    some = next(iter(found.evaluations.values()))
    report = Report(
        title=f"{len(found.evaluations)} few-shot learners, {task_name(some)}",
        introduction=(
            f"{description}. {some.n_tasks:,} tasks of the {split} classes, seed {some.seed}, the same for all."
        ),
        summary=Table(
            ("learner", "accuracy", *(label for _, label in SCORES)),
            tuple(
                (name, measured(one.accuracy.over_episodes), *_calibration(one, "none"))
                for name, one in found.evaluations.items()
            ),
            better=(None, "higher", "lower", "lower", "lower", "lower"),
            note="Probabilities as the learners give them. ± is the standard error, with tasks as units.",
            heading="Accuracy and calibration",
        ),
        model={
            name: f"{one.path}, {one.episodes:,} training episodes, {_settings(one)}" for name, one in loaded.items()
        },
        environment=environment(),
        command=command_line(),
        tables=tuple(_comparison_tables(found)),
        pictures=tuple(_comparison_pictures(found)),
    )
    return write_report(folder, report)


def _comparison_tables(found: Comparison) -> list[Table]:
    tables = []
    differences = found.differences
    if differences:
        tables.append(
            Table(
                ("learner", "accuracy", "NLL", "out-of-episode AUROC"),
                tuple(
                    (
                        name,
                        measured(one.accuracy),
                        measured(one.nll),
                        None if one.auroc is None else measured(one.auroc),
                    )
                    for name, one in differences.items()
                ),
                note=(
                    f"The learner less {found.reference}, averaged over the same tasks; ± is the standard error of "
                    "that difference. Higher accuracy and AUROC and lower NLL are better."
                ),
                heading=f"Differences from {found.reference}, paired task by task",
            )
        )
    evaluations = found.evaluations
    first = next(iter(evaluations.values()))
    if first.temperature is not None:
        tables.append(
            Table(
                ("learner", "temperature", *(label for _, label in SCORES)),
                tuple(
                    (name, one.calibration["temperature"].temperature, *_calibration(one, "temperature"))
                    for name, one in evaluations.items()
                ),
                better=(None, None, "lower", "lower", "lower", "lower"),
                note=temperature_note(first),
                heading="Calibration after temperature scaling",
            )
        )
    tables += _detection_and_time(evaluations)
    if first.robustness is not None:
        tables += [_hardest(evaluations, first, "accuracy"), _hardest(evaluations, first, "brier")]
    return tables


def _detection_and_time(evaluations: Mapping[str, Evaluation]) -> list[Table]:
    first = next(iter(evaluations.values()))
    columns: list[tuple[str, Better]] = [("learner", None), ("batches' deviation", None)]
    if first.out_of_episode is not None:
        columns += [("AUROC within episodes", "higher"), ("AUROC, pooled", "higher")]
    if first.time is not None:
        columns += [("ms, one task", "lower"), ("ms a task, batched", "lower")]
    rows = []
    for name, one in evaluations.items():
        row: list[Cell] = [name, one.accuracy.batch_deviation]
        if one.out_of_episode is not None:
            primary = one.out_of_episode.scores[one.out_of_episode.primary]
            row += [measured(primary.per_episode), primary.pooled]
        if one.time is not None:
            row += [1000 * one.time.single, 1000 * one.time.batched]
        rows.append(tuple(row))
    notes = [f"Batches' deviation: of the mean accuracies of {len(first.accuracy.batch_means)} batches of episodes."]
    if first.out_of_episode is not None:
        notes.append(f"Out-of-episode detection: {detection_note(first.out_of_episode)}")
    if first.time is not None:
        notes.append(
            f"Times: median to adapt to a task and predict its {first.time.queries} queries, embeddings given, "
            f"{first.time.device}, {first.time.threads} thread(s)."
        )
    return [
        Table(
            tuple(column for column, _ in columns),
            tuple(rows),
            better=tuple(better for _, better in columns),
            note=" ".join(notes),
            heading="Spread, detection and time",
        )
    ]


def _hardest(evaluations: Mapping[str, Evaluation], first: Evaluation, score: Literal["accuracy", "brier"]) -> Table:
    assert first.robustness is not None
    kinds = list(dict.fromkeys(one.kind for one in first.robustness.scores))
    best: list[Better] = ["higher" if score == "accuracy" else "lower" for _ in kinds]
    hardest = max(one.severity for one in first.robustness.scores)
    rows: list[tuple[Cell, ...]] = []
    for name, one in evaluations.items():
        assert one.robustness is not None
        found = {scores.kind: scores for scores in one.robustness.scores if scores.severity == hardest}
        rows.append((name, *(measured(getattr(found[kind], score)) for kind in kinds)))
    return Table(
        ("learner", *(kind.replace("_", " ") for kind in kinds)),
        tuple(rows),
        better=(None, *best),
        note=robustness_note(first),
        heading=f"{score.capitalize()} on corrupted images, severity {hardest}",
    )


def _comparison_pictures(found: Comparison) -> list[Picture]:
    curves = {
        name: {VARIANTS[variant]: calibration.curve for variant, calibration in one.calibration.items()}
        for name, one in found.evaluations.items()
    }
    pictures = []
    differences = found.differences
    if differences:
        pictures.append(
            Picture(
                f"Differences from {found.reference}",
                difference_intervals(
                    {
                        "accuracy (right is better)": {n: measured(d.accuracy) for n, d in differences.items()},
                        "NLL (left is better)": {n: measured(d.nll) for n, d in differences.items()},
                    }
                ),
                "Differences of accuracy and NLL with 95 % intervals",
                "Paired task by task, 95 % intervals. An interval that crosses the line decides nothing.",
            )
        )
    pictures.append(
        Picture(
            "Reliability diagrams",
            reliability_panels(curves),
            "Accuracy against confidence for each learner",
            READ_RELIABILITY + " A point's area is its share of the queries.",
        )
    )
    return pictures + robustness_pictures(found.evaluations)


def _calibration(found: Evaluation, variant: str) -> tuple[Cell, ...]:
    calibration = found.calibration.get(variant)
    return tuple(None if calibration is None else measured(getattr(calibration, score)) for score, _ in SCORES)


def _settings(loaded: LoadedLearner) -> str:
    return ", ".join(f"{key} {value}" for key, value in loaded.settings.items() if key != "name")

"""The page of ``meta-compare``: several learners on the same tasks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from sureshot.cli.comparison_tables import comparison_tables, measured
from sureshot.cli.console import command_line
from sureshot.cli.few_shot import LoadedLearner
from sureshot.cli.few_shot_report import READ_RELIABILITY, VARIANTS, robustness_note, robustness_pictures, task_name
from sureshot.meta.evaluation import Comparison, Evaluation
from sureshot.report import Picture, Report, Table, environment, write_report
from sureshot.report.content import Better, Cell, as_sentence
from sureshot.report.few_shot_plots import difference_intervals, reliability_panels


def write_comparison_page(
    found: Comparison, loaded: Mapping[str, LoadedLearner], description: str, split: str, folder: Path
) -> Path:
    """The page of several learners."""
    some = next(iter(found.evaluations.values()))
    first, *others = comparison_tables(found)
    report = Report(
        title=f"{len(found.evaluations)} few-shot learners, {task_name(some)}",
        introduction=(
            f"{as_sentence(description)}. {some.n_tasks:,} tasks of the {split} classes, seed {some.seed}, "
            "the same for all."
        ),
        summary=first,
        model={
            name: f"{one.checkpoint.path}, {one.checkpoint.episodes:,} training episodes, {_settings(one)}"
            for name, one in loaded.items()
        },
        environment=environment(),
        command=command_line(),
        tables=(*others, *_corruption_tables(found.evaluations)),
        pictures=tuple(_comparison_pictures(found)),
    )
    return write_report(folder, report)


def _corruption_tables(evaluations: Mapping[str, Evaluation]) -> list[Table]:
    first = next(iter(evaluations.values()))
    if first.robustness is None:
        return []
    return [_hardest(evaluations, first, "accuracy"), _hardest(evaluations, first, "brier")]


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


def _settings(loaded: LoadedLearner) -> str:
    return ", ".join(f"{key} {value}" for key, value in loaded.settings.items() if key != "name")

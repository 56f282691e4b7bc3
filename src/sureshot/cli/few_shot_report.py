"""The page of ``meta-evaluate``, and what it shares with that of ``meta-compare``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sureshot.cli.comparison_tables import SCORES, detection_note, measured, temperature_note
from sureshot.cli.console import command_line
from sureshot.cli.few_shot import LoadedLearner
from sureshot.meta.evaluation import Evaluation
from sureshot.meta.evaluation.out_of_episode import OWN_SCORE, PRIMARY_SCORE
from sureshot.report import Picture, Report, Table, Tile, environment, write_report
from sureshot.report.content import Cell, as_sentence, confidence_in_words
from sureshot.report.few_shot_plots import severity_lines
from sureshot.report.plots import outlier_histogram, reliability_diagram

READ_RELIABILITY = (
    "Points on the dashed line: a confidence can be taken at its word; below it, too sure. "
    "Of all queries of all tasks, 15 equal-width bins."
)
_OUTLIER_SCORES = {PRIMARY_SCORE: "the negative maximum logit", OWN_SCORE: "the learner's own"}
VARIANTS = {"none": "as they are", "temperature": "with temperature"}


def write_evaluation_page(found: Evaluation, loaded: LoadedLearner, description: str, split: str, folder: Path) -> Path:
    """The page of one learner."""
    name = loaded.checkpoint.name
    plain = found.calibration["none"]
    low, high = found.accuracy.interval
    interval = f"95 %: {low:.3f} to {high:.3f}" if found.n_tasks > 1 else "of one task"
    tiles = [
        Tile("accuracy", f"{found.accuracy.mean:.3f}", interval),
        Tile("NLL", f"{plain.nll.mean:.3f}", "nats; lower is better"),
        Tile("ECE", f"{plain.ece.mean:.3f}", "gap between confidence and accuracy"),
    ]
    if found.out_of_episode is not None:
        areas = {"by logit": found.out_of_episode.auroc, "own score": found.out_of_episode.own_auroc}
        tiles += [
            Tile(f"AUROC, {how}", f"{area.mean:.3f}", "queries of no class of the task; 0.5 is chance")
            for how, area in areas.items()
            if area is not None
        ]
    if found.time is not None:
        tiles.append(Tile("time", f"{1000 * found.time.single:.3g} ms", "to adapt and predict, a task by itself"))
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (VARIANTS[variant], calibration.temperature, *(measured(getattr(calibration, s)) for s, _ in SCORES))
        for variant, calibration in found.calibration.items()
    )
    report = Report(
        title=f"{name}, {task_name(found)}",
        introduction=f"{as_sentence(description)}. {found.n_tasks:,} tasks of the {split} classes, seed {found.seed}.",
        summary=Table(
            ("probabilities", "temperature", *(label for _, label in SCORES)),
            rows,
            note=f"± is the standard error, with tasks as units. {temperature_note(found)}",
            heading="Calibration",
        ),
        model={
            "checkpoint": loaded.checkpoint.path,
            **loaded.settings,
            "backbone": loaded.config.backbone.name,
            "training episodes": f"{loaded.checkpoint.episodes:,}",
            "trained on": loaded.config.data.name,
        },
        environment=environment(),
        command=command_line(),
        verdict=_verdict(found),
        tiles=tuple(tiles),
        tables=tuple(_evaluation_tables(found)),
        pictures=tuple(_evaluation_pictures(name, found)),
    )
    return write_report(folder, report)


def _verdict(found: Evaluation) -> str:
    scores = found.per_task["none"]
    right = float(scores.right.sum() / scores.count.sum())
    sure = float(scores.bin_confidence.sum() / scores.count.sum())
    words = confidence_in_words(sure, right)
    return f"{right:.1%} of {int(scores.count.sum()):,} queries are right. The learner says {words}"


def _evaluation_pictures(name: str, found: Evaluation) -> list[Picture]:
    pictures = [
        Picture(
            f"Reliability, probabilities {VARIANTS[variant]}",
            reliability_diagram(calibration.curve),
            f"Accuracy against confidence; expected calibration error {calibration.ece.mean:.3f}",
            READ_RELIABILITY,
        )
        for variant, calibration in found.calibration.items()
    ]
    if found.out_of_episode is not None:
        for score in (found.out_of_episode.primary, OWN_SCORE):
            if score not in found.out_of_episode.scores:
                continue
            detection, score_name = found.out_of_episode.scores[score], _OUTLIER_SCORES[score]
            pictures.append(
                Picture(
                    f"The task's classes and others, {'own score' if score == OWN_SCORE else 'by logit'}",
                    outlier_histogram(detection.inside, detection.outside),
                    f"Histogram of {score_name} of queries in and out of the episode",
                    f"Outlier score: {score_name} ({found.out_of_episode.n_tasks:,} tasks together). "
                    "The less the two overlap, the better.",
                )
            )
    return pictures + robustness_pictures({name: found})


def _evaluation_tables(found: Evaluation) -> list[Table]:
    tables = []
    if found.out_of_episode is not None:
        tables.append(
            Table(
                ("score", "AUROC within episodes", "AUROC, pooled"),
                tuple(
                    (score.replace("_", " "), measured(detection.per_episode), detection.pooled)
                    for score, detection in found.out_of_episode.scores.items()
                ),
                note=detection_note(found.out_of_episode),
                heading="Out-of-episode detection",
            )
        )
    if found.robustness is not None:
        tables.append(
            Table(
                ("corruption", "severity", "accuracy", "change", "Brier", "NLL", "ECE"),
                tuple(
                    (
                        one.kind.replace("_", " "),
                        str(one.severity),
                        *map(measured, (one.accuracy, one.accuracy_change, one.brier, one.nll)),
                        one.ece,
                    )
                    for one in found.robustness.scores
                ),
                note=robustness_note(found),
                heading="Corrupted images",
            )
        )
    return tables


def robustness_pictures(evaluations: Mapping[str, Evaluation]) -> list[Picture]:
    """Accuracy against severity, if it was measured."""
    first = next(iter(evaluations.values()))
    if first.robustness is None:
        return []
    severities = sorted({one.severity for one in first.robustness.scores})
    kinds = list(dict.fromkeys(one.kind for one in first.robustness.scores))
    scores, clean = {}, {}
    for name, one in evaluations.items():
        if one.robustness is not None:
            found = {(s.kind, s.severity): measured(s.accuracy) for s in one.robustness.scores}
            scores[name] = {kind: [found[kind, severity] for severity in severities] for kind in kinds}
            clean[name] = measured(one.robustness.clean_accuracy)
    way = first.protocol.way
    return [
        Picture(
            "Corrupted images",
            severity_lines(scores, clean, severities, chance=1 / way if isinstance(way, int) else None),
            "Accuracy against severity for each kind of corruption",
            robustness_note(first) + " The dashed line is chance.",
        )
    ]


def robustness_note(found: Evaluation) -> str:
    """Which images were corrupted."""
    assert found.robustness is not None
    which = "support and query images" if found.robustness.corrupted == "both" else "query images"
    return f"The first {found.robustness.n_tasks:,} tasks with all {which} corrupted; changes are paired."


def task_name(found: Evaluation) -> str:
    """Such as "5-way 1-shot"."""
    protocol = found.protocol
    return f"{protocol.way}-way {protocol.shots}-shot"

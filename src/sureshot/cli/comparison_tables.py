"""Tables of several learners on the same tasks, which ``meta-compare`` shows in a terminal and on a page alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sureshot.cli import console
from sureshot.meta.evaluation import Comparison, Estimate, Evaluation
from sureshot.meta.evaluation.out_of_episode import OWN_SCORE, OutOfEpisode
from sureshot.report import Measured, Table
from sureshot.report.content import Better, Cell
from sureshot.rounding import rounded

SCORES = (("nll", "NLL"), ("brier", "Brier"), ("ece", "ECE"), ("mce", "MCE"))


def comparison_tables(found: Comparison) -> list[Table]:
    """All that was measured: calibration, differences, the same after one temperature, detection, and time."""
    tables = [_calibration(found.evaluations, "none"), _differences(found)]
    tables += [_calibration(found.evaluations, "temperature"), _detection_and_time(found.evaluations)]
    return [table for table in tables if table is not None]


def _calibration(evaluations: Mapping[str, Evaluation], variant: str) -> Table | None:
    first, tempered = next(iter(evaluations.values())), variant == "temperature"
    if tempered and first.temperature is None:
        return None
    rows = []
    for name, one in evaluations.items():
        calibration = one.calibration.get(variant)
        scores = (None if calibration is None else measured(getattr(calibration, score)) for score, _ in SCORES)
        known = None if calibration is None else calibration.temperature
        rows.append((name, known if tempered else measured(one.accuracy), *scores))
    given = f"{first.n_tasks:,} tasks, the same for all. Probabilities as the learners give them. "
    return Table(
        ("learner", "temperature" if tempered else "accuracy", *(label for _, label in SCORES)),
        tuple(rows),
        (None, None if tempered else "higher", "lower", "lower", "lower", "lower"),
        temperature_note(first) if tempered else given + "± is the standard error, with tasks as units.",
        "Calibration after temperature scaling" if tempered else "Accuracy and calibration",
    )


def _differences(found: Comparison) -> Table | None:
    differences = found.differences
    if not differences:
        return None
    rows = [
        (name, *(None if one is None else measured(one) for one in (of.accuracy, of.nll, of.auroc, of.own_auroc)))
        for name, of in differences.items()
    ]
    there = [k for k in range(5) if any(row[k] is not None for row in rows)]
    columns = ("learner", "accuracy", "NLL", "AUROC by logit", "AUROC, own score")
    return Table(
        tuple(columns[k] for k in there),
        tuple(tuple(row[k] for k in there) for row in rows),
        (None,) * len(there),
        f"The learner less {found.reference}, averaged over the same tasks; ± is the standard error of that "
        "difference. Higher accuracy and AUROC and lower NLL are better.",
        f"Differences from {found.reference}, paired task by task",
    )


def _detection_and_time(evaluations: Mapping[str, Evaluation]) -> Table:
    first = next(iter(evaluations.values()))
    columns: list[tuple[str, Better]] = [("learner", None), ("batches' deviation", None)]
    has_own = any(one.out_of_episode is not None and one.out_of_episode.own_auroc for one in evaluations.values())
    if first.out_of_episode is not None:
        columns += [("AUROC by logit", "higher"), ("pooled", "higher")]
        if has_own:
            columns += [("AUROC, own score", "higher"), ("own, pooled", "higher")]
    if first.time is not None:
        columns += [("ms, one task", "lower"), ("ms a task, batched", "lower")]
    rows = []
    for name, one in evaluations.items():
        row: list[Cell] = [name, one.accuracy.batch_deviation]
        if one.out_of_episode is not None:
            scores = one.out_of_episode.scores
            for score in (one.out_of_episode.primary, *([OWN_SCORE] if has_own else [])):
                row += [measured(scores[score].per_episode), scores[score].pooled] if score in scores else [None, None]
        if one.time is not None:
            row += [1000 * one.time.single, 1000 * one.time.batched]
        rows.append(tuple(row))
    notes = [f"Batches' deviation: of the mean accuracies of {len(first.accuracy.batch_means)} batches of episodes."]
    if first.out_of_episode is not None:
        notes.append(f"Out-of-episode detection: {detection_note(first.out_of_episode)}")
    if first.time is not None:
        notes.append(
            f"Times: median to adapt to a task and predict its {first.time.queries} queries, given embeddings, or "
            f"inputs where a learner adapts its network, {first.time.device}, {first.time.threads} thread(s)."
        )
    return Table(
        tuple(column for column, _ in columns),
        tuple(rows),
        tuple(better for _, better in columns),
        " ".join(notes),
        "Spread, detection and time",
    )


def tell_tables(
    summary: dict[str, Any], tables: Sequence[Table], write: Callable[[Path], Path], report: Path | None, as_json: bool
) -> None:
    """Tables for people, each with its note, or all as JSON; with the place of the page, if one is wanted."""

    def show(summary: dict[str, Any]) -> None:
        for table in tables:
            rows = [[with_error(cell) if isinstance(cell, Measured) else cell for cell in row] for row in table.rows]
            console.print_table(table.columns, rows, table.heading)
            if table.note:
                console.print_text(table.note)
        if "report" in summary:
            console.print_text(f"report: {summary['report']}")

    if report is not None:
        with console.told_anyway(lambda: show(summary), as_json):
            summary["report"] = str(write(report))
    console.tell(summary, show, as_json)


def measured(estimate: Estimate) -> Measured:
    """An estimate as a cell."""
    return Measured(estimate.mean, estimate.standard_error)


def with_error(value: Measured | Estimate) -> str:
    """With four digits or more."""
    mean, error = value if isinstance(value, Measured) else measured(value)
    return rounded(mean, 4, error)


def temperature_note(found: Evaluation) -> str:
    """What the temperature was fitted on."""
    fitted = found.temperature
    if fitted is None:
        return "Without validation classes no temperature is fitted."
    way = fitted.protocol.way
    fewer = "" if way == found.protocol.way else f" of {way} ways, as there are no more classes"
    return (
        f"The temperature minimises the NLL of {fitted.n_tasks:,} tasks of validation classes{fewer}; "
        "test classes have no part in it."
    )


def detection_note(found: OutOfEpisode) -> str:
    """What out-of-episode detection means."""
    own = "; a learner's own score is what its classifier rejects by" if OWN_SCORE in found.scores else ""
    return (
        f"{found.n_tasks:,} tasks, half of whose queries are of classes that the task lacks; areas are within "
        f"episodes. The paper's measure is that of the {found.primary.replace('_', ' ')}{own}. Pooled, one threshold "
        "serves all tasks."
    )

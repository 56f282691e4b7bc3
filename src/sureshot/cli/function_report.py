"""Tables and page of learners of numbers, as ``meta-evaluate`` and ``meta-compare`` show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sureshot.cli.comparison_tables import measured
from sureshot.cli.console import command_line
from sureshot.meta.evaluation.functions import FunctionComparison, SizeScores
from sureshot.meta.evaluation.shown import bands, completed_images
from sureshot.meta.functions.images import Images
from sureshot.meta.functions.source import FunctionSource
from sureshot.meta.learners.functions import AdaptsToFunctions
from sureshot.report import Measured, Picture, Report, Table, environment, write_report
from sureshot.report.content import Better, Cell, as_sentence
from sureshot.report.function_plots import by_context, draw_bands, draw_completed

if TYPE_CHECKING:
    from sureshot.meta.training.checkpoint import Checkpoint

_SCORES: tuple[tuple[str, str, Better], ...] = (
    ("log_density", "log density", "higher"),
    ("rmse", "RMSE", "lower"),
    ("crps", "CRPS", "lower"),
)
_WIDE = "0.9"  # the nominal share of the intervals that several learners are compared by
_PICTURED = 6  # learners that a picture has room for


def tables_of(found: FunctionComparison) -> list[Table]:
    """Scores by size of the context for each region: all of one learner in a table, of several a table for each."""
    if len(found.evaluations) == 1:
        ((name, one),) = found.evaluations.items()
        return [_of_one(name, scores, one.n_tasks) for scores in one.by_region.values()]
    return [table for region in _regions(found) for table in _of_several(found, region)]


def write_functions_page(
    found: FunctionComparison,
    learners: Mapping[str, AdaptsToFunctions],
    checkpoints: Mapping[str, Checkpoint],
    source: FunctionSource,
    about: str,  # the functions
    folder: Path,
) -> Path:
    """The page of one learner or of several."""
    first, *others = tables_of(found)
    some = next(iter(found.evaluations.values()))
    names = list(learners)
    report = Report(
        title=f"{names[0]}, few-shot learner of numbers" if len(names) == 1 else f"{len(names)} learners of numbers",
        introduction=f"{as_sentence(about)}. {some.n_tasks:,} tasks of {some.targets} targets, seed {some.seed}.",
        summary=first,
        model={
            name: f"{one.path}, {one.name}, {one.episodes:,} training episodes" for name, one in checkpoints.items()
        },
        environment=environment(),
        command=command_line(),
        tables=tuple(others),
        pictures=tuple(_pictures(found, learners, source)),
    )
    return write_report(folder, report)


def _regions(found: FunctionComparison) -> list[str]:
    return list(next(iter(found.evaluations.values())).by_region)


def _of_one(name: str, scores: Sequence[SizeScores], n_tasks: int) -> Table:
    shares = list(scores[0].coverage)
    rows: list[tuple[Cell, ...]] = [
        (
            str(one.context),
            *(measured(getattr(one, score)) for score, _, _ in _SCORES),
            *(f"{one.coverage[share].mean:.3f}" for share in shares),
        )
        for one in scores
    ]
    return Table(
        ("context", *(label for _, label, _ in _SCORES), *(f"within {float(share):.0%}" for share in shares)),
        tuple(rows),
        note="Log densities of single rows in nats; ± is the standard error, with tasks as units.",
        heading=f"{name}, {n_tasks:,} tasks {scores[0].region} the range of inputs",
    )


def _of_several(found: FunctionComparison, region: str) -> list[Table]:
    where = f"{region} the range of inputs"
    of_region = {name: one.by_region[region] for name, one in found.evaluations.items()}
    sizes = [str(one.context) for one in next(iter(of_region.values()))]
    columns, none = ("learner", *sizes), (None,) * len(sizes)
    tables = [
        Table(
            columns,
            tuple((name, *(measured(getattr(one, score)) for one in scores)) for name, scores in of_region.items()),
            (None, *[better] * len(sizes)),
            "Of single rows, in nats; ± is the standard error, with tasks as units." * (score == "log_density"),
            as_sentence(f"{label} by rows of context, {where}"),
        )
        for score, label, better in _SCORES
    ]
    coverage = [(name, *(f"{one.coverage[_WIDE].mean:.3f}" for one in scores)) for name, scores in of_region.items()]
    ahead: list[tuple[Cell, ...]] = [
        (name, *(measured(one.log_density) for one in differences if one.region == region))
        for name, differences in found.differences.items()
    ]
    less = f"The learner less {found.reference}, paired task by task: above 0 its answers are better."
    tables.insert(1, Table(columns, tuple(ahead), (None, *none), less, f"Differences of log density, {where}"))
    return [*tables, Table(columns, tuple(coverage), (None, *none), heading=f"Within intervals of 90 %, {where}")]


def _pictures(
    found: FunctionComparison, learners: Mapping[str, AdaptsToFunctions], source: FunctionSource
) -> list[Picture]:
    lines: dict[str, dict[str, dict[int, Measured]]] = {
        region: {
            name: {each.context: measured(each.log_density) for each in one.by_region[region]}
            for name, one in found.evaluations.items()
        }
        for region in _regions(found)
    }
    pictures = [
        Picture(
            "Log density by rows of context",
            by_context(lines, "log density, nats a row"),
            "Log density of a row against the rows of context",
            "Higher is better; bands are 95 % intervals of the mean over tasks.",
        )
    ]
    some = dict(list(learners.items())[:_PICTURED])
    if isinstance(source, Images):
        completed = {name: completed_images(learner, source) for name, learner in some.items()}
        explained = "Means from so many pixels, and what was seen of the image on top."
        pictures.append(Picture("An image completed", draw_completed(completed), "An image from its pixels", explained))
    elif source.input_width == source.target_width == 1:
        shown = {name: bands(learner, source) for name, learner in some.items()}
        explained = (
            "Means and bands of two deviations from the rows that are dots. A dotted line is where the training's "
            "inputs end."
        )
        pictures.append(Picture("One function", draw_bands(shown), "Answers along one function", explained))
    return pictures

"""``sureshot meta-compare``: several meta-trained learners on the same tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sureshot.cli import console, options
from sureshot.cli.few_shot import EvaluationOptions, LoadedLearner

if TYPE_CHECKING:
    from sureshot.meta.evaluation import Comparison


def meta_compare(
    checkpoints: options.NamedCheckpoints,
    *,
    reference: options.Reference = None,
    asked: EvaluationOptions,
    report: options.ReportFolder = None,
    quiet: console.QuietOption = False,
    as_json: console.JsonOption = False,
) -> None:
    """Several few-shot learners under one protocol, on the same tasks: one table, paired differences.

    Learners are called by their kind, or by the folder of their run if two are of one kind; NAME=CHECKPOINT gives
    another name.
    """
    with console.guarded(as_json, quiet):
        console.check_folder(report)
        asked.check()
        loaded = load_named(checkpoints)
        if reference is not None and reference not in loaded:
            raise ValueError(f"--reference: expected one of {', '.join(loaded)}; got {reference!r}")
        asked.protocol(list(loaded.values()))
        from sureshot.meta.evaluation import compare

        data, arguments = asked.prepare(list(loaded.values()))
        with console.progress("meta-compare", quiet) as update:
            learners = {name: one.learner for name, one in loaded.items()}
            found = compare(learners, **arguments, reference=reference, progress=update)
        page = None
        if report is not None:
            from sureshot.cli.comparison_report import write_comparison_page

            page = str(write_comparison_page(found, loaded, data.description, asked.split, report))
        if as_json:
            summary: dict[str, Any] = {"data": data.name, "split": asked.split, **found.as_dict()}
            summary["checkpoints"] = {name: one.checkpoint.path for name, one in loaded.items()}
            console.print_json(summary if page is None else summary | {"report": page})
        else:
            _print(found)
            if page is not None:
                console.print_text(f"report: {page}")


def load_named(arguments: Sequence[str]) -> dict[str, LoadedLearner]:
    """Checkpoints by the names to show, which must differ."""
    from sureshot.meta.training.checkpoint import load_checkpoint

    given: list[tuple[str | None, Path]] = []
    for argument in arguments:
        label, separator, rest = argument.partition("=")
        named = bool(separator) and not Path(argument).exists()
        given.append((label, Path(rest)) if named else (None, Path(argument)))
    loaded = [(name, path, LoadedLearner.of(load_checkpoint(path))) for name, path in given]
    kinds = [one.name for name, _, one in loaded if name is None]
    found: dict[str, LoadedLearner] = {}
    for name, path, one in loaded:
        shown = name or (one.name if kinds.count(one.name) == 1 else _folder(path))
        if shown in found:
            raise ValueError(f"two checkpoints are called {shown!r}: tell them apart with NAME=CHECKPOINT")
        found[shown] = one
    return found


def _folder(path: Path) -> str:
    whole = path.resolve()
    return whole.name if whole.is_dir() else whole.parent.name


def _print(found: Comparison) -> None:
    from sureshot.cli.comparison_tables import comparison_tables, with_error
    from sureshot.report import Measured

    for table in comparison_tables(found):
        rows = [[with_error(cell) if isinstance(cell, Measured) else cell for cell in row] for row in table.rows]
        console.print_table(table.columns, rows, table.heading)
        console.print_text(table.note)

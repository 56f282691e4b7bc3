"""``sureshot meta-compare``: several meta-trained learners on the same tasks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sureshot.cli import console, options
from sureshot.cli.few_shot import EvaluationOptions, LoadedLearner
from sureshot.cli.functions import score_numbers

if TYPE_CHECKING:
    from sureshot.meta.training.checkpoint import Checkpoint


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

    All of classes, or all of numbers: trained on the same data, or tested by --on.

    Learners are called by their kind, or by the folder of their run if two are of one kind; NAME=CHECKPOINT gives
    another name.
    """
    with console.guarded(as_json, quiet):
        console.check_folder(report)
        asked.check()
        named = load_named(checkpoints)
        if reference is not None and reference not in named:
            raise ValueError(f"--reference: expected one of {', '.join(named)}; got {reference!r}")
        of_numbers = [name for name, one in named.items() if one.answers_with_numbers]
        if len(of_numbers) == len(named):
            return score_numbers("meta-compare", named, asked, reference, report, quiet, as_json)
        if of_numbers:
            raise ValueError(f"{of_numbers[0]} is a learner of numbers, and others are of classes: compare them apart")
        loaded = {name: LoadedLearner.of(one) for name, one in named.items()}
        asked.protocol(list(loaded.values()))
        from sureshot.cli.comparison_report import write_comparison_page
        from sureshot.cli.comparison_tables import comparison_tables, tell_tables
        from sureshot.meta.evaluation import compare

        data, arguments = asked.prepare(list(loaded.values()))
        with console.progress("meta-compare", quiet) as update:
            learners = {name: one.learner for name, one in loaded.items()}
            found = compare(learners, **arguments, reference=reference, progress=update)
        summary: dict[str, Any] = {"data": data.name, "split": asked.split, **found.as_dict()}
        summary["checkpoints"] = {name: one.path for name, one in named.items()}
        write = partial(write_comparison_page, found, loaded, data.description, asked.split)
        tell_tables(summary, comparison_tables(found), write, report, as_json)


def load_named(arguments: Sequence[str]) -> dict[str, Checkpoint]:
    """Checkpoints by the names to show, which must differ."""
    from sureshot.meta.training.checkpoint import load_checkpoint

    given: list[tuple[str | None, Path]] = []
    for argument in arguments:
        label, separator, rest = argument.partition("=")
        named = bool(separator) and not Path(argument).exists()
        given.append((label, Path(rest)) if named else (None, Path(argument)))
    loaded = [(name, path, load_checkpoint(path)) for name, path in given]
    kinds = [one.name for name, _, one in loaded if name is None]
    found: dict[str, Checkpoint] = {}
    for name, path, one in loaded:
        shown = name or (one.name if kinds.count(one.name) == 1 else _folder(path))
        if shown in found:
            raise ValueError(f"two checkpoints are called {shown!r}: tell them apart with NAME=CHECKPOINT")
        found[shown] = one
    return found


def _folder(path: Path) -> str:
    whole = path.resolve()
    return whole.name if whole.is_dir() else whole.parent.name

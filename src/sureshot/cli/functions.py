"""``sureshot meta-evaluate`` and ``meta-compare`` on learners of numbers: on which tasks, and what is told of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sureshot.cli import console

if TYPE_CHECKING:
    from sureshot.cli.few_shot import EvaluationOptions
    from sureshot.meta.training.checkpoint import Checkpoint

_OF_CLASSES = ("on", "option", "way", "shots", "queries", "corrupted", "out_of_episode", "robustness")


def score_numbers(
    command: str,
    checkpoints: Mapping[str, Checkpoint],  # by the names to show
    asked: EvaluationOptions,
    reference: str | None,
    report: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Evaluate learners of numbers on the same functions, tell what was found, and write the page if one is wanted."""
    some = next(iter(checkpoints.values()))
    unusual = [name for name in _OF_CLASSES if getattr(asked, name) != getattr(type(asked), name)]
    if given := [f"--{name.replace('_', '-')}" for name in unusual]:
        raise ValueError(f"{', '.join(given)}: is about classes, and {some.path} about numbers")
    settings = [one.config["data"] for one in checkpoints.values()]
    if other := next((one for one in settings if one != settings[0]), None):
        raise ValueError(
            f"the learners were trained on different functions, {settings[0]} and {other}: compare those of one kind"
        )
    from sureshot.cli.comparison_tables import tell_tables
    from sureshot.cli.function_report import tables_of, write_functions_page
    from sureshot.data.few_shot import DATASETS
    from sureshot.meta.evaluation.functions import compare_functions
    from sureshot.meta.functions import load_functions

    if package := some.artifact.header.get("dataset"):
        DATASETS.require(settings[0]["name"], package)
    data = load_functions(settings[0]["name"], asked.data, **settings[0]["options"])
    for checkpoint in checkpoints.values():
        if checkpoint.artifact.header.get("rows", data.train.identity) != data.train.identity:
            raise ValueError(
                f"{checkpoint.path} was trained on other functions than {data.description}: its table or images have "
                "changed, so that those of its training may be among those to test on, or Python gave it functions of "
                "its own; give the data as they were, or score it by sureshot.meta.evaluation.evaluate_functions"
            )
    console.note(f"{asked.split} functions: {data.description}")
    source = data.test if asked.split == "test" else data.val
    learners = {name: one.build_process() for name, one in checkpoints.items()}
    with console.progress(command, quiet) as update:
        found = compare_functions(
            learners, source, reference=reference, n_tasks=asked.tasks, seed=asked.seed, progress=update
        )
    summary: dict[str, Any] = {"data": settings[0]["name"], "split": asked.split}
    if command == "meta-evaluate":
        ((name, one),) = found.evaluations.items()
        summary |= {"checkpoint": some.path, "learner": name, **one.as_dict()}
    else:
        summary |= {"checkpoints": {name: one.path for name, one in checkpoints.items()}, **found.as_dict()}
    about = f"{data.description}, {asked.split} functions"
    write = partial(write_functions_page, found, learners, checkpoints, source, about)
    tell_tables(summary, tables_of(found), write, report, as_json)

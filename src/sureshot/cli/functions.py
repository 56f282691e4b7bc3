"""``sureshot meta-evaluate`` and ``meta-compare`` on learners of numbers: on which tasks, and what is told of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sureshot.cli import console
from sureshot.cli.options import DRAWN

if TYPE_CHECKING:
    from sureshot.cli.few_shot import EvaluationOptions
    from sureshot.meta.functions import FunctionData
    from sureshot.meta.training.checkpoint import Checkpoint

_OF_CLASSES = ("way", "shots", "queries", "corrupted", "out_of_episode", "robustness")


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
    from sureshot.cli.comparison_tables import tell_tables
    from sureshot.cli.function_report import tables_of, write_functions_page
    from sureshot.meta.evaluation.functions import compare_functions

    data = _functions(checkpoints, asked)
    console.note(f"{asked.split} functions: {data.description}")
    source = data.test if asked.split == "test" else data.val
    learners = {name: one.build_process() for name, one in checkpoints.items()}
    with console.progress(command, quiet) as update:
        found = compare_functions(
            learners, source, reference=reference, n_tasks=asked.tasks, seed=asked.seed, progress=update
        )
    summary: dict[str, Any] = {"data": asked.on or some.config["data"]["name"], "split": asked.split}
    if command == "meta-evaluate":
        ((name, one),) = found.evaluations.items()
        summary |= {"checkpoint": some.path, "learner": name, **one.as_dict()}
    else:
        summary |= {"checkpoints": {name: one.path for name, one in checkpoints.items()}, **found.as_dict()}
    about = f"{data.description}, {asked.split} functions"
    write = partial(write_functions_page, found, learners, checkpoints, source, about)
    tell_tables(summary, tables_of(found), write, report, as_json)


def _functions(checkpoints: Mapping[str, Checkpoint], asked: EvaluationOptions) -> FunctionData:
    """Those that all learners were trained on, or drawn ones that were asked for."""
    from sureshot.data.few_shot import DATASETS
    from sureshot.meta.functions import load_functions

    trained = [one.config["data"] for one in checkpoints.values()]
    first, some = trained[0], next(iter(checkpoints.values()))
    if asked.on is None and (other := next((one for one in trained if one != first), None)):
        raise ValueError(
            f"the learners were trained on different functions, {first} and {other}: compare those of one kind, or "
            "of functions that are drawn, with --on"
        )
    name = first["name"] if asked.on is None else asked.on
    if name == first["name"] and (package := some.artifact.header.get("dataset")):
        DATASETS.require(name, package)
    chosen = (first["options"] if name == first["name"] else {}) | asked.options_of_data()
    known = {"name": name, "options": chosen}
    for checkpoint, own in zip(checkpoints.values(), trained, strict=True):
        if own != known and not {name, own["name"]} <= set(DRAWN):
            raise ValueError(
                f"{checkpoint.path} was trained on {own}: --on and --option are for functions that are drawn "
                f"({', '.join(DRAWN)}); give rows of a new table to `sureshot fit` and `sureshot evaluate`"
            )
    data = load_functions(name, asked.data, **chosen)
    widths = data.test.input_width, data.test.target_width
    for checkpoint, own in zip(checkpoints.values(), trained, strict=True):
        if own == known and checkpoint.artifact.header.get("rows", data.train.identity) != data.train.identity:
            raise ValueError(
                f"{checkpoint.path} was trained on other functions than {data.description}: its table or images have "
                "changed, so that those of its training may be among those to test on, or Python gave it functions of "
                "its own; give the data as they were, or score it by sureshot.meta.evaluation.evaluate_functions"
            )
        takes = checkpoint.learner["input_width"], checkpoint.learner["target_width"]
        if takes != widths:
            raise ValueError(
                f"{checkpoint.path} takes {takes[0]} inputs and answers with {takes[1]} numbers, but {name} has "
                f"{widths[0]} and {widths[1]}: test on functions like those of the training"
            )
    return data

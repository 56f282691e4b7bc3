"""``sureshot meta-evaluate`` on a learner of numbers: scores by size of the context, within and beyond the training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sureshot.cli import console

if TYPE_CHECKING:
    from sureshot.cli.few_shot import EvaluationOptions
    from sureshot.meta.training.checkpoint import Checkpoint
    from sureshot.progress import Progress

_OF_CLASSES = ("on", "option", "way", "shots", "queries", "corrupted", "out_of_episode", "robustness")


def evaluated(checkpoint: Checkpoint, asked: EvaluationOptions, tell: Progress) -> dict[str, Any]:
    """The scores of a checkpoint on the test functions, as JSON values."""
    unusual = [name for name in _OF_CLASSES if getattr(asked, name) != getattr(type(asked), name)]
    given = [f"--{name.replace('_', '-')}" for name in unusual]
    if given:
        raise ValueError(f"{', '.join(given)}: is about classes, and {checkpoint.path} about numbers")
    from sureshot.meta.evaluation.functions import evaluate_functions
    from sureshot.meta.functions import load_functions

    settings = checkpoint.config["data"]
    data = load_functions(settings["name"], asked.data, **settings["options"])
    console.note(f"{asked.split} functions: {data.description}")
    source = data.test if asked.split == "test" else data.val
    learner = checkpoint.build_process()
    found = evaluate_functions(learner, source, n_tasks=asked.tasks, seed=asked.seed, progress=tell)
    about = {"checkpoint": checkpoint.path, "learner": learner.config["name"], "data": settings["name"]}
    return {**about, "split": asked.split, **found.as_dict()}


def print_scores(summary: dict[str, Any]) -> None:
    """A table for each region."""
    scores = summary["scores"]
    shares = list(scores[0]["coverage"])
    columns = ("context", "log density", "RMSE", "CRPS", *(f"within {float(share):.0%}" for share in shares))
    for region in dict.fromkeys(one["region"] for one in scores):
        rows: list[tuple[object, ...]] = []
        for one in (one for one in scores if one["region"] == region):
            estimates = [one[name] for name in ("log_density", "rmse", "crps")]
            means = (f"{each['mean']:.4f} +- {each['standard_error'] or 0.0:.4f}" for each in estimates)
            rows.append((one["context"], *means, *(f"{one['coverage'][share]['mean']:.3f}" for share in shares)))
        title = f"{summary['learner']}, {summary['n_tasks']} tasks {region} the range of the training's inputs"
        console.print_table(columns, rows, title)

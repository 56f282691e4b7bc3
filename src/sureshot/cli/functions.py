"""``sureshot meta-evaluate`` on a learner of numbers: scores by size of the context, within and beyond the training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sureshot.cli import console

if TYPE_CHECKING:
    from sureshot.cli.few_shot import EvaluationOptions
    from sureshot.meta.training.checkpoint import Checkpoint
    from sureshot.progress import Progress

_OF_CLASSES = ("on", "option", "way", "shots", "out_of_episode", "robustness")


def evaluated(checkpoint: Checkpoint, asked: EvaluationOptions, tell: Progress) -> dict[str, Any]:
    """The scores of a checkpoint on the test functions, as JSON values."""
    given = [f"--{name.replace('_', '-')}" for name in _OF_CLASSES if getattr(asked, name) is not None]
    if given or asked.corrupted != "both":
        raise ValueError(f"{', '.join(given) or '--corrupted'}: is about classes, and {checkpoint.path} about numbers")
    from sureshot.meta.evaluation.functions import evaluate_functions
    from sureshot.meta.functions.by_name import load_functions
    from sureshot.meta.training.function_config import FunctionTrainingConfig

    config = FunctionTrainingConfig.from_dict(checkpoint.config)
    data = load_functions(config.data.name, asked.data, **config.data.options)
    console.note(f"{asked.split} functions: {data.description}")
    source = data.test if asked.split == "test" else data.val
    found = evaluate_functions(
        checkpoint.build_process(), source, n_tasks=asked.tasks, seed=asked.seed, progress=tell
    ).as_dict()
    return {
        "checkpoint": checkpoint.path,
        "learner": config.learner.name,
        "data": config.data.name,
        "split": asked.split,
        **found,
    }


def print_scores(summary: dict[str, Any]) -> None:
    """A table for each region."""
    console.print_text(f"{summary['learner']} on {summary['n_tasks']} tasks of {summary['targets']} targets")
    shares = list(summary["scores"][0]["coverage"])
    columns = ("context", "log density", "RMSE", "CRPS", *(f"within {float(share):.0%}" for share in shares))
    for region in dict.fromkeys(one["region"] for one in summary["scores"]):
        rows = [
            (
                one["context"],
                *(_with_error(one[name]) for name in ("log_density", "rmse", "crps")),
                *(f"{one['coverage'][share]['mean']:.3f}" for share in shares),
            )
            for one in summary["scores"]
            if one["region"] == region
        ]
        console.print_table(columns, rows, f"{region} the range of the training's inputs")


def _with_error(estimate: dict[str, float]) -> str:
    error = estimate["standard_error"]
    return f"{estimate['mean']:.4f}" + ("" if error is None else f" +- {error:.4f}")

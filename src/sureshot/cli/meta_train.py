"""``sureshot meta-train``: meta-train a few-shot learner from a file of settings."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from sureshot.cli import console, options

if TYPE_CHECKING:
    from sureshot.meta.training import TrainingResult


def meta_train(
    config: options.ConfigFile,
    output: options.RunFolder = None,
    data: options.DataRoot = None,
    settings: options.Settings = None,
    resume: options.Resume = True,
    quiet: console.QuietOption = False,
    as_json: console.JsonOption = False,
) -> None:
    """Meta-train a few-shot learner; killed runs go on where they were when run again."""
    # torchrun runs one process for each share of the tasks; the main one reports.
    is_main = os.environ.get("RANK", "0") == "0"
    with console.guarded(as_json, quiet or not is_main):
        folder = Path("runs") / config.stem if output is None else output
        console.check_folder(folder)
        from sureshot.data.settings_files import from_file
        from sureshot.meta.training.config import run_config

        chosen = from_file(config, run_config, settings or ())
        from sureshot.meta.training import train

        console.note(f"{chosen.learner.name} on {chosen.data.name}, {chosen.training.episodes} episodes, into {folder}")
        with console.progress(config.stem, quiet or not is_main) as update:
            result = train(chosen, folder, data_root=data, progress=update, resume=resume)
        if not is_main:
            return
        if not result.best.is_file():
            raise ValueError(
                f"{folder}: the training has ended, and its {result.best.name} is gone: train into another"
            )
        console.tell(result.as_dict(), lambda _: _print(result), as_json)


def _print(result: TrainingResult) -> None:
    rows: list[tuple[str, object]] = [
        ("episodes", f"{result.episodes}{' (stopped early)' if result.stopped_early else ''}"),
        ("best after episodes", result.best_episodes),
    ]
    if result.scores is not None:
        shown = {"nll": "NLL", "rmse": "RMSE"}
        scores = asdict(result.scores)
        rows += [(f"validation {shown.get(name, name)}", value) for name, value in scores.items()]
    rows += [
        ("large gradients", result.large_gradients),
        ("seconds", f"{result.seconds:.1f}"),
        ("best checkpoint", str(result.best)),
        ("to resume from", str(result.last)),
        ("log", str(result.log)),
    ]
    console.print_table(("meta-trained", ""), rows)

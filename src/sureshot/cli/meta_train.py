"""``sureshot meta-train``: meta-train a few-shot learner from a file of settings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sureshot.cli.console import (
    JsonOption,
    QuietOption,
    check_folder,
    guarded,
    note,
    print_json,
    print_table,
    progress,
)

if TYPE_CHECKING:
    from sureshot.meta.training import TrainingResult


def meta_train(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="Settings; docs/meta-training.md has all.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FOLDER", help="The run's folder; by default runs/ and CONFIG's name."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="FOLDER", help="The data root; else that of SURESHOT_DATA."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Replace a setting; may be repeated."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume/--no-resume", help="Go on from the folder's last checkpoint, or start anew.")
    ] = True,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Meta-train a few-shot learner; killed runs go on where they were when run again."""
    # torchrun runs one process for each share of the tasks; one of them speaks.
    speaks = os.environ.get("RANK", "0") == "0"
    with guarded(as_json, quiet or not speaks):
        folder = Path("runs") / config.stem if output is None else output
        check_folder(folder)
        from sureshot.meta.training import TrainingConfig, train

        chosen = TrainingConfig.from_toml(config, settings or ())
        note(f"{chosen.learner.name} on {chosen.data.name}, {chosen.training.episodes} episodes, into {folder}")
        with progress(config.stem, quiet or not speaks) as update:
            result = train(chosen, folder, data_root=data, progress=update, resume=resume)
        if not speaks:
            return
        if as_json:
            print_json(result.as_dict())
        else:
            _print(result)


def _print(result: TrainingResult) -> None:
    rows: list[tuple[str, object]] = [
        ("episodes", f"{result.episodes}{' (stopped early)' if result.stopped_early else ''}"),
        ("best after episodes", result.best_episodes),
    ]
    if result.scores is not None:
        rows += [
            ("validation accuracy", f"{result.scores.accuracy:.4f}"),
            ("validation NLL", f"{result.scores.nll:.4f}"),
        ]
    rows += [
        ("large gradients", result.large_gradients),
        ("seconds", f"{result.seconds:.1f}"),
        ("best checkpoint", str(result.best)),
        ("to resume from", str(result.last)),
        ("log", str(result.log)),
    ]
    print_table(("meta-trained", ""), rows)

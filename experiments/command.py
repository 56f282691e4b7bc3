"""``python -m experiments NAME``: the studies behind ``docs/results``, each by its name.

Output, errors and exit statuses are those of every command of ``sureshot`` (`sureshot.cli.console`); imports of torch
and of the experiments stay inside the functions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sureshot.cli.console import (
    JsonOption,
    QuietOption,
    check_folder,
    guarded,
    print_json,
    print_table,
    print_text,
    progress,
    run_app,
)

if TYPE_CHECKING:
    from experiments.experiment import ExperimentResult

app = typer.Typer(
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def experiment(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The experiment; see --list.", show_default=False)
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="List the experiments and stop.")] = False,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="FOLDER", help="The data root; else that of SURESHOT_DATA."),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where tables and figures go.")
    ] = Path("docs/results"),
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="standard|full",
            help="Of a campaign: training episodes of each cell; full is what the papers used, standard a quarter.",
            show_default=False,
        ),
    ] = None,
    collect: Annotated[
        bool,
        typer.Option("--collect", help="Of a campaign: run nothing, make the page of the results that are there."),
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Replace a setting of the experiment (a smaller budget, other seeds); may be repeated.",
        ),
    ] = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run one experiment and write its tables and figures."""
    with guarded(as_json, quiet, logs=("experiments", "sureshot")):
        if name is None and not show:
            raise ValueError("name an experiment, or list them with: python -m experiments --list")
        from experiments import registry

        if show:
            known = registry.names()
            if as_json:
                print_json(known)
            else:
                print_table(("experiment", "what it measures"), list(known.items()))
            return
        assert name is not None
        check_folder(output)
        of_campaigns = [] if budget is None else [f"budget={budget}"]
        of_campaigns += ["train=false"] if collect else []
        options = parse_settings([*(settings or ()), *of_campaigns])
        with progress(name, quiet) as update:
            result = registry.run(name, data_root=data, output=output, progress=update, **options)
        if as_json:
            print_json(result.as_dict())
        else:
            _print(result)


def main() -> None:
    """Run the command line."""
    run_app(app, "python -m experiments")


def parse_settings(settings: Iterable[str]) -> dict[str, Any]:
    """``KEY=VALUE`` pairs with the values read as JSON (lists as tuples), or else as text."""
    found: dict[str, Any] = {}
    for setting in settings:
        key, separator, text = setting.partition("=")
        key = key.strip().replace("-", "_")
        if not separator or not key.isidentifier():
            raise ValueError(f"--set {setting}: expected KEY=VALUE, for instance --set repetitions=2")
        if key in ("data_root", "progress", "output", "name"):
            raise ValueError(f"--set {setting}: {key} is no setting of an experiment")
        if key in found:
            raise ValueError(f"--set {key} is given twice")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        found[key] = tuple(value) if isinstance(value, list) else value
    return found


def _print(result: ExperimentResult) -> None:
    for table in result.tables:
        if table.published or not table.on_page:
            continue  # a paper's numbers stand in the page, away from measured ones; long tables are in the file
        rows = [
            [table.written(value) if isinstance(value, float) else value for value in row]
            for row in table.frame.itertuples(index=False)
        ]
        print_table([str(column) for column in table.frame.columns], rows, title=table.name)
    for verdict in result.verdicts:
        print_text(f"{'holds' if verdict.holds else 'does not hold'}: {verdict.claim} ({verdict.measured})")
    print_text(f"{result.wall_seconds:.0f} seconds; the page is {result.files[0]}")

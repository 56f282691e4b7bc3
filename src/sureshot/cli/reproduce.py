"""``sureshot reproduce``: the studies behind ``docs/results``, each by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sureshot.cli.console import (
    JsonOption,
    QuietOption,
    check_folder,
    guarded,
    print_json,
    print_table,
    progress,
)


def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The experiment; see --list.", show_default=False)
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="List the experiments and stop.")] = False,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="FOLDER", help="The data root. [default: $SURESHOT_DATA]"),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where tables and figures go.")
    ] = Path("docs/results"),
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run one experiment and write its tables and figures."""
    with guarded(as_json, quiet):
        from sureshot.experiments import registry

        known = registry.names()
        if show or name is None:
            if as_json:
                print_json(known)
            else:
                print_table(("experiment", "what it measures"), list(known.items()))
            return
        check_folder(output)
        with progress(name, quiet):
            result = registry.run(name, data_root=data, output=output)
        print_json(result)

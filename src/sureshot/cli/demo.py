"""``sureshot demo``: handwritten digits, five labels for each of seven classes, three classes unknown."""

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


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where the report goes.")] = Path(
        "sureshot-demo"
    ),
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare sureshot with its neighbours on handwritten digits; under 90 seconds."""
    with guarded(as_json, quiet):
        check_folder(output)
        from sureshot.experiments.demo import run_demo

        with progress("demo", quiet) as update:
            result = run_demo(output, update)
        if as_json:
            print_json(result)
        else:
            print_table(("method",), [(str(result),)])

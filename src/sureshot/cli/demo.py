"""``sureshot demo``: handwritten digits, five labels for each of seven classes, three classes unknown."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
)

if TYPE_CHECKING:
    from sureshot.demo.digits import DemoResult


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
        from sureshot.demo.digits import run_demo

        # Corner pixels of the digits are always blank: no news to anybody here.
        warnings.filterwarnings("ignore", message="ignored .* constant columns")
        with progress("demo", quiet) as update:
            result = run_demo(output, update)
        if as_json:
            print_json(result.as_dict())
        else:
            _print(result)


def _print(result: DemoResult) -> None:
    from sureshot.demo.comparison import METRICS
    from sureshot.demo.digits import N_KNOWN, SEEDS, SHOTS

    rows = [
        [record["method"], *(f"{record[name]:.3f} ± {record[f'{name} s.e.']:.3f}" for name in METRICS)]
        for record in result.table.to_dict("records")
    ]
    title = f"{N_KNOWN} digits known from {SHOTS} labels each, {10 - N_KNOWN} unknown, {len(SEEDS)} seeds"
    print_table(("method", *METRICS), rows, title=title)
    print_text(f"The digits it is least sure of: {result.report}")

"""``sureshot demo``: handwritten digits, few labels for each, classes unknown and classes that arrive later."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sureshot.cli import console, options
from sureshot.cli.sessions import print_summary

if TYPE_CHECKING:
    from sureshot.demo.digits import DemoResult


def demo(
    output: options.DemoFolder = Path("sureshot-demo"),
    quiet: console.QuietOption = False,
    as_json: console.JsonOption = False,
) -> None:
    """Compare sureshot with other classifiers on handwritten digits; under 90 seconds."""
    # Blank corners of the digits, and settings that sessions keep on purpose, are no news to anybody here.
    with console.guarded(as_json, quiet, but=("sureshot.estimators",)):
        console.check_folder(output)
        from sureshot.demo.digits import run_demo

        with console.progress("demo", quiet) as update:
            result = run_demo(output, update)
        console.tell(result.as_dict(), lambda _: _print(result), as_json)


def _print(result: DemoResult) -> None:
    from sureshot.demo.comparison import METRICS
    from sureshot.demo.digits import N_KNOWN, SEEDS, SHOTS
    from sureshot.demo.sessions import N_BASE, WAY

    rows = [
        [record["method"], *(f"{record[name]:.3f} ± {record[f'{name} s.e.']:.3f}" for name in METRICS)]
        for record in result.table.to_dict("records")
    ]
    title = f"{N_KNOWN} digits known from {SHOTS} labels each, {10 - N_KNOWN} unknown, {len(SEEDS)} seeds"
    console.print_table(("method", *METRICS), rows, title=title)
    print_summary(result.sessions, f"Digits in sessions: {N_BASE} known well, then {WAY} at a time with {SHOTS} labels")
    console.print_text(f"The digits it is least sure of: {result.report}")

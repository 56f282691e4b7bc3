"""The command line: ``sureshot COMMAND``.

Conventions of every command: data on standard output, progress, notes and errors on standard error;
``--json`` for machines; one line ``error: ...`` and exit status 1 for a problem with files or values, 2 for
wrong usage, 130 after Ctrl-C, 141 when the reader of a pipe has gone; files are written under a temporary
name and then renamed, so nothing is ever half-written. One module per command; each imports what is slow
(torch, scikit-learn) inside the command, so that ``sureshot --help`` answers at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

from sureshot.cli.console import run_app
from sureshot.cli.demo import demo
from sureshot.cli.doctor import doctor, installed_version
from sureshot.cli.evaluate import evaluate
from sureshot.cli.fit import fit
from sureshot.cli.meta_compare import meta_compare
from sureshot.cli.meta_evaluate import meta_evaluate
from sureshot.cli.meta_train import meta_train
from sureshot.cli.options import spread
from sureshot.cli.predict import predict
from sureshot.cli.search import search
from sureshot.cli.sessions import sessions
from sureshot.cli.suggest import suggest
from sureshot.cli.update import update

app = typer.Typer(
    name="sureshot",
    help="Classify from a handful of labels, and know how sure you are.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for _command in (
    *(demo, fit, predict, evaluate, suggest, update, search, sessions),
    *(meta_train, meta_evaluate, meta_compare, doctor),
):
    app.command()(spread(_command))


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sureshot {installed_version('sureshot') or 'unknown (not installed)'}")
        raise typer.Exit()


@app.callback()
def _options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Classify from a handful of labels, and know how sure you are."""


def main() -> None:
    """Run the command line; the entry point of the ``sureshot`` script."""
    run_app(app, "sureshot")


__all__ = ["app", "main"]

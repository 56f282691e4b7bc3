"""What every command shares: guarded running, output for people and machines, and files written whole."""

from __future__ import annotations

import json
import logging
import math
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from sureshot.cli.wording import as_options
from sureshot.data.root import UnclearTask
from sureshot.progress import ProgressLines, reported_to

if TYPE_CHECKING:
    from rich.console import Console

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No notes and no progress on standard error.")]

_UsageError: Any = typer.BadParameter.__base__  # of click, which typer carries along without a public name

NOT_CSV = frozenset(
    (".json", ".xlsx", ".xls", ".ods", ".parquet", ".feather", ".npz", ".npy", ".safetensors", ".html", ".pdf", ".gz")
)
"""Endings of files that hold something else."""

WRONG_USAGE = 2
INTERRUPTED = 130
BROKEN_PIPE = 141


class _Notes(logging.Handler):
    """Log records and warnings as lines on whatever standard error is at the time.

    Each once, as a file may be read twice; Python's own memory of warnings is lost when filters change.
    """

    def __init__(self) -> None:
        super().__init__()
        self._shown: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        self.show("note" if record.levelno < logging.WARNING else "warning", record.getMessage())

    def show(self, level: str, message: str) -> None:
        """Write a line, unless it has been written."""
        line = f"{level}: {one_line(message)}\n"
        if line not in self._shown:
            sys.stderr.write(line)
        self._shown.add(line)


@contextmanager
def guarded(
    as_json: bool = False, quiet: bool = False, logs: Sequence[str] = ("sureshot",), but: Sequence[str] = ()
) -> Iterator[None]:
    """Run a command's body: errors become one line and an exit status, notes in `logs` but `but` go to standard error.

    These are the errors that the library raises on purpose and those of the operating system. Any other is a defect of
    the library and keeps its traceback.
    """
    handler = _Notes()
    loggers = [logging.getLogger(name) for name in (*logs, *but)]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR if quiet or logger.name in but else logging.INFO)
        if logger.name in logs:
            logger.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if not quiet:
                warnings.simplefilter("always", UserWarning)
                warnings.showwarning = lambda message, *_, **__: handler.show("warning", str(message))
            yield
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        raise typer.Exit(BROKEN_PIPE) from None
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        raise typer.Exit(INTERRUPTED) from None
    except MemoryError as error:
        # Ours say what to try; NumPy's are of a class of their own.
        reason = str(error) if type(error) is MemoryError else ""
        fail(as_options(reason) if reason else f"not enough memory ({error}): use fewer rows or classes", as_json)
    except ImportError as error:
        fail(f"{error}: `sureshot doctor` lists what is missing", as_json)
    except (ValueError, OSError) as error:
        fail(_describe(error), as_json, WRONG_USAGE if isinstance(error, UnclearTask) else 1)
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)


@contextmanager
def told_anyway(tell: Callable[[], None], as_json: bool) -> Iterator[None]:
    """Show people what was found, even if the block cannot write it and the command ends with an error."""
    try:
        yield
    except OSError:
        if not as_json:
            tell()
        raise


def run_app(app: typer.Typer, name: str) -> None:
    """Run a whole command line; wrong usage is one line, and an interrupt outside of a command's body one word."""
    try:
        sys.exit(app(prog_name=name, standalone_mode=False))
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(INTERRUPTED)
    except _UsageError as error:
        command = "sureshot" if error.ctx is None else error.ctx.command_path
        if message := one_line(error.format_message()):  # none if help was shown in the place of a command
            end = "" if message[-1] in ".?" else "."
            sys.stderr.write(f"error: {message}{end} `{command} --help` lists arguments and options.\n")
            if "--json" in sys.argv[1:]:
                sys.stdout.write(json.dumps({"error": message}) + "\n")
        sys.exit(error.exit_code)


def fail(message: str, as_json: bool, status: int = 1) -> None:
    """End the command with one line on standard error, and the same as JSON if JSON was asked for."""
    sys.stderr.write(f"error: {one_line(message)}\n")
    if as_json:
        sys.stdout.write(json.dumps({"error": one_line(message)}) + "\n")
    raise typer.Exit(status) from None


def one_line(message: str) -> str:
    """The message with every run of white space as one space, and the name of standard input where that is meant."""
    line = " ".join(str(message).split())
    return f"standard input{line[1:]}" if line.startswith("-: ") else line


def command_line() -> str:
    """The command being run, as it could be typed again."""
    return shlex.join(["sureshot", *sys.argv[1:]])


def note(message: str) -> None:
    """A line for people on standard error, through the log so that ``--quiet`` silences it."""
    logging.getLogger("sureshot.cli").info("%s", message)


def _describe(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return as_options(str(error)) or type(error).__name__


def _discard_output() -> None:
    """Let the interpreter flush at exit without a second complaint about the broken pipe."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - stays open until the process ends


def tell(found: dict[str, Any], show: Callable[[dict[str, Any]], None], as_json: bool) -> None:
    """Print what a command has found: as JSON, or by `show` for people."""
    (print_json if as_json else show)(found)


def print_json(value: Any, path: Path | None = None, indent: int | None = None) -> None:
    """Print a value as JSON, or write it; NumPy scalars and arrays become plain numbers, and NaN becomes null."""
    with output_text(path) as stream:
        stream.write(json.dumps(plain(value), indent=indent, allow_nan=False) + "\n")


def plain(value: Any) -> Any:
    """The value made of dict, list, str, int, float, bool and None only."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, str | bool | int) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return plain(value.tolist())  # a NumPy scalar or array


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str | None = None) -> None:
    """Print a table for people; columns of numbers are aligned right."""
    from sureshot.cli.text_tables import text_tables

    console = output_console()
    for table in text_tables(columns, rows, console.width, title):
        console.print(table)


def print_text(text: str) -> None:
    """Print a paragraph for people, wrapped to the terminal."""
    output_console().print(text)


def output_console() -> Console:
    """Standard output for people; wide where nothing says how wide, so that a redirected table is not cut."""
    from rich.console import Console

    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 160
    return Console(file=sys.stdout, width=width, markup=False, emoji=False, highlight=False)


@contextmanager
def progress(description: str, quiet: bool = False) -> Iterator[Callable[[str, float], None]]:
    """How far the block has come, on standard error: a bar on a terminal, elsewhere a line every ten seconds.

    Moved by ``update(what, fraction)``, of 0 to 1, which is yielded, and by what the library reports.
    """
    if quiet or not sys.stderr.isatty():
        lines = (lambda what, fraction: None) if quiet else ProgressLines(description, sys.stderr)
        with reported_to(lines):
            yield lines
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
        console=Console(file=sys.stderr, markup=False, emoji=False),
        transient=True,
    ) as bar:
        task = bar.add_task(description, total=None)

        def update(what: str, fraction: float) -> None:
            bar.update(task, total=1.0, completed=fraction, description=what)

        with reported_to(lambda what, fraction: update(f"{description}: {what}", fraction)):
            yield update


def check_output(path: Path, *inputs: Path) -> None:
    """Refuse a file that could not be written, before the work rather than after it (`ValueError`)."""
    from sureshot.persistence import is_special

    if is_special(path):
        if not os.access(path, os.W_OK):
            raise ValueError(f"cannot write {path}: no permission")
        return
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file to write")
    if not path.parent.is_dir():
        raise ValueError(f"cannot write {path}: the folder {path.parent} does not exist")
    if not os.access(path.parent, os.W_OK):
        raise ValueError(f"cannot write {path}: no permission to write in {path.parent}")
    for other in inputs:
        if path.exists() and other.exists() and path.samefile(other):
            raise ValueError(f"{path} is also the input: name another file to write")
        if path.exists() and other.is_dir() and other.resolve() in path.resolve().parents:
            raise ValueError(f"{path} is a file of the input folder {other}: name another file to write")


def text_output(path: Path | None, as_json: bool, *inputs: Path) -> Path | None:
    """`check_output` of a file of rows as CSV or JSON, which must not have the ending of another; "-" is none."""
    if path is None or str(path) == "-":
        return None
    check_output(path, *inputs)
    kind, ending = ("JSON", ".json") if as_json else ("CSV", ".csv")
    given = path.suffix.lower()
    if given in (NOT_CSV | {".csv", ".tsv"} if as_json else NOT_CSV) - {ending}:
        advice = {".json": ", or add --json", ".csv": ", or leave --json out"}.get(given, "")
        raise ValueError(f"{path} would hold {kind}: call it {path.name.split('.')[0]}{ending}{advice}")
    return path


def check_model_output(path: Path, *inputs: Path) -> None:
    """`check_output` of a model's file, which must not have the ending of another kind of file."""
    if str(path) == "-":
        raise ValueError("a model is written to a file, not to standard output: name one, model.safetensors say")
    check_output(path, *inputs)
    from sureshot.persistence import check_target

    check_target(path)


def check_no_target(path: Path, target: str | None) -> None:
    """Refuse a column of labels for images, which have none (`ValueError`)."""
    if target is not None:
        raise ValueError(
            f"--target names a column of a table, but {path} is an image, or a folder without .parquet files: classes "
            "are the names of sub-folders"
        )


def check_folder(path: Path | None) -> None:
    """Refuse a folder that is a file, or would be in one, or where nothing can be written (`ValueError`)."""
    if path is None:
        return
    there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not there.is_dir():
        raise ValueError(f"{there} is a file: name a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ValueError(f"nothing can be written to {there}: name another folder")


@contextmanager
def output_text(path: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that appears whole under its name at the end or not at all."""
    if path is None:
        yield sys.stdout
        return
    from sureshot.persistence import written_whole

    with written_whole(path) as temporary, open(temporary, "w", encoding="utf-8", newline="") as stream:
        yield stream

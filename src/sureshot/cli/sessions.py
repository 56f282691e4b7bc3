"""``sureshot sessions``: methods on classes that arrive in sessions."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from sureshot.cli import console, options

if TYPE_CHECKING:
    from pandas import DataFrame

    from sureshot.evaluation.session_study import SessionStudy

TABLES = {"sessions.csv": "by_session", "matrix.csv": "matrix", "summary.csv": "summary"}
"""Files and the tables of a study that they hold."""

RUNS = "runs"
"""Folder of what each method and seed has found, from which an interrupted comparison goes on."""


def sessions(
    config: options.SessionsFile,
    output: options.SessionsFolder = None,
    data: options.DataRoot = None,
    report: options.SessionsReport = None,
    quiet: console.QuietOption = False,
    as_json: console.JsonOption = False,
) -> None:
    """Compare methods on classes that arrive in sessions: accuracy, forgetting, calibration, memory, time."""
    with console.guarded(as_json, quiet):
        folder = Path("sessions") / config.stem if output is None else output
        console.check_folder(folder)
        console.check_folder(report)
        from sureshot.data.settings_files import read_toml

        read_toml(config)  # what is no file of settings is refused before anything is imported that takes long
        from sureshot.evaluation.session_config import SessionsConfig
        from sureshot.evaluation.session_study import run_study

        chosen = SessionsConfig.from_toml(config)
        names = ", ".join(one.shown for one in chosen.methods)
        console.note(f"{names} on {chosen.data.name}, seeds {', '.join(map(str, chosen.run.seeds))}, into {folder}")
        with console.progress("sessions", quiet) as update:
            study = run_study(chosen, data, update, folder / RUNS)
        from sureshot.cli.sessions_report import write_sessions_page

        with console.told_anyway(lambda: _print(study), as_json):
            page = write_sessions_page(study, chosen, report or folder, console.command_line())
            found = {"config": asdict(chosen), **study.as_dict(), "report": str(page)}
            console.print_json(found, folder / "sessions.json", indent=1)
            for name, table in TABLES.items():
                with console.output_text(folder / name) as stream:
                    getattr(study, table)().to_csv(stream, index=False, lineterminator="\n")
        console.tell(found, lambda _: _print(study, page), as_json)
        if study.failures:
            raise ValueError("; ".join(f"{method} is left out, {why}" for method, why in study.failures.items()))


SHOWN = ("accuracy", "average_accuracy", "forgetting", "base_accuracy", "novel_accuracy", "nll", "ece")
"""Columns of the summary that fit a terminal; the report and the files have all."""


def _print(study: SessionStudy, page: Path | None = None) -> None:
    from sureshot.evaluation.session_study import averaged

    last = next(iter(next(iter(study.evaluations.values())).values())).last
    title = f"After the last session ({last.session}), {last.n_classes} classes: {study.in_words}"
    print_summary(averaged(study.summary(), ["method"]), title)
    if not last.session:
        console.note("all classes came in one session: there were not as many left as a later one has")
    if page is not None:
        console.print_text(f"report: {page}")


def print_summary(table: DataFrame, title: str) -> None:
    """A line for each method: what was measured of it after the last session."""
    from sureshot.evaluation.session_study import SUMMARY

    columns = [column for column in (*SHOWN, "out_of_scope_auroc") if table[column].notna().any()]
    rows = [
        [method, *(_shown(table, place, column) for column in columns)] for place, method in enumerate(table["method"])
    ]
    console.print_table(("method", *(SUMMARY[column] for column in columns)), rows, title=title)


def _shown(table: DataFrame, place: int, column: str) -> str:
    mean, error = table[column].iloc[place], table[f"{column} s.e."].iloc[place]
    if mean != mean:
        return ""
    return f"{mean:.3f}" if error != error else f"{mean:.3f} ± {error:.3f}"

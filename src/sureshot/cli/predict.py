"""``sureshot predict``: a class for each row or none of them, or a number, how sure that is, and if wanted why."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sureshot.cli import console, options

if TYPE_CHECKING:
    from sureshot.cli.reading import Beside
    from sureshot.data import DataTable

CHUNK = 4096  # rows held with all their probabilities at once, and written; predictions do not depend on it


def predict(
    model: options.Model,
    data: options.Rows,
    *,
    asked: options.Answers,
    target: options.IgnoredTarget = None,
    join: options.Join = False,
    files: options.Files,
    output: options.PredictionsFile = None,
    resume: options.ResumePredictions = False,
    quiet: console.QuietOption = False,
    as_json: console.JsonOption = False,
) -> None:
    """Predict the class of rows, as CSV: row (or --id), prediction, probabilities, outlier, p_value, set, reasons.

    Of numbers: prediction, deviation, lower and upper end of an interval, outlier, reasons. Of Parquet, without --join,
    no more than a part is held, so that there may be any number of rows.
    """
    with console.guarded(as_json, quiet):
        output = console.text_output(output, as_json, model, data)
        _check(asked)
        if join and as_json:
            raise ValueError("--join writes columns, and --json none: leave one of them out")
        if resume and (output is None or str(data) == "-"):
            raise ValueError("--resume goes on with a file (--output) of answers to a file: leave it out")
        from sureshot.cli.model_file import load_model

        fitted, how = load_model(model, data, files)
        from sureshot.cli.model import tables_for_model
        from sureshot.cli.reading import Beside, as_head
        from sureshot.cli.tasks import task_of
        from sureshot.cli.unfinished import Unfinished, origin

        task = task_of(fitted)
        there = Unfinished.found(output, origin(model, data, (asked, target, join, files, as_json)), resume)
        asked = task.answerable(fitted, asked, as_json)
        with console.progress(f"reading {data}", quiet):
            n, tables = tables_for_model(fitted, data, target, how, at_once=join)
            columns = task.columns(fitted, asked)
            if asked.why is not None:
                n_reasons = min(asked.why, _n_reasons(fitted, next(tables()).X))
                asked = replace(asked, why=n_reasons)
                for place in range(1, 1 + n_reasons):
                    columns += [f"reason_{place}", *(f"{what}_of_reason_{place}" for what in task.REASONS)]
            beside = Beside.of(data, how, columns) if join else None
        with console.progress(f"predicting {n} rows", quiet) as update:
            size = max(1, CHUNK >> ((asked.why or 1) - 1).bit_length())  # fewer if reasons hold rows, too
            chunks = _chunks(tables(), size, there.rows, lambda done: update(f"predicting {n} rows", done / n))
            blocks = (_answers(task, fitted, X, names, asked) for X, names in chunks)
            if as_json:
                classes = {"classes": fitted.classes_.tolist()} if hasattr(fitted, "classes_") else {}
                head = json.dumps(console.plain({**classes, "rows": []}))[:-2]
                there.write(head, blocks, _as_json, "\n]}\n")
            else:
                head = as_head(output, beside, files.row_id, columns)
                there.write(head, blocks, partial(_as_csv, task, output, beside, len(columns)), "")


def _check(asked: options.Answers) -> None:
    """Refuse rates that are none before anything is read."""
    for name, value in (("--reject", asked.reject), ("--set", asked.coverage), ("--coverage", asked.interval)):
        if value is not None:
            from sureshot.data.checks import check_share

            check_share(name, value)
    if asked.unknown is not None and asked.reject is None:
        raise ValueError("--unknown names rows that --reject rejects: add --reject 0.05, or leave it out")


def _n_reasons(model: Any, X: Any) -> int:
    """How many labelled rows there are that can speak for an answer; a note where they have no names."""
    n_rows = len(model.influence(X[:1], 1).together.row_ids)
    if getattr(model, "row_ids_", None) is None:
        console.note("the labelled rows have no names: fit with --id to see which they are")
    return n_rows


def _chunks(
    tables: Iterable[DataTable], size: int, done: int, tell: Callable[[int], None]
) -> Iterator[tuple[Any, list[Any]]]:
    """So many rows at a time of those behind the ones that are done, and their names; how far it has come is told."""
    end = 0
    for table in tables:
        start, end = end, end + len(table.row_ids)
        for place in range(max(start, done), end, size):
            rows = slice(place - start, place - start + size)
            yield table.X[rows], table.row_ids[rows].tolist()
            tell(min(place + size, end))


def _answers(task: ModuleType, model: Any, X: Any, names: list[Any], asked: options.Answers) -> list[dict[str, Any]]:
    """The answers for each row, by name."""
    answers: dict[str, Any] = {"row": names, **task.answers(model, X, asked)}
    if asked.why is not None:
        answers["why"] = task.reasons(model, X, asked.why)
    return [dict(zip(answers, row, strict=True)) for row in zip(*answers.values(), strict=True)]


def _cells(task: ModuleType, answers: dict[str, Any], beside: Beside | None, n_columns: int) -> list[Any]:
    """The answers for a row; where fewer rows spoke for it the last cells are empty."""
    from sureshot.cli.reading import written_number

    cells = task.cells(answers, beside)
    for one in answers.get("why", ()):
        cells += [written_number(cell, beside) if isinstance(cell, float) else cell for cell in one.values()]
    return cells + [""] * (n_columns - len(cells))


def _as_csv(
    task: ModuleType, path: Path | None, beside: Beside | None, width: int, rows: list[dict[str, Any]], start: int
) -> str:
    """The answers for rows from `start` on, behind their names or the cells of their file."""
    from sureshot.cli.reading import as_lines

    names, which = [row["row"] for row in rows], slice(start, start + len(rows))
    return as_lines(path, beside, names, which, (_cells(task, row, beside, width) for row in rows))


def _as_json(rows: list[dict[str, Any]], start: int) -> str:
    """Elements of an array, each on a line, the first of all without a comma before it."""
    lines = (json.dumps(console.plain(row), allow_nan=False) for row in rows)
    return "".join((",\n" if number else "\n") + line for number, line in enumerate(lines, start))

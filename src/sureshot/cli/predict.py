"""``sureshot predict``: a class for each row or none of them, and if wanted how sure that is, and why."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sureshot.cli import console, options

if TYPE_CHECKING:
    from sureshot.cli.reading import Beside
    from sureshot.data import DataTable
    from sureshot.estimators.classes.classifier_base import IncrementalClassifier

SEPARATOR = "|"  # of the labels of a set
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

    Of Parquet, without --join, no more than a part is held, so that there may be any number of rows.
    """
    with console.guarded(as_json, quiet):
        output = console.text_output(output, as_json, model, data)
        _check(asked)
        if join and as_json:
            raise ValueError("--join writes columns, and --json none: leave one of them out")
        if resume and (output is None or str(data) == "-"):
            raise ValueError("--resume goes on with a file (--output) of answers to a file: leave it out")
        from sureshot.cli.model_file import load_model

        classifier, how = load_model(model, data, files)
        from sureshot.cli.model import tables_for_model
        from sureshot.cli.reading import Beside, as_head
        from sureshot.cli.unfinished import Unfinished, origin

        there = Unfinished.found(output, origin(model, data, (asked, target, join, files, as_json)), resume)
        with console.progress(f"reading {data}", quiet):
            n, tables = tables_for_model(classifier, data, target, how, at_once=join)
            labels = classifier.classes_.tolist()
            unknown = _name_of_rejected(classifier, asked)
            if asked.why is not None:
                asked = replace(asked, why=min(asked.why, _n_reasons(classifier, next(tables()).X)))
            columns = _columns(labels, asked)
            if asked.coverage is not None and not as_json:
                _check_separable(labels)
            beside = Beside.of(data, how, columns) if join else None
        with console.progress(f"predicting {n} rows", quiet) as update:
            size = max(1, CHUNK >> ((asked.why or 1) - 1).bit_length())  # fewer if reasons hold rows, too
            chunks = _chunks(tables(), size, there.rows, lambda done: update(f"predicting {n} rows", done / n))
            blocks = (_answers(classifier, X, names, asked, unknown) for X, names in chunks)
            if as_json:
                head = '{"classes": ' + json.dumps(console.plain(labels)) + ', "rows": ['
                there.write(head, blocks, _as_json, "\n]}\n")
            else:
                head = as_head(output, beside, files.row_id, columns)
                there.write(head, blocks, partial(_as_csv, output, beside, len(columns)), "")


def _check(asked: options.Answers) -> None:
    """Refuse rates that are none before anything is read."""
    for name, value in (("--reject", asked.reject), ("--set", asked.coverage)):
        if value is not None:
            from sureshot.estimators.classes.decisions import check_share

            check_share(name, value)
    if asked.unknown is not None and asked.reject is None:
        raise ValueError("--unknown names rows that --reject rejects: add --reject 0.05, or leave it out")


def _check_separable(labels: list[Any]) -> None:
    """Refuse labels that would be ambiguous in a cell that holds several."""
    for label in labels:
        if SEPARATOR in str(label):
            raise ValueError(f"--set separates labels by {SEPARATOR}, which {label!r} contains: use --json")


def _name_of_rejected(model: IncrementalClassifier, asked: options.Answers) -> str | int:
    """What rejected rows are called: a number, if the classes are numbers and it is written as one."""
    from sureshot.cli.model import as_known

    name = "unknown" if asked.unknown is None else asked.unknown
    if asked.reject is not None and name in map(str, model.classes_.tolist()):
        raise ValueError(f"{name!r} is a class of the model: give rejected rows another name with --unknown")
    known: str | int = as_known([name], model.classes_).tolist()[0]
    return known


def _columns(labels: list[Any], asked: options.Answers) -> list[str]:
    """Names of the columns of a row, its class first."""
    found = ["prediction", *(f"probability_{label}" for label in (labels if asked.proba else ()))]
    for place in range(1, 1 + min(asked.top or 0, len(labels))):
        found += [f"class_{place}", f"probability_of_class_{place}"]
    last = {"outlier": asked.outlier, "p_value": asked.reject is not None, "set": asked.coverage is not None}
    found += [name for name, is_wanted in last.items() if is_wanted]
    for place in range(1, 1 + (asked.why or 0)):
        found += [f"reason_{place}", f"label_of_reason_{place}", f"fall_of_reason_{place}"]
    return found


def _n_reasons(model: IncrementalClassifier, X: Any) -> int:
    """How many labelled rows there are that can speak for an answer; a note where they have no names."""
    n_rows = len(model.influence(X[:1], 1).together.falls)
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


def _answers(
    model: IncrementalClassifier, X: Any, names: list[Any], asked: options.Answers, unknown: str | int
) -> list[dict[str, Any]]:
    """The answers for each row, by name."""
    from sureshot.cli.driving_rows import reasons_for

    labels = [str(label) for label in model.classes_.tolist()]
    decided = None if asked.reject is None else model.decide(X, asked.reject, unknown)
    answers: dict[str, Any] = {"row": names}
    answers["prediction"] = (model.predict(X) if decided is None else decided.labels).tolist()
    if asked.proba:
        answers["probabilities"] = (dict(zip(labels, p.tolist(), strict=True)) for p in model.predict_proba(X))
    if asked.top is not None:
        top = model.predict_topk(X, min(asked.top, len(labels)))
        pairs = zip(top.labels.tolist(), top.probabilities.tolist(), strict=True)
        answers["top"] = ([{"class": k, "probability": p} for k, p in zip(*pair, strict=True)] for pair in pairs)
    if asked.outlier:
        answers["outlier"] = (model.outlier_score(X) if decided is None else decided.outlier_scores).tolist()
    if decided is not None:
        answers["p_value"] = decided.p_values.tolist()
    if asked.coverage is not None:
        answers["set"] = model.predict_set(X, asked.coverage).tolist()
    if asked.why is not None:
        answers["why"] = (
            [{"row": one.name, "label": one.label, "fall": one.fall} for one in reasons]
            for reasons in reasons_for(model, X, asked.why)
        )
    return [dict(zip(answers, row, strict=True)) for row in zip(*answers.values(), strict=True)]


def _cells(answers: dict[str, Any], beside: Beside | None, n_columns: int) -> list[Any]:
    """The answers for a row, in the order of `_columns`; where fewer rows spoke for it the last cells are empty."""
    from sureshot.cli.reading import written_number

    cells = [answers["prediction"], *(written_number(p, beside) for p in answers.get("probabilities", {}).values())]
    for one in answers.get("top", ()):
        cells += [one["class"], written_number(one["probability"], beside)]
    cells += [written_number(answers[name], beside) for name in ("outlier", "p_value") if name in answers]
    cells += [SEPARATOR.join(map(str, answers["set"]))] if "set" in answers else []
    for one in answers.get("why", ()):
        cells += [one["row"], one["label"], written_number(one["fall"], beside)]
    return cells + [""] * (n_columns - len(cells))


def _as_csv(path: Path | None, beside: Beside | None, width: int, rows: list[dict[str, Any]], start: int) -> str:
    """The answers for rows from `start` on, behind their names or the cells of their file."""
    from sureshot.cli.reading import as_lines

    names, which = [row["row"] for row in rows], slice(start, start + len(rows))
    return as_lines(path, beside, names, which, (_cells(row, beside, width) for row in rows))


def _as_json(rows: list[dict[str, Any]], start: int) -> str:
    """Elements of an array, each on a line, the first of all without a comma before it."""
    lines = (json.dumps(console.plain(row), allow_nan=False) for row in rows)
    return "".join((",\n" if number else "\n") + line for number, line in enumerate(lines, start))

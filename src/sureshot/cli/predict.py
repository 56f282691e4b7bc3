"""``sureshot predict``: a class for each row, with probabilities and outlier scores if wanted."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sureshot.cli import console, options

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from sureshot.cli.reading import Reading
    from sureshot.data import DataTable
    from sureshot.estimators.base import IncrementalClassifier

CHUNK = 4096  # rows held with all their probabilities at once; predictions do not depend on it


def predict(
    model: options.Model,
    data: options.Rows,
    proba: options.Probabilities = False,
    outlier: options.OutlierScore = False,
    target: options.IgnoredTarget = None,
    join: options.Join = False,
    drop: options.Drop = None,
    row_id: options.RowId = None,
    separator: options.Separator = None,
    encoding: options.Encoding = None,
    decimal: options.Decimal = None,
    output: options.PredictionsFile = None,
    quiet: console.QuietOption = False,
    as_json: console.JsonOption = False,
) -> None:
    """Predict the class of each row, as CSV: row (or its --id), prediction, probabilities, outlier."""
    with console.guarded(as_json, quiet):
        if output is not None:
            console.check_output(output, model, data)
        from sureshot.cli.model import load_model, read_for_model
        from sureshot.cli.reading import Reading

        if join and as_json:
            raise ValueError("--join writes columns, and --json none: leave one of them out")
        how = Reading.of(separator, encoding, decimal, drop, row_id)
        classifier = load_model(model)
        with console.progress(f"reading {data}", quiet):
            table = read_for_model(classifier, data, target, how, with_labels=False)
            beside = _columns_beside(data, how, classifier, proba, outlier) if join else None
        with console.progress(f"predicting {len(table.row_ids)} rows", quiet) as update:
            pieces = _predictions(classifier, table, proba, outlier, update)
            if as_json:
                _write_json(classifier, pieces, output)
            else:
                first = "row" if row_id is None else row_id
                _write_csv(classifier, pieces, output, proba, outlier, first, beside)


def _columns_beside(data: Path, how: Reading, model: IncrementalClassifier, proba: bool, outlier: bool) -> pd.DataFrame:
    """The columns of the file, as they are written there."""
    from sureshot.data.image_tables import is_image_source
    from sureshot.data.root import DataError
    from sureshot.data.tables import cells_as_written

    if is_image_source(data):
        raise DataError(f"{data}: images have no columns to write beside predictions: leave out --join")
    cells = cells_as_written(data, how.text)
    if taken := [name for name in _added(model, proba, outlier) if name in cells]:
        raise DataError(f"{data} has a column {taken[0]!r} already: rename it, or leave out --join")
    return cells


def _added(model: IncrementalClassifier, proba: bool, outlier: bool) -> list[str]:
    """Names of the columns that are written for each row."""
    probabilities = [f"probability_{label}" for label in model.classes_.tolist()] if proba else []
    return ["prediction", *probabilities, *(["outlier"] if outlier else [])]


def _predictions(
    model: IncrementalClassifier, table: DataTable, proba: bool, outlier: bool, update: Any
) -> Iterator[tuple[list[Any], list[Any], np.ndarray | None, np.ndarray | None]]:
    """Row names, classes, probabilities (n, C) and outlier scores (n,) of a piece of the rows at a time."""
    n = len(table.row_ids)
    for start in range(0, n, CHUNK):
        X = table.X[start : start + CHUNK]
        p = model.predict_proba(X)
        yield (
            table.row_ids[start : start + CHUNK].tolist(),
            model.classes_[p.argmax(1)].tolist(),
            p if proba else None,
            model.outlier_score(X) if outlier else None,
        )
        update(f"predicting {n} rows", min(1.0, (start + CHUNK) / n))


def _write_csv(
    model: IncrementalClassifier,
    pieces: Any,
    output: Path | None,
    proba: bool,
    outlier: bool,
    first: str,  # the column of the rows' names
    beside: pd.DataFrame | None,  # columns in its place
) -> None:
    known = [first] if beside is None else list(beside.columns)
    with console.output_text(output) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([*known, *_added(model, proba, outlier)])
        written = None if beside is None else beside.itertuples(index=False, name=None)
        for rows, predicted, p, scores in pieces:
            for i, row in enumerate(rows):
                cells = [*([row] if written is None else next(written)), predicted[i]]
                if p is not None:
                    cells += [f"{value:.6g}" for value in p[i]]
                if scores is not None:
                    cells.append(f"{scores[i]:.6g}")
                writer.writerow(cells)


def _write_json(model: IncrementalClassifier, pieces: Any, output: Path | None) -> None:
    """One JSON document, a row on each line so that it can be written as it is computed."""
    import json

    labels = [str(label) for label in model.classes_.tolist()]
    with console.output_text(output) as stream:
        stream.write('{"classes": ' + json.dumps(console.plain(model.classes_)) + ', "rows": [')
        separator = "\n"
        for rows, predicted, p, scores in pieces:
            for i, row in enumerate(rows):
                item: dict[str, Any] = {"row": row, "prediction": predicted[i]}
                if p is not None:
                    item["probabilities"] = dict(zip(labels, p[i].tolist(), strict=True))
                if scores is not None:
                    item["outlier"] = float(scores[i])
                stream.write(separator + json.dumps(console.plain(item), allow_nan=False))
                separator = ",\n"
        stream.write("\n]}\n")

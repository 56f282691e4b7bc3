"""``sureshot predict``: a class for each row, with probabilities and outlier scores if wanted."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sureshot.cli import console, options

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from sureshot.cli.reading import Reading
    from sureshot.data import DataTable
    from sureshot.estimators.base import IncrementalClassifier, TopClasses

CHUNK = 4096  # rows held with all their probabilities at once; predictions do not depend on it


def predict(
    model: options.Model,
    data: options.Rows,
    proba: options.Probabilities = False,
    top: options.Top = None,
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
            wanted = Wanted.of(classifier, proba, top, outlier)
            beside = _columns_beside(data, how, wanted) if join else None
        with console.progress(f"predicting {len(table.row_ids)} rows", quiet) as update:
            pieces = _predictions(classifier, table, wanted, update)
            if as_json:
                _write_json(wanted, pieces, output)
            else:
                first = "row" if row_id is None else row_id
                _write_csv(wanted, pieces, output, first, beside)


@dataclass(frozen=True)
class Wanted:
    """What is written of each row beside its class."""

    labels: list[Any]  # of the model's classes
    proba: bool
    top: int | None  # at most as many as there are classes
    outlier: bool

    @classmethod
    def of(cls, model: IncrementalClassifier, proba: bool, top: int | None, outlier: bool) -> Wanted:
        """Of so many classes as the model has."""
        labels = model.classes_.tolist()
        return cls(labels, proba, None if top is None else min(top, len(labels)), outlier)

    @property
    def columns(self) -> list[str]:
        """Names of the columns of a row, its class first."""
        found = ["prediction"]
        if self.proba:
            found += [f"probability_{label}" for label in self.labels]
        for place in range(1, 1 + (self.top or 0)):
            found += [f"class_{place}", f"probability_of_class_{place}"]
        return [*found, "outlier"] if self.outlier else found


@dataclass(frozen=True)
class Piece:
    """Some rows, and what is written of them."""

    rows: list[Any]  # their names
    predicted: list[Any]
    p: np.ndarray | None  # (n, C)
    top: TopClasses | None
    outlier: np.ndarray | None  # (n,)


def _columns_beside(data: Path, how: Reading, wanted: Wanted) -> pd.DataFrame:
    """The columns of the file, as they are written there."""
    from sureshot.data.image_tables import is_image_source
    from sureshot.data.root import DataError
    from sureshot.data.tables import cells_as_written

    if is_image_source(data):
        raise DataError(f"{data}: images have no columns to write beside predictions: leave out --join")
    cells = cells_as_written(data, how.text)
    if taken := [name for name in wanted.columns if name in cells]:
        raise DataError(f"{data} has a column {taken[0]!r} already: rename it, or leave out --join")
    return cells


def _predictions(model: IncrementalClassifier, table: DataTable, wanted: Wanted, update: Any) -> Iterator[Piece]:
    """A piece of the rows at a time."""
    n = len(table.row_ids)
    for start in range(0, n, CHUNK):
        X = table.X[start : start + CHUNK]
        p = model.predict_proba(X)
        yield Piece(
            table.row_ids[start : start + CHUNK].tolist(),
            model.classes_[p.argmax(1)].tolist(),
            p if wanted.proba else None,
            None if wanted.top is None else model.predict_topk(X, wanted.top),
            model.outlier_score(X) if wanted.outlier else None,
        )
        update(f"predicting {n} rows", min(1.0, (start + CHUNK) / n))


def _write_csv(
    wanted: Wanted,
    pieces: Iterator[Piece],
    output: Path | None,
    first: str,  # the column of the rows' names
    beside: pd.DataFrame | None,  # columns in its place
) -> None:
    known = [first] if beside is None else list(beside.columns)
    with console.output_text(output) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([*known, *wanted.columns])
        written = None if beside is None else beside.itertuples(index=False, name=None)
        for piece in pieces:
            for i, row in enumerate(piece.rows):
                cells = [*([row] if written is None else next(written)), piece.predicted[i]]
                if piece.p is not None:
                    cells += [f"{value:.6g}" for value in piece.p[i]]
                if piece.top is not None:
                    for label, value in zip(piece.top.labels[i].tolist(), piece.top.probabilities[i], strict=True):
                        cells += [label, f"{value:.6g}"]
                if piece.outlier is not None:
                    cells.append(f"{piece.outlier[i]:.6g}")
                writer.writerow(cells)


def _write_json(wanted: Wanted, pieces: Iterator[Piece], output: Path | None) -> None:
    """One JSON document, a row on each line so that it can be written as it is computed."""
    import json

    labels = [str(label) for label in wanted.labels]
    with console.output_text(output) as stream:
        stream.write('{"classes": ' + json.dumps(console.plain(wanted.labels)) + ', "rows": [')
        separator = "\n"
        for piece in pieces:
            for i, row in enumerate(piece.rows):
                item: dict[str, Any] = {"row": row, "prediction": piece.predicted[i]}
                if piece.p is not None:
                    item["probabilities"] = dict(zip(labels, piece.p[i].tolist(), strict=True))
                if piece.top is not None:
                    pairs = zip(piece.top.labels[i].tolist(), piece.top.probabilities[i].tolist(), strict=True)
                    item["top"] = [{"class": label, "probability": value} for label, value in pairs]
                if piece.outlier is not None:
                    item["outlier"] = float(piece.outlier[i])
                stream.write(separator + json.dumps(console.plain(item), allow_nan=False))
                separator = ",\n"
        stream.write("\n]}\n")

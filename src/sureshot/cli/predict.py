"""``sureshot predict``: a class for each row or none of them, with probabilities, sets and outlier scores if wanted."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sureshot.cli import console, options

if TYPE_CHECKING:
    import numpy as np

    from sureshot.cli.reading import Beside
    from sureshot.data import DataTable
    from sureshot.estimators.base import IncrementalClassifier
    from sureshot.estimators.classes.answers import TopClasses

SEPARATOR = "|"  # of the labels of a set
CHUNK = 4096  # rows held with all their probabilities at once; predictions do not depend on it


def predict(
    model: options.Model,
    data: options.Rows,
    proba: options.Probabilities = False,
    top: options.Top = None,
    outlier: options.OutlierScore = False,
    reject: options.Reject = None,
    unknown: options.Unknown = None,
    coverage: options.Coverage = None,
    target: options.IgnoredTarget = None,
    join: options.Join = False,
    drop: options.Drop = None,
    row_id: options.RowId = None,
    separator: options.Separator = None,
    encoding: options.Encoding = None,
    decimal: options.Decimal = None,
    header: options.Header = None,
    missing: options.Missing = None,
    fold_case: options.FoldCase = False,
    sheet: options.Sheet = None,
    output: options.PredictionsFile = None,
    quiet: console.QuietOption = False,
    as_json: console.JsonOption = False,
) -> None:
    """Predict the class of each row, as CSV: row (or its --id), prediction, probabilities, outlier, p_value, set."""
    with console.guarded(as_json, quiet):
        output = console.text_output(output, as_json, model, data)
        _check_decisions(reject, unknown, coverage)
        if join and as_json:
            raise ValueError("--join writes columns, and --json none: leave one of them out")
        from sureshot.cli.reading import Reading

        how = Reading.of(separator, encoding, decimal, drop, row_id, None, header, missing, fold_case, sheet)
        from sureshot.cli.model_file import load_model

        classifier = load_model(model, data)
        from sureshot.cli.model import as_fitted, read_for_model
        from sureshot.cli.reading import Beside

        with console.progress(f"reading {data}", quiet):
            table = read_for_model(classifier, data, target, how, with_labels=False)
            wanted = Wanted.of(classifier, proba, top, outlier, reject, unknown, coverage)
            if coverage is not None and not as_json:
                _check_separable(wanted.labels)
            beside = Beside.of(data, as_fitted(classifier, how), wanted.columns) if join else None
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
    reject: float | None  # the share of false alarms
    unknown: str | int  # what rejected rows are called, a number if the classes are numbers and it is written as one
    coverage: float | None  # of sets

    @classmethod
    def of(
        cls,
        model: IncrementalClassifier,
        proba: bool,
        top: int | None,
        outlier: bool,
        reject: float | None,
        unknown: str | None,
        coverage: float | None,
    ) -> Wanted:
        """Of so many classes as the model has."""
        from sureshot.cli.model import as_known

        labels = model.classes_.tolist()
        top = None if top is None else min(top, len(labels))
        unknown = "unknown" if unknown is None else unknown
        if reject is not None and unknown in map(str, labels):
            raise ValueError(f"{unknown!r} is a class of the model: give rejected rows another name with --unknown")
        return cls(labels, proba, top, outlier, reject, as_known([unknown], model.classes_).tolist()[0], coverage)

    @property
    def columns(self) -> list[str]:
        """Names of the columns of a row, its class first."""
        found = ["prediction"]
        if self.proba:
            found += [f"probability_{label}" for label in self.labels]
        for place in range(1, 1 + (self.top or 0)):
            found += [f"class_{place}", f"probability_of_class_{place}"]
        last = {"outlier": self.outlier, "p_value": self.reject is not None, "set": self.coverage is not None}
        return found + [name for name, is_wanted in last.items() if is_wanted]


@dataclass(frozen=True)
class Piece:
    """Some rows, and what is written of them."""

    rows: list[Any]  # their names
    predicted: list[Any]
    p: np.ndarray | None  # (n, C)
    top: TopClasses | None
    outlier: np.ndarray | None  # (n,)
    p_value: np.ndarray | None  # (n,)
    sets: list[list[Any]] | None


def _check_decisions(reject: float | None, unknown: str | None, coverage: float | None) -> None:
    """Refuse rates that are none before anything is read."""
    for name, value in (("--reject", reject), ("--set", coverage)):
        if value is not None:
            from sureshot.estimators.classes.decisions import check_share

            check_share(name, value)
    if unknown is not None and reject is None:
        raise ValueError("--unknown names rows that --reject rejects: add --reject 0.05, or leave it out")


def _check_separable(labels: list[Any]) -> None:
    """Refuse sets of labels in one cell that could not be told apart there."""
    for label in labels:
        if SEPARATOR in str(label):
            raise ValueError(f"--set parts labels by {SEPARATOR}, which {label!r} has in it: use --json")


def _predictions(model: IncrementalClassifier, table: DataTable, wanted: Wanted, update: Any) -> Iterator[Piece]:
    """A piece of the rows at a time."""
    n = len(table.row_ids)
    for start in range(0, n, CHUNK):
        X = table.X[start : start + CHUNK]
        decided = None if wanted.reject is None else model.decide(X, wanted.reject, wanted.unknown)
        outlier = None
        if wanted.outlier:
            outlier = model.outlier_score(X) if decided is None else decided.outlier_scores
        yield Piece(
            table.row_ids[start : start + CHUNK].tolist(),
            (model.predict(X) if decided is None else decided.labels).tolist(),
            model.predict_proba(X) if wanted.proba else None,
            None if wanted.top is None else model.predict_topk(X, wanted.top),
            outlier,
            None if decided is None else decided.p_values,
            None if wanted.coverage is None else model.predict_set(X, wanted.coverage).tolist(),
        )
        update(f"predicting {n} rows", min(1.0, (start + CHUNK) / n))


def _begun(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """The same with the first computed: what is refused is refused before anything is written."""
    return itertools.chain(list(itertools.islice(pieces, 1)), pieces)


def _write_csv(
    wanted: Wanted,
    pieces: Iterator[Piece],
    output: Path | None,
    first: str,  # the column of the rows' names
    beside: Beside | None,  # columns in its place
) -> None:
    from sureshot.cli.reading import table_writer, written_number

    known = [first] if beside is None else list(beside.cells.columns)
    number = partial(written_number, beside=beside)
    pieces = _begun(pieces)
    with console.output_text(output) as stream:
        writer = table_writer(stream, beside, output)
        writer.writerow([*known, *wanted.columns])
        written = None if beside is None else beside.rows()
        for piece in pieces:
            for i, row in enumerate(piece.rows):
                cells = [*([row] if written is None else next(written)), piece.predicted[i]]
                if piece.p is not None:
                    cells += map(number, piece.p[i])
                if piece.top is not None:
                    for label, value in zip(piece.top.labels[i].tolist(), piece.top.probabilities[i], strict=True):
                        cells += [label, number(value)]
                if piece.outlier is not None:
                    cells.append(number(piece.outlier[i]))
                if piece.p_value is not None:
                    cells.append(number(piece.p_value[i]))
                if piece.sets is not None:
                    cells.append(SEPARATOR.join(map(str, piece.sets[i])))
                writer.writerow(cells)


def _write_json(wanted: Wanted, pieces: Iterator[Piece], output: Path | None) -> None:
    """One JSON document, a row on each line so that it can be written as it is computed."""
    import json

    labels = [str(label) for label in wanted.labels]
    pieces = _begun(pieces)
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
                if piece.p_value is not None:
                    item["p_value"] = float(piece.p_value[i])
                if piece.sets is not None:
                    item["set"] = piece.sets[i]
                stream.write(separator + json.dumps(console.plain(item), allow_nan=False))
                separator = ",\n"
        stream.write("\n]}\n")

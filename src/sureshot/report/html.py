"""A report as one HTML file that opens anywhere and asks for nothing.

Figures are inlined, there is no script, and a content security policy forbids the page any request. All
text passes through jinja2's autoescape: a class called ``<script>`` is shown as that. Names of classes
appear in HTML tables rather than in figures, so that every alphabet is shown.
"""

from __future__ import annotations

import math
import os
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import jinja2
import numpy as np
from numpy.typing import NDArray

from sureshot.metrics import (
    auroc_unknown,
    balanced_accuracy,
    class_scores,
    reliability_curve,
    selective_risk,
    summarise,
)
from sureshot.persistence import written_whole
from sureshot.report import plots
from sureshot.report.content import (
    Cell,
    Measured,
    Picture,
    Predictions,
    Report,
    Table,
    Tile,
    View,
    confidence_in_words,
    confusion_frame,
    digest,
    reliability_picture,
    worst_pairs,
)
from sureshot.rounding import ROUNDING, rounded

FILE_NAME = "report.html"
CONFUSION_NAME = "confusion.csv"
"""Beside the page: how many rows of each class were given each class, a row for each true one, unknown ones last."""

N_SHOWN = 12  # rows in each table of rows, and pairs among the confusions
_OBJECTIVE = "evidence lower bound (nats)"


class ShownCell(NamedTuple):
    """A cell of a table of results."""

    text: str
    best: bool
    number: bool  # of a column of numbers


def write_report(folder: str | os.PathLike[str], report: Report) -> Path:
    """Write ``report.html``, whole or not at all, into a folder, which is created if need be; returns its path.

    Of labelled rows ``confusion.csv`` is written beside it, the full confusion matrix; of others that of an earlier
    report is taken away.
    """
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise NotADirectoryError(f"folder: {target} is a file; name a folder for the report.")
    page = render(report)
    target.mkdir(parents=True, exist_ok=True)
    if report.predictions is not None and report.predictions.y is not None:
        with written_whole(target / CONFUSION_NAME) as temporary:
            confusion_frame(report.predictions).to_csv(temporary, index_label="true class", lineterminator="\n")
    with written_whole(target / FILE_NAME) as temporary:
        temporary.write_text(page, encoding="utf-8")
    if report.predictions is None or report.predictions.y is None:
        (target / CONFUSION_NAME).unlink(missing_ok=True)
    return target / FILE_NAME


def render(report: Report) -> str:
    """The page as text."""
    source = files("sureshot.report").joinpath(FILE_NAME).read_text(encoding="utf-8")
    engine = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    engine.filters["data_uri"] = plots.figure_to_data_uri
    engine.globals |= {"PIXELS_PER_INCH": plots.PIXELS_PER_INCH, "HALF": plots.HALF}
    predictions = report.predictions
    view = digest(predictions) if predictions is not None else None
    context: dict[str, object] = {
        "report": report,
        "summary": (report.summary, _shown_table(report.summary)) if report.summary is not None else None,
        "tables": [(table, _shown_table(table)) for table in report.tables],
        "model": [(name, _text(value)) for name, value in report.model.items()],
        "environment": [(name, _text(value)) for name, value in report.environment.items()],
        "verdict": report.verdict,
        "tiles": list(report.tiles),
        "classes": None,
        "confusion_name": CONFUSION_NAME,
        "pairs": None,
        "uncertain": None,
        "outlying": None,
    }
    pictures: list[Picture] = []
    if predictions is not None and view is not None:
        context["verdict"] = report.verdict or _verdict(view)
        context["tiles"] = [*report.tiles, *_tiles(view)]
        pictures += _prediction_pictures(view)
        context["uncertain"] = _rows(predictions, view, view.uncertainty)
        if view.outlier_score is not None:
            context["outlying"] = _rows(predictions, view, view.outlier_score)
        if view.labelled is not None:
            p, predicted, truth = view.labelled
            context["classes"] = _class_lines(p, truth, np.asarray(predictions.classes).tolist())
            pairs = worst_pairs(truth, predicted, predictions.classes)
            context["pairs"] = pairs[:N_SHOWN]
            context["more_pairs"] = max(len(pairs) - N_SHOWN, 0)
    values = np.asarray(report.trace, dtype=np.float64)
    if values.size:
        steps = "1 step" if values.size == 1 else f"{values.size} steps"
        span = f"From {values[0]:.6g} to {values[-1]:.6g} in {steps}"
        pictures.append(
            Picture(
                f"Trace: {_OBJECTIVE}",
                plots.objective_trace(values, _OBJECTIVE),
                f"{_OBJECTIVE}. {span}",
                f"{span}. A flat end means it has converged.",
            )
        )
    context["pictures"] = [*pictures, *report.pictures]
    return engine.from_string(source).render(context)


def _verdict(view: View) -> str:
    if view.labelled is None:
        what = "rows without labels" if view.truth is None else "rows, all of classes that the model does not know"
        return f"{len(view.confidence):,} {what}; mean confidence {view.confidence.mean():.1%}."
    p, predicted, truth = view.labelled
    right, sure = float((predicted == truth).mean()), float(view.confidence[view.known].mean())
    words = confidence_in_words(sure, right)
    balanced = f"{balanced_accuracy(p, truth):.1%} on average over the classes"
    return f"{right:.1%} of {len(truth):,} rows are right, {balanced}. The classifier says {words}"


def _tiles(view: View) -> list[Tile]:
    if view.labelled is None:
        return []
    p, _, truth = view.labelled
    scores = summarise(p, truth)
    tiles = [
        Tile("accuracy", f"{scores.accuracy:.3f}", "fraction right"),
        Tile("balanced accuracy", f"{balanced_accuracy(p, truth):.3f}", "mean recall of the classes"),
        Tile("NLL", f"{scores.nll:.3f}", "nats; lower is better"),
        Tile("Brier", f"{scores.brier:.3f}", "0 to 2; lower is better"),
        Tile("ECE", f"{scores.ece:.3f}", "gap between confidence and accuracy"),
    ]
    if view.outlier_scores is not None:
        value = auroc_unknown(*view.outlier_scores)
        tiles.append(Tile("unknown AUROC", f"{value:.3f}", "unknown rows told from known; 0.5 is chance"))
    return tiles


def _prediction_pictures(view: View) -> list[Picture]:
    if view.labelled is None:
        return [
            Picture(
                "Confidence histogram",
                plots.confidence_histogram(view.confidence),
                "Histogram of the largest probability of each row",
                "How sure the classifier is of each row.",
            )
        ]
    p, predicted, truth = view.labelled
    curve, risk = reliability_curve(p, truth), selective_risk(p, truth)
    pictures = [
        reliability_picture("Reliability diagram", curve),
        Picture(
            "Confidence histogram",
            plots.confidence_histogram(view.confidence[view.known], predicted == truth),
            "Histogram of the largest probability of each row, right and wrong answers apart",
            "Wrong answers should be rare at the right end. "
            "The two lines coincide when confidence is right on average.",
        ),
        Picture(
            "Answering only when sure",
            plots.risk_coverage(risk),
            f"Fraction wrong against the fraction answered, area {risk.area:.4f}",
            "Errors left if the least sure rows are handed to a person instead.",
        ),
    ]
    if view.outlier_scores is not None:
        pictures.append(
            Picture(
                "Known and unknown",
                plots.outlier_histogram(*view.outlier_scores),
                "Histogram of outlier scores of known and of unknown classes",
                "The less the two overlap, the better rows of unknown classes can be told.",
            )
        )
    return pictures


def _rows(predictions: Predictions, view: View, score: NDArray[np.float64]) -> list[dict[str, object]]:
    """The rows of largest score."""
    order = np.argsort(-score, kind="stable")[:N_SHOWN]
    classes = np.asarray(predictions.classes)
    names = np.arange(score.size) if predictions.row_names is None else np.asarray(predictions.row_names)
    images = None if predictions.images is None else np.asarray(predictions.images)
    top = None if images is None else float(images.max())
    rows: list[dict[str, object]] = []
    for i in order.tolist():
        p = view.probabilities[i]
        runner_up = int(np.argsort(-p, kind="stable")[1]) if p.size > 1 else None
        rows.append(
            {
                "name": str(names[i]),
                "image": None if images is None else plots.image_to_data_uri(images[i], top),
                "predicted": str(classes[view.predicted[i]]),
                "probability": f"{view.confidence[i]:.3f}",
                "second": None if runner_up is None else str(classes[runner_up]),
                "second_probability": "" if runner_up is None else f"{p[runner_up]:.3f}",
                "true": None if predictions.y is None else str(np.asarray(predictions.y)[i]),
                "known": bool(view.known[i]),
                "right": None if view.truth is None else bool(view.truth[i] == view.predicted[i]),
                "uncertainty": f"{view.uncertainty[i]:.3f}",
                "outlier_score": None if view.outlier_score is None else f"{view.outlier_score[i]:.3f}",
            }
        )
    return rows


def _class_lines(p: NDArray[np.float64], truth: NDArray[np.int64], classes: list[object]) -> list[dict[str, object]]:
    """Counts, precision and recall of each class; a dash where there is no row to take a share of."""
    found = class_scores(p, truth)
    return [
        {
            "name": str(name),
            "rows": int(found.rows[c]),
            "predicted": int(found.predicted[c]),
            "precision": _text(None if np.isnan(found.precision[c]) else float(found.precision[c])),
            "recall": _text(None if np.isnan(found.recall[c]) else float(found.recall[c])),
        }
        for c, name in enumerate(classes)
    ]


def _shown_table(table: Table) -> list[list[ShownCell]]:
    best: list[float | None] = [None] * len(table.columns)
    for column, better in enumerate(table.better):
        values = [v for row in table.rows if (v := _number(row[column])) is not None]
        if better is not None and len(values) > 1:
            best[column] = max(values) if better == "higher" else min(values)
    numeric = [any(_number(row[c]) is not None for row in table.rows) for c in range(len(table.columns))]
    return [
        [
            ShownCell(_text(cell), best[c] is not None and _number(cell) == best[c], numeric[c])
            for c, cell in enumerate(row)
        ]
        for row in table.rows
    ]


def _number(cell: Cell) -> float | None:
    value = cell.mean if isinstance(cell, Measured) else cell
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        return None
    return float(value)


def _text(cell: object) -> str:
    """Numbers with three decimals (or four digits, if large), None as a dash."""
    if cell is None:
        return "–"
    if isinstance(cell, Measured):
        return rounded(cell.mean, 3, cell.error)
    if isinstance(cell, float) and not isinstance(cell, bool):
        value = 0.0 if abs(cell) < ROUNDING else cell  # a sum that is zero
        return f"{value:.3f}" if 1e-3 <= abs(value) < 1000 or value == 0 else f"{value:.4g}"
    return str(cell)

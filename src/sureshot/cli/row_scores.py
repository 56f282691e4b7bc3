"""Scores of labelled rows by a model: of all, and of each class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sureshot.cli import console

if TYPE_CHECKING:
    import numpy as np

    from sureshot.data import DataTable
    from sureshot.estimators.base import IncrementalClassifier


def summarise_rows(
    model: IncrementalClassifier, table: DataTable, probabilities: np.ndarray, outlier: np.ndarray | None
) -> dict[str, Any]:
    """Scores of the rows of known classes, and how well the outlier score tells the others from them."""
    import numpy as np

    from sureshot.metrics import auroc_unknown, balanced_accuracy, summarise

    assert table.y is not None
    known = np.isin(table.y, model.classes_)
    summary: dict[str, Any] = {"rows": len(known), "unknown_rows": int((~known).sum())}
    if not known.all():
        names = sorted({str(label) for label in table.y[~known].tolist()})
        from sureshot.data.checks import listed

        console.note(
            f"{summary['unknown_rows']} rows are of classes unknown to the model ({listed(names)}): they "
            "count for the unknown AUROC only"
        )
    if known.any():
        rows = probabilities[known], table.y[known]
        scores = summarise(*rows, classes=model.classes_)
        summary["accuracy"] = scores.accuracy
        summary["balanced_accuracy"] = balanced_accuracy(*rows, classes=model.classes_)
        summary |= {"nll": scores.nll, "brier": scores.brier, "ece": scores.ece}
    if known.any() and not known.all() and outlier is not None:
        summary["unknown_auroc"] = auroc_unknown(outlier[known], outlier[~known])
    if known.any():
        summary["classes"] = scores_of_classes(*rows, model.classes_)
    return summary


def scores_of_classes(probabilities: np.ndarray, y: np.ndarray, classes: np.ndarray) -> list[dict[str, Any]]:
    """Of each class its rows, how many rows are taken for it, precision and recall."""
    from sureshot.metrics import class_scores

    found = class_scores(probabilities, y, classes=classes)
    parts = (classes.tolist(), found.rows, found.predicted, found.precision, found.recall)
    names = ("class", "rows", "predicted", "precision", "recall")
    return [dict(zip(names, of_class, strict=True)) for of_class in zip(*parts, strict=True)]

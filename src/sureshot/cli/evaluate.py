"""``sureshot evaluate``: how right, and how rightly sure, a saved model is on labelled rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sureshot.cli import console, options

if TYPE_CHECKING:
    import numpy as np

    from sureshot.data import DataTable
    from sureshot.estimators.classes.classifier_base import IncrementalClassifier


def evaluate(
    model: options.Model,
    data: options.LabelledData,
    *,
    target: options.Target = None,
    report: options.ReportFolder = None,
    files: options.Files,
    quiet: console.QuietOption = False,
    as_json: console.JsonOption = False,
) -> None:
    """Accuracy, overall and class by class, NLL, Brier, calibration and unknown detection on labelled rows.

    Rows whose label the model has not met count as unknown: the outlier score should set them apart (AUROC),
    and they are left out of all other numbers.
    """
    with console.guarded(as_json, quiet):
        console.check_folder(report)
        from sureshot.cli.model_file import load_model

        classifier, how = load_model(model, data, files)
        import numpy as np

        from sureshot.cli.model import read_for_model
        from sureshot.data.checks import listed

        with console.progress(f"reading {data}", quiet):
            table = read_for_model(classifier, data, target, how, with_labels=True)
        assert table.y is not None
        known = np.isin(table.y, classifier.classes_)
        if not known.any():
            console.note(
                f"{data}: no row has a label that {model} knows: labels are {listed(sorted(set(table.y.tolist())))}, "
                f"classes are {listed(classifier.classes_.tolist())}. Is --target the column of classes?"
            )
        asked = report is not None or not known.all()
        with console.progress(f"evaluating {len(table.row_ids)} rows", quiet):
            probabilities = classifier.predict_proba(table.X)
            outlier = classifier.outlier_score(table.X) if asked else None
        summary = summarise_rows(classifier, table, probabilities, outlier)
        if report is not None:
            from sureshot.cli.reporting import write_evaluation

            title = f"{model.name} on {data.resolve().name}"
            page = write_evaluation(classifier, table, probabilities, outlier, summary, report, title)
            summary["report"] = str(page)
        console.tell(summary, _print, as_json)


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


def _print(summary: dict[str, Any]) -> None:
    shown = [(_NAMES.get(k, k), v) for k, v in summary.items() if v is not None and k != "classes"]
    console.print_table(("evaluated", ""), shown)
    print_classes(summary.get("classes", []))


_NAMES = {
    "unknown_rows": "rows of unknown classes",
    "balanced_accuracy": "balanced accuracy",
    "nll": "NLL (nats)",
    "brier": "Brier",
    "ece": "ECE",
    "unknown_auroc": "unknown AUROC",
}
_MOST_CLASSES = 12


def print_classes(classes: list[dict[str, Any]]) -> None:
    """Classes with their counts, precision and recall; of many those that are found least."""
    if not classes:
        return
    found = [of_class for of_class in classes if of_class["rows"]]
    if len(classes) > _MOST_CLASSES:
        classes = sorted(found, key=lambda of_class: of_class["recall"])[:_MOST_CLASSES]
        console.note(f"the {len(classes)} classes of lowest recall are shown; --json and --report have all")
    columns = ("rows", "predicted", "precision", "recall")
    rows = [(str(of_class["class"]), *(console.plain(of_class[name]) for name in columns)) for of_class in classes]
    console.print_table(("class", *columns), rows)

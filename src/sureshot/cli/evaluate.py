"""``sureshot evaluate``: how right, and how rightly sure, a saved model is on labelled rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sureshot.cli import console, options

if TYPE_CHECKING:
    import numpy as np

    from sureshot.data import DataTable
    from sureshot.estimators.base import IncrementalClassifier


def evaluate(
    model: options.Model,
    data: options.LabelledData,
    target: options.Target = None,
    report: options.ReportFolder = None,
    drop: options.Drop = None,
    row_id: options.RowId = None,
    separator: options.Separator = None,
    encoding: options.Encoding = None,
    decimal: options.Decimal = None,
    quiet: console.QuietOption = False,
    as_json: console.JsonOption = False,
) -> None:
    """Accuracy, NLL, Brier, calibration and unknown detection on labelled rows.

    Rows whose label the model has not met count as unknown: the outlier score should set them apart (AUROC),
    and they are left out of all other numbers.
    """
    with console.guarded(as_json, quiet):
        console.check_folder(report)
        from sureshot.cli.model import load_model, read_for_model
        from sureshot.cli.reading import Reading

        classifier = load_model(model)
        how = Reading.of(separator, encoding, decimal, drop, row_id)
        with console.progress(f"reading {data}", quiet):
            table = read_for_model(classifier, data, target, how, with_labels=True)
        with console.progress(f"evaluating {len(table.row_ids)} rows", quiet):
            probabilities = classifier.predict_proba(table.X)
            outlier = classifier.outlier_score(table.X)
        summary = summarise_rows(classifier, table, probabilities, outlier)
        if report is not None:
            from sureshot.cli.reporting import write_evaluation

            title = f"{model.name} on {data.resolve().name}"
            page = write_evaluation(classifier, table, probabilities, outlier, summary, report, title)
            summary["report"] = str(page)
        if as_json:
            console.print_json(summary)
        else:
            console.print_table(("evaluated", ""), [(_NAMES.get(k, k), v) for k, v in summary.items() if v is not None])


_NAMES = {
    "rows": "rows",
    "unknown_rows": "rows of unknown classes",
    "accuracy": "accuracy",
    "nll": "NLL (nats)",
    "brier": "Brier",
    "ece": "ECE",
    "mce": "MCE",
    "unknown_auroc": "unknown AUROC",
}


def summarise_rows(
    model: IncrementalClassifier, table: DataTable, probabilities: np.ndarray, outlier: np.ndarray
) -> dict[str, Any]:
    """Scores of the rows of known classes, and how well the outlier score tells the others from them."""
    import numpy as np

    from sureshot.metrics import auroc_unknown, summarise

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
        scores = summarise(probabilities[known], table.y[known], classes=model.classes_)
        summary.update({name: value for name, value in scores.as_dict().items() if name != "n"})
    if known.any() and not known.all():
        summary["unknown_auroc"] = auroc_unknown(outlier[known], outlier[~known])
    return summary

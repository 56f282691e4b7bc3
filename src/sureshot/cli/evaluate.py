"""``sureshot evaluate``: how right, and how rightly sure, a saved model is on labelled rows."""

from __future__ import annotations

from sureshot.cli import console, options


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
    and they are left out of all other numbers. Of numbers: errors, log density, ranked probability score and how many
    are inside intervals, beside those of one mean for all.
    """
    with console.guarded(as_json, quiet):
        console.check_folder(report)
        from sureshot.cli.model_file import load_model

        fitted, how = load_model(model, data, files)
        from sureshot.cli.model import read_for_model
        from sureshot.cli.tasks import task_of

        with console.progress(f"reading {data}", quiet):
            table = read_for_model(fitted, data, target, how, with_labels=True)
        task = task_of(fitted)
        summary = task.evaluated(fitted, model, data, table, report, quiet)
        console.tell(summary, task.print_evaluated, as_json)

"""``sureshot meta-evaluate``: how good a meta-trained learner is on tasks of new classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sureshot.cli import console, options
from sureshot.cli.few_shot import EvaluationOptions, LoadedLearner
from sureshot.cli.functions import score_numbers

if TYPE_CHECKING:
    from sureshot.meta.evaluation import Evaluation


def meta_evaluate(
    checkpoint: options.Checkpoint,
    *,
    asked: EvaluationOptions,
    report: options.ReportFolder = None,
    quiet: console.QuietOption = False,
    as_json: console.JsonOption = False,
) -> None:
    """Accuracy, calibration, out-of-episode detection, robustness and time of a few-shot learner.

    Of a learner of numbers: log density, RMSE, CRPS and coverage by size of the context.

    Tasks are drawn from classes that training never saw. Probabilities are scored as they are and, on test classes,
    after one temperature fitted on tasks of the validation classes.
    """
    with console.guarded(as_json, quiet):
        console.check_folder(report)
        asked.check()
        from sureshot.meta.training.checkpoint import load_checkpoint

        read = load_checkpoint(checkpoint)
        if read.answers_with_numbers:
            return score_numbers("meta-evaluate", {read.name: read}, asked, None, report, quiet, as_json)
        loaded = LoadedLearner.of(read)
        asked.protocol([loaded])
        from sureshot.meta.evaluation import evaluate

        data, arguments = asked.prepare([loaded])
        with console.progress("meta-evaluate", quiet) as update:
            found = evaluate(loaded.learner, **arguments, progress=update)
        summary: dict[str, Any] = {
            "checkpoint": loaded.checkpoint.path,
            "learner": read.name,
            "data": data.name,
            "split": asked.split,
            **found.as_dict(),
        }
        if report is not None:
            from sureshot.cli.few_shot_report import write_evaluation_page

            with console.told_anyway(lambda: _print(found, summary), as_json):
                summary["report"] = str(write_evaluation_page(found, loaded, data.description, asked.split, report))
        console.tell(summary, lambda summary: _print(found, summary), as_json)


def _print(found: Evaluation, summary: dict[str, Any]) -> None:
    from sureshot.cli.comparison_tables import SCORES, with_error

    accuracy = found.accuracy
    right = with_error(accuracy)
    if found.n_tasks > 1:
        right += "  95 % {:.4f} to {:.4f}".format(*accuracy.interval)
    rows: list[tuple[str, str]] = [
        ("learner", summary["learner"]),
        ("tasks", f"{found.n_tasks} of {_described(found)}"),
        ("accuracy", right),
    ]
    if (n_batches := len(accuracy.batch_means)) > 1:
        rows.append(("deviation of batches", f"{accuracy.batch_deviation:.4f}  ({n_batches} batches of episodes)"))
    for name, calibration in found.calibration.items():
        suffix = "" if name == "none" else f" (temperature {calibration.temperature:.3f})"
        for score, label in (("nll", "NLL (nats)"), *SCORES[1:]):
            rows.append((label + suffix, with_error(getattr(calibration, score))))
    if found.out_of_episode is not None:
        for score, detection in found.out_of_episode.scores.items():
            text = f"{with_error(detection.per_episode)}  pooled {detection.pooled:.4f}"
            rows.append((f"out-of-episode AUROC, {score.replace('_', ' ')}", text))
    if found.robustness is not None:
        for corrupted in found.robustness.scores:
            text = f"accuracy {with_error(corrupted.accuracy)}  Brier {corrupted.brier.mean:.4f}"
            rows.append((f"{corrupted.kind.replace('_', ' ')}, severity {corrupted.severity}", text))
    if found.time is not None:
        time = found.time
        text = f"{1000 * time.single:.3g} ms alone, {1000 * time.batched:.3g} ms in batches of {time.batch_size}"
        rows.append(("adaptation and prediction", text))
    if "report" in summary:
        rows.append(("report", summary["report"]))
    console.print_table(("evaluated", ""), rows)


def _described(found: Evaluation) -> str:
    protocol = found.protocol
    return f"{protocol.way} classes, {protocol.shots} shots, {protocol.queries} queries of each class"

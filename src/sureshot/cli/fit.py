"""``sureshot fit``: learn a classifier from a file of labelled rows and save it."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sureshot.cli import console, options
from sureshot.data.file_kinds import check_source

if TYPE_CHECKING:
    from sureshot.cli.reading import Reading
    from sureshot.data import DataTable
    from sureshot.estimators.classes.classifier_base import IncrementalClassifier


_NAMES = {
    "kernel": options.KERNELS,
    "likelihood": options.LIKELIHOODS,
    "inference": options.INFERENCES,
    "objective": options.OBJECTIVES,
    "standardize": options.STANDARDIZE,
}
"""What settings of the default classifier may be called."""


def fit(
    data: options.LabelledData,
    *,
    output: options.ModelFile,
    target: options.Target = None,
    asked: options.Classifier,
    files: options.Files,
    kind: options.Kind = None,
    report: options.ReportFolder = None,
    quiet: console.QuietOption = False,
    as_json: console.JsonOption = False,
) -> None:
    """Learn from labelled rows and save the model."""
    with console.guarded(as_json, quiet):
        console.check_model_output(output, data)
        console.check_folder(report)
        _check_alone(asked, kind)
        from sureshot.cli.reading import Reading

        how = Reading.of(files, kind)
        asked = replace(asked, standardize=asked.standardize.lower())
        _check_names(asked)
        check_source(data)
        if asked.checkpoint is not None:
            from sureshot.meta.training.checkpoint import load_checkpoint

            load_checkpoint(asked.checkpoint)  # what is wrong with it comes before what it needs
        from sureshot.cli.model import taught_ids
        from sureshot.cli.reading import naming, remark, remark_on_columns

        with console.progress(f"reading {data}", quiet):
            table = read_labelled(data, target, asked.checkpoint, how)
        remark(data, table)
        assert table.y is not None
        from sureshot.cli.reporting import facts

        model = _unfitted(asked, how)
        start = time.perf_counter()
        with console.progress(f"fitting {len(table.y)} rows", quiet), naming(data):
            model.fit(table.X, table.y, row_id=taught_ids(model, table, how))
        seconds = time.perf_counter() - start
        remark_on_columns(data, model)
        model.save(output)
        summary: dict[str, Any] = {
            "model": str(output),
            "model_bytes": output.stat().st_size,
            "rows": len(table.y),
            "features": int(model.n_features_in_),
            "classes": model.classes_.tolist(),
            "settings": facts(model),
            "log_evidence": float(model.log_evidence_),
            "leave_one_out": _left_out(model),
            "seconds": seconds,
        }
        if report is not None:
            from sureshot.cli.reporting import cross_validated_report

            with console.progress("fitting again for the report", quiet):
                title = f"Classifier of {data.resolve().name}"
                page, summary["cross_validated"] = cross_validated_report(model, table, report, title)
            summary["report"] = str(page)
        console.tell(summary, _print, as_json)


def read_labelled(
    path: Path, target: str | None, checkpoint: Path | None, how: Reading, group: str | None = None
) -> DataTable:
    """Rows and labels of a file, or images and their folders' names, for learning; groups of rows with columns only."""
    from sureshot.data import DataError
    from sureshot.data.checks import listed
    from sureshot.data.file_kinds import is_image_source

    names = how.check(path, target)
    if is_image_source(path):
        console.check_no_target(path, target)
        return _read_images(path, checkpoint)
    if names is not None and target is None:
        raise DataError(f"{path}: name the column of labels with --target; columns: {listed(names)}")
    table = how.load(path, target, names, mixed=checkpoint is None, group=None if names is None else group)
    if table.y is None:
        raise DataError(f"{path} has no array y or label: name the array of labels with --target")
    return table


def _read_images(path: Path, checkpoint: Path | None) -> DataTable:
    from sureshot.data import DataError
    from sureshot.data.image_tables import find_images, load_image_table
    from sureshot.meta.training.checkpoint import load_checkpoint
    from sureshot.networks.backbones import Backbone

    if checkpoint is None:
        find_images(path, with_labels=True)  # what is wrong with it comes before what it needs
        raise DataError(
            f"{path}: images need a learner that was meta-trained on images (--checkpoint RUN); without one, name a "
            "CSV, Parquet or NPZ file"
        )
    found = load_checkpoint(checkpoint)
    backbone = found.build().backbone
    assert isinstance(backbone, Backbone)
    table = load_image_table(path, backbone.input_shape, with_labels=True)
    trained_on = found.config.get("data", {}).get("name", "folder")
    if trained_on != "folder":
        size = " x ".join(map(str, backbone.input_shape[1:]))
        console.note(
            f"images are resized to {size}, neither cropped nor inverted; the learner was trained on {trained_on}, so "
            "they should look alike"
        )
    return table


def _check_alone(asked: options.Classifier, kind: list[str] | None) -> None:
    """Refuse settings that have no meaning beside an option that says which classifier it is."""
    if asked.checkpoint is None and asked.strategy is None:
        return
    chosen = [name for name in _NAMES if getattr(asked, name) != "auto"] + ["ensemble"] * (not asked.ensemble)
    chosen += [name for name in ("time", "window") if getattr(asked, name) is not None]
    option, why = "--strategy", "it is for the default classifier"
    if asked.checkpoint is not None:
        option, why = "--checkpoint", "the learner was trained with its own"
        chosen += ["strategy"] * (asked.strategy is not None) + ["kind"] * bool(kind)
    if chosen:
        raise ValueError(f"--{chosen[0]} and {option} exclude each other: {why}")


def _check_names(asked: options.Classifier) -> None:
    """Refuse names of nothing that there is."""
    for name, known in _NAMES.items():
        elsewhere = {"precomputed": "needs matrices and works in Python only"} if name == "kernel" else {}
        options.check_name(f"--{name}", getattr(asked, name), known, **elsewhere)
    if asked.strategy is not None:
        options.check_name("--strategy", asked.strategy, options.STRATEGIES)


def _unfitted(asked: options.Classifier, how: Reading) -> IncrementalClassifier:
    """The classifier that is asked for."""
    kinds = dict(how.kinds) or "auto"
    if asked.checkpoint is not None:
        from sureshot.estimators.few_shot.classifier import FewShotClassifier

        return FewShotClassifier(asked.checkpoint, random_state=asked.seed)
    if asked.strategy is not None:
        from sureshot.estimators.tree.classifier import TreeGPClassifier

        return TreeGPClassifier(asked.strategy, random_state=asked.seed, columns=kinds)
    from sureshot.estimators.gp.classifier import GPClassifier

    return GPClassifier(
        kernel=asked.kernel,
        likelihood=asked.likelihood,
        inference=asked.inference,
        objective=None if asked.objective == "none" else asked.objective,
        standardize="auto" if asked.standardize == "auto" else asked.standardize == "true",
        ensemble=asked.ensemble,
        random_state=asked.seed,
        columns=kinds,
        time=asked.time,
        window=asked.window,
    )


def _left_out(model: IncrementalClassifier) -> dict[str, float | None]:
    """Accuracy and NLL of rows by the posterior of all others, where the fit has them."""
    nll = getattr(model, "leave_one_out_nll_", None)
    if nll is None:  # where columns have length-scales of their own, only the score by which they were chosen is left
        score = getattr(model, "leave_one_out_score_", math.nan)
        nll = None if math.isnan(score) else -score
    accuracies = {name: getattr(model, f"leave_one_out_{name}_", None) for name in ("accuracy", "balanced_accuracy")}
    return {**accuracies, "nll": nll}


def _print(summary: dict[str, Any]) -> None:
    from sureshot.cli.evaluate import print_classes
    from sureshot.computing.memory import in_bytes

    rows: list[tuple[str, object]] = [
        ("rows", summary["rows"]),
        ("features", summary["features"]),
        ("classes", len(summary["classes"])),
        *((name, value) for name, value in summary["settings"].items() if name not in ("classes", "features")),
    ]
    for key, words in (("leave_one_out", "leave-one-out"), ("cross_validated", "cross-validated")):
        scores = summary.get(key, {})
        if scores.get("nll") is not None and scores["accuracy"] is None:
            rows.append((f"{words} accuracy", "not known, as columns were weighed by all rows: --report has it"))
        for name, value in scores.items():
            if value is not None and name != "classes":
                rows.append((f"{words} {'NLL (nats)' if name == 'nll' else name.replace('_', ' ')}", value))
    rows += [
        ("seconds", f"{summary['seconds']:.2f}"),
        ("model", f"{summary['model']} ({in_bytes(summary['model_bytes'])})"),
    ]
    if "report" in summary:
        rows.append(("report", summary["report"]))
    console.print_table(("fitted", ""), rows)
    print_classes(summary.get("cross_validated", {}).get("classes", []))

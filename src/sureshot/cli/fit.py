"""``sureshot fit``: learn a classifier from a file of labelled rows and save it."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sureshot.cli import console, options
from sureshot.data.file_kinds import check_source

if TYPE_CHECKING:
    from sureshot.cli.reading import Reading
    from sureshot.data import DataTable
    from sureshot.estimators.base import IncrementalClassifier


def fit(
    data: options.LabelledData,
    output: options.ModelFile,
    target: options.Target = None,
    kernel: options.Kernel = "auto",
    likelihood: options.Likelihood = "auto",
    inference: options.Inference = "auto",
    objective: options.Objective = "auto",
    standardize: options.Standardize = "auto",
    ensemble: options.Ensemble = True,
    checkpoint: options.Run = None,
    strategy: options.Strategy = None,
    seed: options.FitSeed = None,
    drop: options.Drop = None,
    row_id: options.RowId = None,
    separator: options.Separator = None,
    encoding: options.Encoding = None,
    decimal: options.Decimal = None,
    header: options.Header = None,
    missing: options.Missing = None,
    fold_case: options.FoldCase = False,
    sheet: options.Sheet = None,
    kind: options.Kind = None,
    report: options.ReportFolder = None,
    quiet: console.QuietOption = False,
    as_json: console.JsonOption = False,
) -> None:
    """Learn from labelled rows and save the model."""
    with console.guarded(as_json, quiet):
        console.check_model_output(output, data)
        console.check_folder(report)
        if checkpoint is not None or strategy is not None:
            _check_alone(
                "--checkpoint" if checkpoint is not None else "--strategy",
                kernel=kernel,
                likelihood=likelihood,
                inference=inference,
                objective=objective,
                standardize=standardize,
                ensemble="auto" if ensemble else "false",
                strategy="auto" if checkpoint is None or strategy is None else strategy,
                kind="auto" if checkpoint is None or not kind else kind[0],
            )
        from sureshot.cli.reading import Reading

        how = Reading.of(separator, encoding, decimal, drop, row_id, kind, header, missing, fold_case, sheet)
        standardize = standardize.lower()
        options.check_name("--kernel", kernel, options.KERNELS, precomputed="needs matrices and works in Python only")
        options.check_name("--likelihood", likelihood, options.LIKELIHOODS)
        options.check_name("--inference", inference, options.INFERENCES)
        options.check_name("--objective", objective, options.OBJECTIVES)
        options.check_name("--standardize", standardize, options.STANDARDIZE)
        if strategy is not None:
            options.check_name("--strategy", strategy, options.STRATEGIES)
        check_source(data)
        if checkpoint is not None:
            from sureshot.meta.training.checkpoint import load_checkpoint

            load_checkpoint(checkpoint)  # what is wrong with it comes before what it needs
        from sureshot.cli.model import taught_ids
        from sureshot.cli.reading import naming, remark, remark_on_columns

        with console.progress(f"reading {data}", quiet):
            table = read_labelled(data, target, checkpoint, how)
        remark(data, table)
        assert table.y is not None
        from sureshot.cli.reporting import facts

        kinds = dict(how.kinds) or "auto"
        model: IncrementalClassifier
        if checkpoint is not None:
            from sureshot.estimators.few_shot.classifier import FewShotClassifier

            model = FewShotClassifier(checkpoint, seed)
        elif strategy is not None:
            from sureshot.estimators.tree.classifier import TreeGPClassifier

            model = TreeGPClassifier(strategy, random_state=seed, columns=kinds)
        else:
            from sureshot.estimators.gp.classifier import GPClassifier

            model = GPClassifier(
                kernel=kernel,
                likelihood=likelihood,
                inference=inference,
                objective=None if objective == "none" else objective,
                standardize="auto" if standardize == "auto" else standardize == "true",
                ensemble=ensemble,
                random_state=seed,
                columns=kinds,
            )
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
        if as_json:
            console.print_json(summary)
        else:
            _print(summary)


def read_labelled(
    path: Path, target: str | None, checkpoint: Path | None, how: Reading, group: str | None = None
) -> DataTable:
    """Rows and labels of a file, or images and their folders' names, for learning; groups of rows with columns only."""
    from sureshot.data import DataError
    from sureshot.data.checks import listed
    from sureshot.data.image_tables import is_image_source

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


def _check_alone(option: str, **settings: str) -> None:
    """Refuse settings that have no meaning beside an option that says which classifier it is."""
    chosen = [name for name, value in settings.items() if value != "auto"]
    if chosen:
        why = "the learner was trained with its own" if option == "--checkpoint" else "it is for the default classifier"
        raise ValueError(f"--{chosen[0]} and {option} exclude each other: {why}")


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

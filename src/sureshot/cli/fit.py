"""``sureshot fit``: learn a classifier, or a regressor of numbers, from a file of labelled rows and save it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sureshot.cli import console, options
from sureshot.cli.tasks import asked_task, task_of, task_of_learner
from sureshot.data.file_kinds import check_source
from sureshot.data.root import DataError, WrongTask

if TYPE_CHECKING:
    from sureshot.cli.reading import Reading
    from sureshot.data import DataTable
    from sureshot.meta.training.checkpoint import Checkpoint


_NAMES = {
    "kernel": options.KERNELS,
    "likelihood": options.LIKELIHOODS,
    "inference": options.INFERENCES,
    "objective": options.OBJECTIVES,
    "standardize": options.STANDARDIZE,
    "task": options.TASKS,
}
"""What settings of the default models may be called."""


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
    """Learn from labelled rows and save the model: of classes, or of numbers (--task), as the target has them."""
    with console.guarded(as_json, quiet):
        console.check_model_output(output, data)
        console.check_folder(report)
        _check_alone(asked, kind)
        from sureshot.cli.reading import Reading

        how = Reading.of(files, kind)
        asked = replace(asked, standardize=asked.standardize.lower())
        _check_names(asked)
        wanted = asked_task(asked)
        check_source(data)
        learner = None
        if asked.checkpoint is not None:
            from sureshot.meta.training.checkpoint import load_checkpoint

            learner = load_checkpoint(asked.checkpoint)  # what is wrong with it comes before what it needs
            wanted = task_of_learner(learner, wanted)
        from sureshot.cli.model import taught_ids
        from sureshot.cli.reading import naming, remark, remark_on_columns, remark_on_task

        with console.progress(f"reading {data}", quiet):
            try:
                table = read_labelled(data, target, learner, how, task=wanted)
            except WrongTask as error:
                if learner is None:
                    raise
                other = "classes" if learner.answers_with_numbers else "numbers"
                advice = f"correct the column, or name a learner of {other} (--checkpoint)"
                raise WrongTask(f"{error.found}, and {learner.described}", advice) from None
        if wanted == "auto":
            remark_on_task(data, table)
        remark(data, table)
        assert table.y is not None
        task = task_of(numbers=table.numbers)
        model = task.unfitted(asked, how)
        start = time.perf_counter()
        with console.progress(f"fitting {len(table.y)} rows", quiet), naming(data):
            model.fit(table.X, table.y, row_id=taught_ids(model, table, how))
        seconds = time.perf_counter() - start
        remark_on_columns(data, model)
        if learner is not None and table.numbers and "units" not in learner.artifact.header:
            console.note("rows and numbers are taken in the units of the functions that the learner was trained on")
        model.save(output)
        summary: dict[str, Any] = {
            "model": str(output),
            "model_bytes": output.stat().st_size,
            "task": "numbers" if table.numbers else "classes",
            "rows": len(table.y),
            "features": int(model.n_features_in_),
            **task.learnt(model),
            "seconds": seconds,
        }
        if report is not None:
            with console.progress("fitting again for the report", quiet):
                write = task.reporting().cross_validated_report
                page, summary["cross_validated"] = write(model, table, report, data.resolve().name)
            summary["report"] = str(page)
        console.tell(summary, _print, as_json)


def read_labelled(
    path: Path,
    target: str | None,
    learner: Checkpoint | None,  # the rows are for
    how: Reading,
    group: str | None = None,
    task: str = "classes",
) -> DataTable:
    """Rows and targets of a file, or images and their folders' names, to learn; groups of rows with columns only."""
    from sureshot.data.cells import IGNORE
    from sureshot.data.checks import listed
    from sureshot.data.file_kinds import is_image_source

    names = how.check(path, target)
    if is_image_source(path):
        console.check_no_target(path, target)
        return _read_images(path, learner)
    if names is not None and target is None:
        raise DataError(f"{path}: name the column of labels with --target; columns: {listed(names)}")
    group = None if names is None else group
    features, encoder = (None, None) if learner is None else (learner.columns, learner.encoder)
    reading: dict[str, Any] = {"mixed": learner is None or encoder is not None, "group": group, "task": task}
    if features is not None and encoder is not None and names is not None:
        features = [name for name in features if name in names or encoder.kinds[name] != IGNORE]
        reading |= {"as_text": encoder.as_written, "written": encoder.written}
    taken = [] if features is None or target is None else [target]  # no input, whatever it is called
    table = how.load(path, target, names, taken, features=features, **reading)
    if table.y is None:
        raise DataError(f"{path} has no array y or label: name the array of labels with --target")
    return table


def _read_images(path: Path, learner: Checkpoint | None) -> DataTable:
    from sureshot.data.image_tables import find_images, load_image_table
    from sureshot.networks.backbones import Backbone

    if learner is None:
        find_images(path, with_labels=True)  # what is wrong with it comes before what it needs
        raise DataError(
            f"{path}: images need a learner that was meta-trained on images (--checkpoint RUN); without one, name a "
            "CSV, Parquet or NPZ file"
        )
    backbone = learner.build().network
    assert isinstance(backbone, Backbone)
    table = load_image_table(path, backbone.input_shape, with_labels=True)
    trained_on = learner.config.get("data", {}).get("name", "folder")
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
    chosen = [name for name in _NAMES if name != "task" and getattr(asked, name) != "auto"] + ["ensemble"] * (
        not asked.ensemble
    )
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


def _print(summary: dict[str, Any]) -> None:
    from sureshot.computing.memory import in_bytes

    first = [(name, summary[name]) for name in ("task", "rows", "features")]
    last = [
        ("seconds", f"{summary['seconds']:.2f}"),
        ("model", f"{summary['model']} ({in_bytes(summary['model_bytes'])})"),
        *((name, summary[name]) for name in ("report",) if name in summary),
    ]
    task_of(numbers=summary["task"] == "numbers").print_fitted(summary, first, last)

"""``sureshot update``: teach a saved model new rows, and new classes, without the old rows."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from sureshot.cli.console import (
    DataArgument,
    JsonOption,
    QuietOption,
    TargetOption,
    check_output,
    guarded,
    print_json,
    print_table,
    progress,
)


def update(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model that `sureshot fit` wrote.")],
    data: DataArgument,
    target: TargetOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the new model here, not over MODEL."),
    ] = None,
    retune: Annotated[bool, typer.Option("--retune", help="Learn the kernel's parameters anew from all rows.")] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Add labelled rows to a model; labels it has not met become new classes."""
    with guarded(as_json, quiet):
        destination = model if output is None else output
        check_output(destination, data)
        from sureshot.cli.model import load_model, read_for_model
        from sureshot.data.checks import listed
        from sureshot.estimators.classifier import GPClassifier

        classifier = load_model(model)
        if retune and not isinstance(classifier, GPClassifier):
            raise ValueError(f"--retune: {model} is of a few-shot learner, which tunes nothing to labels; leave it out")
        with progress(f"reading {data}", quiet):
            table = read_for_model(classifier, data, target, with_labels=True)
        assert table.y is not None
        known = classifier.classes_.tolist()
        start = time.perf_counter()
        with progress(f"adding {len(table.y)} rows", quiet):
            classifier.partial_fit(table.X, table.y, **({"retune": True} if retune else {}))
        seconds = time.perf_counter() - start
        classifier.save(destination)
        summary: dict[str, Any] = {
            "model": str(destination),
            "rows_added": len(table.y),
            "new_classes": classifier.classes_.tolist()[len(known) :],
            "classes": classifier.classes_.tolist(),
            "seconds": seconds,
        }
        if as_json:
            print_json(summary)
        else:
            new = listed(summary["new_classes"]) or "none"
            print_table(
                ("updated", ""),
                [
                    ("rows added", summary["rows_added"]),
                    ("new classes", new),
                    ("classes", len(summary["classes"])),
                    ("seconds", f"{seconds:.2f}"),
                    ("model", summary["model"]),
                ],
            )

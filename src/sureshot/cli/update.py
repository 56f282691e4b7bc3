"""``sureshot update``: teach a saved model new rows, and new classes, without the old rows."""

from __future__ import annotations

import time
from typing import Any

from sureshot.cli import console, options


def update(
    model: options.Model,
    data: options.LabelledData,
    target: options.Target = None,
    output: options.UpdatedModelFile = None,
    retune: options.Retune = False,
    drop: options.Drop = None,
    row_id: options.RowId = None,
    separator: options.Separator = None,
    encoding: options.Encoding = None,
    decimal: options.Decimal = None,
    quiet: console.QuietOption = False,
    as_json: console.JsonOption = False,
) -> None:
    """Add labelled rows to a model; labels it has not met become new classes."""
    with console.guarded(as_json, quiet):
        destination = model if output is None else output
        console.check_output(destination, data)
        from sureshot.cli.model import load_model, read_for_model
        from sureshot.cli.reading import Reading
        from sureshot.data.checks import listed
        from sureshot.estimators.classifier import GPClassifier

        classifier = load_model(model)
        if retune and not isinstance(classifier, GPClassifier):
            raise ValueError(
                f"--retune is for the models of GPClassifier, and {model} holds a {type(classifier).__name__}: "
                "leave it out"
            )
        how = Reading.of(separator, encoding, decimal, drop, row_id)
        with console.progress(f"reading {data}", quiet):
            table = read_for_model(classifier, data, target, how, with_labels=True)
        assert table.y is not None
        known = classifier.classes_.tolist()
        start = time.perf_counter()
        with console.progress(f"adding {len(table.y)} rows", quiet):
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
            console.print_json(summary)
        else:
            new = listed(summary["new_classes"]) or "none"
            console.print_table(
                ("updated", ""),
                [
                    ("rows added", summary["rows_added"]),
                    ("new classes", new),
                    ("classes", len(summary["classes"])),
                    ("seconds", f"{seconds:.2f}"),
                    ("model", summary["model"]),
                ],
            )

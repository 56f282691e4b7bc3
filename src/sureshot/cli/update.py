"""``sureshot update``: teach a saved model new rows and classes, correct rows that have ids, take rows away."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sureshot.cli import console, options

if TYPE_CHECKING:
    import numpy as np

    from sureshot.estimators.base import IncrementalEstimator


def update(
    model: options.Model,
    data: options.MoreLabelledData = None,
    *,
    target: options.Target = None,
    output: options.UpdatedModelFile = None,
    in_place: options.InPlace = False,
    retune: options.Retune = False,
    retune_if_worse: options.RetuneIfWorse = False,
    forget_rows: options.ForgetRows = None,
    forget_classes: options.ForgetClasses = None,
    files: options.Files,
    quiet: console.QuietOption = False,
    as_json: console.JsonOption = False,
) -> None:
    """Add labelled rows to a model, and classes that it has not met; forget rows and classes first, if asked.

    With --id a row takes the place of the one that had its id, so that sending a file twice changes nothing. The
    model's file stays as it is, unless --in-place says otherwise.
    """
    with console.guarded(as_json, quiet):
        if in_place and output is not None:
            raise ValueError("--in-place and --output exclude each other: write to one place")
        if retune and retune_if_worse:
            raise ValueError("--retune and --retune-if-worse exclude each other: leave one of them out")
        anew = "auto" if retune_if_worse else retune
        given = {"target": target, "retune": anew or None, **vars(files)}
        idle = [name for name, value in given.items() if value not in (getattr(options.Files, name, None), [])]
        if data is None and idle:
            option = {"row_id": "id", "fold_case": "fold-case"}.get(idle[0], idle[0])
            raise ValueError(f"--{option} is about rows to add, and there are none: name their file, or leave it out")
        if data is None and not (forget_rows or forget_classes):
            raise ValueError("name a file of labelled rows to add, or what to forget (--forget-rows, --forget-classes)")
        if output is not None and output.exists() and model.exists() and output.samefile(model):
            raise ValueError(f"{model} stays as it is: to replace it, give --in-place, and no --output")
        if output is not None:
            console.check_model_output(output, *([] if data is None else [data]))
        elif not in_place:  # never over the old one unasked
            raise ValueError(
                f"{model} stays as it is: name a file for the new model (--output), or replace it (--in-place)"
            )
        from sureshot.cli.model_file import load_model

        fitted, how = load_model(model, data, files)
        from sureshot.cli.model import as_known, keeps_ids, read_for_model, taught_ids
        from sureshot.cli.reading import remark_on_spelling
        from sureshot.data.cells import in_one_way
        from sureshot.data.checks import listed
        from sureshot.data.file_kinds import is_image_source
        from sureshot.estimators.gp.classifier import GPClassifier
        from sureshot.estimators.gp.regressor import GPRegressor

        known_ids: np.ndarray | None = getattr(fitted, "row_ids_", None)
        classes: np.ndarray | None = getattr(fitted, "classes_", None)  # None of numbers
        gone_classes = _listed(forget_classes, classes)
        gone_rows = [in_one_way(name) for name in _listed(forget_rows, known_ids)]
        if data is None and not (gone_rows or gone_classes):
            raise ValueError("--forget-rows and --forget-classes name nothing: name rows by their ids, or classes")
        if anew and not isinstance(fitted, GPClassifier if anew == "auto" else GPClassifier | GPRegressor):
            option, kinds = ("--retune-if-worse", "") if anew == "auto" else ("--retune", " and GPRegressor")
            raise ValueError(
                f"{option} is for the models of GPClassifier{kinds}, and {model} holds a {type(fitted).__name__}: "
                "leave it out"
            )
        if gone_classes and classes is None:
            raise ValueError(f"{model} is of numbers, which have no --forget-classes: --forget-rows takes rows by ids")
        table, ids = None, None
        if data is not None:
            with console.progress(f"reading {data}", quiet):
                table = read_for_model(fitted, data, target, how, with_labels=True)
            ids = taught_ids(fitted, table, how)
            if files.row_id is None and keeps_ids(fitted) and not is_image_source(data):
                console.note(f"{data}: rows without ids (--id) are added, so rows that are sent twice count twice")
        destination = model if output is None else output
        known = _listed_classes(fitted)
        if data is not None and table is not None and table.y is not None and classes is not None:
            remark_on_spelling(data, table.y.tolist(), known)
        start, n_before = time.perf_counter(), _count(fitted)
        if gone_rows or gone_classes:
            with console.progress("forgetting", quiet):
                gone = {"classes": (gone_classes, classes), "rows": (gone_rows, known_ids)}
                fitted.forget(**{what: as_known(*named) for what, named in gone.items() if named[0]})
        before, n_forgotten = _names(fitted), n_before - _count(fitted)
        if table is not None:
            with_rows = _classes_with_rows(fitted)
            with console.progress(f"adding {len(table.row_ids)} rows", quiet):
                assert table.y is not None
                more: dict[str, Any] = {"retune": anew} if anew else {}
                fitted.partial_fit(table.X, table.y, row_id=ids, **more)
            if emptied := sorted(with_rows - _classes_with_rows(fitted)):
                console.note(
                    f"{data}: no row of {listed(emptied)} is left, as all were replaced; the model still makes room "
                    f"for rows of it: --forget-classes {shlex.quote(','.join(emptied))} takes it away"
                )
        seconds = time.perf_counter() - start
        fitted.save(destination)
        came = set() if ids is None else set(ids.tolist())
        n_replaced = len(came & before)
        n_rows = 0 if table is None else len(table.row_ids)
        known_now = _listed_classes(fitted)
        new = [label for label in known_now if label not in known]
        summary: dict[str, Any] = {
            "model": str(destination),
            "rows_added": n_rows - n_replaced,
            "rows_replaced": n_replaced,
            "rows_forgotten": n_forgotten,
            "rows": _count(fitted),
            **({} if classes is None else {"new_classes": new, "classes": known_now}),
            "seconds": seconds,
        }
        if as_json:
            console.print_json(summary)
        else:
            rows: list[tuple[str, object]] = [("rows added", summary["rows_added"])]
            rows += [("rows replaced", n_replaced)] if ids is not None else []
            rows += [("rows forgotten", n_forgotten)] if gone_rows or gone_classes else []
            rows += [("forgotten classes", listed(gone_classes))] if gone_classes else []
            rows.append(("rows now", summary["rows"]))
            rows += [] if classes is None else [("new classes", listed(new) or "none"), ("classes", len(known_now))]
            rows += [("seconds", f"{seconds:.2f}"), ("model", summary["model"])]
            console.print_table(("updated", ""), rows)


def _listed(given: Sequence[str] | None, known: np.ndarray | None) -> list[str]:
    """Of ids or classes, which may be numbers, each once."""
    from sureshot.cli.reading import names_together

    return list(dict.fromkeys(names_together(given or (), () if known is None else map(str, known.tolist()))))


def _listed_classes(model: Any) -> list[Any]:
    """A model's classes; none of numbers."""
    return model.classes_.tolist() if hasattr(model, "classes_") else []


def _classes_with_rows(model: Any) -> set[str]:
    """Of a model's classes those of which it has rows."""
    classes = _listed_classes(model)
    return set() if not classes else set(map(str, model.classes_[model.class_count_ > 0].tolist()))


def _count(model: Any) -> int:
    """How many rows a model has learnt."""
    return round(float(model.class_count_.sum() if hasattr(model, "classes_") else model.n_rows_))


def _names(model: IncrementalEstimator) -> set[Any]:
    """The ids that a model knows."""
    names: np.ndarray | None = getattr(model, "row_ids_", None)
    return set() if names is None else set(names.tolist())

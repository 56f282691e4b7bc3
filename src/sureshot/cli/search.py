"""``sureshot search``: a posterior over kernels of a table, or of a stream of rows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sureshot.cli import console, options
from sureshot.cli.searched import SCORES, Rows, columns_named, evidence_and_error, meaning_of_evidence
from sureshot.data.file_kinds import check_source

if TYPE_CHECKING:
    import numpy as np

    from sureshot.cli.reading import Reading
    from sureshot.data import DataTable
    from sureshot.estimators import KernelSearchClassifier, SearchStep
    from sureshot.evaluation.streams import BatchScores

SHOWN = 8
"""Structures and batches in a terminal; the report and JSON have all."""

HELD_OUT = 0.2
"""Share of the rows that are kept for scores, unless another is asked for or a file has some."""


def search(
    data: options.LabelledData,
    *,
    target: options.Target = None,
    asked: options.Search,
    taken: options.Parts,
    seed: options.FitSeed = None,
    jobs: options.SearchJobs = None,
    files: options.Files,
    kind: options.Kind = None,
    output: options.OptionalModelFile = None,
    report: options.ReportFolder = None,
    quiet: console.QuietOption = False,
    as_json: console.JsonOption = False,
) -> None:
    """Find kernels that explain a table: sums and products of simple ones, weighted by how well they predict.

    Scores are of rows that were held out, or of another file (--test), beside those of the classes' frequencies.
    """
    with console.guarded(as_json, quiet):
        if output is not None:
            console.check_model_output(output, data)
        console.check_folder(report)
        _check_parts(taken, data)
        options.check_name("--grammar", asked.grammar, options.GRAMMARS)
        sizes = _schedule(asked.schedule)
        from sureshot.cli.reading import Reading

        how = Reading.of(files, kind)
        for path in (data,) if taken.test is None else (data, taken.test):
            check_source(path)
        from sureshot.cli.model import taught_ids
        from sureshot.cli.reading import naming, remark, remark_on_columns

        with console.progress(f"reading {data}", quiet):
            rows = _read(data, target, taken, seed or 0, how)
        remark(data, rows.table)
        from sureshot.cli.reading import take
        from sureshot.cli.reporting import facts
        from sureshot.estimators.search.classifier import KernelSearchClassifier
        from sureshot.evaluation.streams import BatchScores, evaluate_batch

        if asked.window is not None and not rows.streamed and len(rows.parts[0]) > asked.window:
            console.note(
                f"{asked.window} of {len(rows.parts[0])} rows are drawn: --batches or --batch-size take {data.name} as "
                "a stream of all rows"
            )
        assert rows.table.y is not None
        model = KernelSearchClassifier(
            n_particles=asked.particles,
            grammar=asked.grammar,
            n_rejuvenation="auto" if asked.rejuvenation is None else asked.rejuvenation,
            schedule=sizes,
            structure=asked.structure,
            window=asked.window,
            n_inducing=asked.inducing,
            random_state=seed,
            n_jobs=jobs,
            columns=dict(how.kinds) or "auto",
        )
        ids = taught_ids(model, rows.table, how)
        start, stream = time.perf_counter(), list[BatchScores]()
        with _watched(model, rows, quiet), naming(data):
            for number, part in enumerate(rows.parts):
                X, y = take(rows.table.X, part), rows.table.y[part]
                named = None if ids is None else ids[part]
                if rows.streamed:
                    stream.append(evaluate_batch(model, X, y, first=number == 0, row_id=named))
                else:
                    model.fit(X, y, row_id=named)
        seconds = time.perf_counter() - start
        remark_on_columns(data, model)
        summary: dict[str, Any] = {
            "rows": sum(map(len, rows.parts)),
            "kept": model.steps_[-1].n_rows,
            "held_out": 0 if rows.test is None or taken.test is not None else len(rows.test.row_ids),
            "features": int(model.n_features_in_),
            "classes": model.classes_.tolist(),
            "settings": facts(model),
            "kernel_posterior": [{"mass": mass, "structure": text} for mass, text in model.kernel_posterior_],
            "log_evidence": float(model.log_evidence_),
            "log_evidence_error": float(model.log_evidence_error_),
            "evidence_for_each_label": evidence_for_each_label(model),
            "waits": model.steps_[-1].waits,
            "kernel_columns": model.kernel_columns_,
            "batches": [_batch(step) for step in model.steps_],
            **_prequential(stream),
            **_scores(model, rows),
            "seconds": seconds,
        }
        if output is not None:
            model.save(output)
            summary["model"] = str(output)
        if report is not None:
            from sureshot.cli.search_report import write_search_page

            title = f"Kernels of {data.resolve().name}"
            with console.told_anyway(lambda: _print(summary), as_json):
                summary["report"] = str(
                    write_search_page(model, rows, stream, summary, report, title, console.command_line())
                )
        console.tell(summary, _print, as_json)


def evidence_for_each_label(model: KernelSearchClassifier) -> float | None:
    """The probability that a label was given before it was seen, in the geometric mean; None where it says nothing.

    With more than two classes comparisons of classes are predicted in the place of labels; in a window errors add up.
    """
    import math

    last = model.steps_[-1]
    says = len(model.classes_) == 2 and model.window is None and not last.waits
    return math.exp(model.log_evidence_ / last.n_rows) if says else None


def _check_parts(taken: options.Parts, data: Path) -> None:
    """Refuse options that say two things of one matter."""
    if taken.batches is not None and taken.batch_size is not None:
        raise ValueError("--batches and --batch-size exclude each other: either a column or a number divides rows")
    if taken.test is not None and taken.hold_out is not None:
        raise ValueError("--test and --hold-out exclude each other: scores are of a file's rows, or of a share")
    if taken.test is not None and taken.test.resolve() == data.resolve():
        raise ValueError(f"--test is the file of the rows to learn from, {data}: leave it out to score a share of them")


def _read(data: Path, target: str | None, taken: options.Parts, seed: int, how: Reading) -> Rows:
    """Everything that is read from files, checked before anything is learnt."""
    import numpy as np
    from sklearn.dummy import DummyClassifier

    from sureshot.cli.fit import read_labelled
    from sureshot.cli.model import read_for_model
    from sureshot.cli.reading import take
    from sureshot.cli.reporting import held_out_share

    batches, test = taken.batches, taken.test
    hold_out = 0.0 if test is not None else HELD_OUT if taken.hold_out is None else taken.hold_out
    if batches is not None and batches == target:
        raise ValueError(f"--batches and --target name the same column, {target}")
    table = read_labelled(data, target, None, how, batches)
    assert table.y is not None
    part = np.zeros(len(table.y), dtype=np.int64)
    if batches is not None:
        part = _batch_of_each_row(data, batches, table, how)
    elif taken.batch_size is not None:
        part = np.arange(len(table.y)) // taken.batch_size
    learnt = np.ones(len(table.y), dtype=bool)
    if hold_out > 0:
        learnt = ~held_out_share(table.y, hold_out, np.random.default_rng(seed), part)
    places = np.flatnonzero(learnt)
    if len(np.unique(table.y[places])) < 2:
        raise ValueError(f"{data}: there is only one class, {str(table.y[0])!r}; at least two are needed to tell apart")
    parts = [places[part[places] == number] for number in np.unique(part[places])]
    baseline = DummyClassifier(strategy="prior").fit(take(table.X, places), table.y[places])
    judged: DataTable | None = None
    if test is not None:
        ignored = [] if batches is None else [batches]
        judged = read_for_model(baseline, test, target, how, with_labels=True, ignored=ignored, mixed=True)
    elif not learnt.all():
        judged = table._replace(X=take(table.X, ~learnt), y=table.y[~learnt], row_ids=table.row_ids[~learnt])
    elif hold_out > 0:
        console.note("every class has one row, so none can be held out: there are no scores")
    return Rows(parts, table, judged, baseline, (batches, taken.batch_size) != (None, None))


def _batch_of_each_row(data: Path, batches: str, table: DataTable, how: Reading) -> np.ndarray:
    """Numbers of the batches (n,), in the order in which they come."""
    import numpy as np
    import pandas as pd

    from sureshot.data import DataError

    column = table.groups
    if column is None:  # of arrays it is one of them
        column = how.load(data, batches, None, text_labels=True).y
        assert column is not None
    empty = np.flatnonzero(pd.isna(column))
    if len(empty):
        raise DataError(
            f"{data}: column {batches!r} (--batches) is empty in {len(empty)} of {len(column)} rows (the first is "
            f"row {empty[0]}, counted from 0), so they are of no batch; fill it in, or drop them"
        )
    return pd.factorize(column)[0]


def _schedule(text: str) -> str | list[int]:
    if text in options.SCHEDULES.split(", "):
        return text
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--schedule must be logarithmic, linear, once, or sizes as in 50,100; got {text!r}") from None


@contextmanager
def _watched(model: KernelSearchClassifier, rows: Rows, quiet: bool) -> Iterator[None]:
    """A progress bar that the model's callback moves.

    A batch costs about the square of the rows behind it, or what is in proportion to them through inducing inputs.
    """
    import numpy as np

    from sureshot.estimators.search.settings import SearchSettings

    settings = SearchSettings.checked(model.get_params())
    most = settings.window or len(rows.table.row_ids)
    sizes = np.concatenate([settings.batches(min(len(part), most)) for part in rows.parts])
    behind = np.minimum(sizes.cumsum(), most)
    costs = np.square(behind) if settings.n_inducing is None else behind
    shares = iter(costs.cumsum() / costs.sum())
    numbers = count(1)
    with console.progress(f"the first of {len(sizes)} batches", quiet) as update:
        model.callback = lambda step: update(_line(step, next(numbers)), float(next(shares, 1.0)))
        try:
            yield
        finally:
            model.callback = None


def _line(step: SearchStep, number: int) -> str:
    """A batch for the progress bar."""
    sizes = ", ".join(f"{size:.1f}" for size in step.effective_sample_sizes)
    accepted = step.acceptance.values()
    rates = f", {sum(accepted) / len(accepted):.0%} of moves accepted" if accepted else ""
    best = "\n".join(f"  {mass:.2f} {structure}" for mass, structure in step.structures[:3])
    return f"batch {number}: {step.n_rows} rows, ESS {sizes} of {len(step.ancestors)}{rates}\n{best}"


def _prequential(stream: list[BatchScores]) -> dict[str, Any]:
    """How the parts of a stream were predicted before they were learnt, all but the first."""
    from sureshot.evaluation.streams import pooled

    if not stream:
        return {}
    told = ("rows", "new_classes", "accuracy", "nll")
    scores = pooled(stream)
    return {
        "stream": [{name: getattr(batch, name) for name in told} for batch in stream[1:]],
        "stream_scores": None if scores is None else asdict(scores),
    }


def _batch(step: SearchStep) -> dict[str, Any]:
    mass, structure = step.structures[0]
    return {
        "rows": step.n_rows,
        "effective_sample_sizes": step.effective_sample_sizes,
        "resampled": step.resampled,
        "acceptance": step.acceptance,
        "log_evidence": step.log_evidence,
        "structure": structure,
        "mass": mass,
    }


def _scores(model: KernelSearchClassifier, rows: Rows) -> dict[str, Any]:
    """Of the search and of the classes' frequencies, on rows that were not learnt."""
    if rows.test is None:
        return {}
    import numpy as np

    from sureshot.cli.classes import summarise_rows
    from sureshot.metrics import summarise

    X, y = rows.test.X, rows.test.y
    assert y is not None
    scores = summarise_rows(model, rows.test, model.predict_proba(X), model.outlier_score(X))
    known = np.isin(y, rows.baseline.classes_)
    found: dict[str, Any] = {"scores": scores}
    if known.any():
        plain = rows.baseline.predict_proba(X)[known]
        values = summarise(plain, y[known], classes=rows.baseline.classes_).as_dict()
        found["baseline"] = {name: value for name, value in values.items() if name != "n"}
    return found


def _print(summary: dict[str, Any]) -> None:
    counts = [(name.replace("_", " "), summary[name]) for name in ("rows", "kept", "held_out", "features")]
    evidence = f"{evidence_and_error(summary)} nats: {meaning_of_evidence(summary)}"
    files = [(name, summary[name]) for name in ("model", "report") if name in summary]
    console.print_table(
        ("searched", ""),
        [
            *counts,
            ("classes", len(summary["classes"])),
            ("log-evidence", evidence),
            ("seconds", f"{summary['seconds']:.2f}"),
            *files,
        ],
    )
    posterior = [(one["mass"], one["structure"]) for one in summary["kernel_posterior"]]
    if len(posterior) > SHOWN:
        rest = posterior[SHOWN:]
        posterior = [*posterior[:SHOWN], (sum(mass for mass, _ in rest), f"({len(rest)} others)")]
    console.print_table(("mass", "kernel"), posterior)
    if columns := columns_named(summary):
        console.print_table(("in kernels", "column"), columns)
    if "scores" in summary:
        table = {"kernel search": summary["scores"], "class frequencies": summary.get("baseline", {})}
        _print_scores("rows that were not learnt", table)
    if summary.get("stream_scores"):
        _print_scores("rows of the stream", {"before they were learnt": summary["stream_scores"]})


def _print_scores(title: str, table: dict[str, dict[str, Any]]) -> None:
    rows = [[name, *(one.get(score) for score in SCORES)] for name, one in table.items()]
    console.print_table((title, *SCORES.values()), rows)

"""``sureshot suggest``: the rows of a pool that are most worth a label."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sureshot.cli import console, options

if TYPE_CHECKING:
    from sureshot.cli.reading import Beside

COLUMNS = ("prediction", "probability", "runner_up", "probability_of_runner_up")


def suggest(
    model: options.Model,
    pool: options.Pool,
    number: options.Number = 20,
    target: options.IgnoredTarget = None,
    join: options.Join = False,
    drop: options.Drop = None,
    row_id: options.RowId = None,
    separator: options.Separator = None,
    encoding: options.Encoding = None,
    decimal: options.Decimal = None,
    header: options.Header = None,
    missing: options.Missing = None,
    fold_case: options.FoldCase = False,
    sheet: options.Sheet = None,
    output: options.PredictionsFile = None,
    quiet: console.QuietOption = False,
    as_json: console.JsonOption = False,
) -> None:
    """Choose what to label next, as CSV: row (or its --id), the model's best guess, the runner-up, probabilities.

    Rows between two classes, no two of them alike, the most useful first; none that the model has learnt already. Label
    them all, teach them with `sureshot update`, and ask again.
    """
    with console.guarded(as_json, quiet):
        output = console.text_output(output, as_json, model, pool)
        if join and as_json:
            raise ValueError("--join writes columns, and --json none: leave one of them out")
        from sureshot.cli.reading import Reading

        how = Reading.of(separator, encoding, decimal, drop, row_id, None, header, missing, fold_case, sheet)
        from sureshot.cli.model_file import load_model

        classifier = load_model(model, pool)
        from sureshot.cli.model import as_fitted, read_for_model
        from sureshot.cli.reading import Beside, take
        from sureshot.estimators.tree.classifier import TreeGPClassifier

        with console.progress(f"reading {pool}", quiet):
            table = read_for_model(classifier, pool, target, how, with_labels=False)
            beside = Beside.of(pool, as_fitted(classifier, how), COLUMNS) if join else None
        with console.progress(f"choosing among {len(table.row_ids)} rows", quiet):
            found = classifier.suggest(table.X, number)
            top = classifier.predict_topk(take(table.X, found.rows), 2) if len(found.rows) else None
        if len(found.rows) < number:
            learnt = "" if isinstance(classifier, TreeGPClassifier) else " and from those that the model has learnt"
            console.note(
                f"{pool}: {number} rows were asked for, and there are {len(found.rows)} that differ from one another"
                + learnt
            )
        names = table.row_ids[found.rows].tolist()
        guesses: list[list[Any]] = []
        if top is not None:
            pairs = zip(top.labels.tolist(), top.probabilities.tolist(), strict=True)
            guesses = [[labels[0], p[0], labels[1], p[1]] for labels, p in pairs]
        if as_json:
            rows = [
                {"row": name, **dict(zip(COLUMNS, guess, strict=True)), "score": score}
                for name, guess, score in zip(names, guesses, found.score.tolist(), strict=True)
            ]
            _write_json({"pool": len(table.row_ids), "rows": rows}, output)
        else:
            known = [(name,) for name in names] if beside is None else beside.rows(found.rows)
            _write_csv("row" if row_id is None else row_id, known, guesses, beside, output)


def _write_csv(
    first: str,  # the column of the rows' names
    known: Iterable[tuple[Any, ...]],  # these, or what stands in their place
    guesses: list[list[Any]],
    beside: Beside | None,  # columns in that place
    output: Path | None,
) -> None:
    from sureshot.cli.reading import table_writer, written_number

    with console.output_text(output) as stream:
        writer = table_writer(stream, beside, output)
        writer.writerow([*([first] if beside is None else beside.cells.columns), *COLUMNS])
        for cells, (label, p, other, q) in zip(known, guesses, strict=True):
            writer.writerow([*cells, label, written_number(p, beside), other, written_number(q, beside)])


def _write_json(found: dict[str, Any], output: Path | None) -> None:
    import json

    with console.output_text(output) as stream:
        stream.write(json.dumps(console.plain(found), allow_nan=False) + "\n")

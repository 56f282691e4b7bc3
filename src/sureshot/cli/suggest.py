"""``sureshot suggest``: the rows of a pool that are most worth a label."""

from __future__ import annotations

from typing import Any

from sureshot.cli import console, options

COLUMNS = ("prediction", "probability", "runner_up", "probability_of_runner_up")


def suggest(
    model: options.Model,
    pool: options.Pool,
    *,
    number: options.Number = 20,
    target: options.IgnoredTarget = None,
    join: options.Join = False,
    files: options.Files,
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
        from sureshot.cli.model_file import load_model

        classifier, how = load_model(model, pool, files)
        from sureshot.cli.model import read_for_model
        from sureshot.cli.reading import Beside, as_head, as_lines, take, written_number
        from sureshot.estimators.tree.classifier import TreeGPClassifier

        with console.progress(f"reading {pool}", quiet):
            table = read_for_model(classifier, pool, target, how, with_labels=False)
            beside = Beside.of(pool, how, COLUMNS) if join else None
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
            console.print_json({"pool": len(table.row_ids), "rows": rows}, output)
        else:
            cells = [(one, written_number(p, beside), two, written_number(q, beside)) for one, p, two, q in guesses]
            with console.output_text(output) as stream:
                stream.write(as_head(output, beside, files.row_id, COLUMNS))
                stream.write(as_lines(output, beside, names, found.rows, cells))

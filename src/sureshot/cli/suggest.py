"""``sureshot suggest``: the rows of a pool that are most worth a label."""

from __future__ import annotations

from sureshot.cli import console, options


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

    Rows between two classes, no two of them alike, the most useful first; none that the model has learnt already. Of
    numbers: the guess, and its deviation. Label them all, teach them with `sureshot update`, and ask again.
    """
    with console.guarded(as_json, quiet):
        output = console.text_output(output, as_json, model, pool)
        if join and as_json:
            raise ValueError("--join writes columns, and --json none: leave one of them out")
        from sureshot.cli.model_file import load_model

        fitted, how = load_model(model, pool, files)
        from sureshot.cli.model import read_for_model
        from sureshot.cli.reading import Beside, as_head, as_lines, take, written_number
        from sureshot.cli.tasks import task_of
        from sureshot.estimators.tree.classifier import TreeGPClassifier

        task = task_of(fitted)
        with console.progress(f"reading {pool}", quiet):
            table = read_for_model(fitted, pool, target, how, with_labels=False)
            beside = Beside.of(pool, how, task.SUGGESTED) if join else None
        with console.progress(f"choosing among {len(table.row_ids)} rows", quiet):
            found = fitted.suggest(table.X, number)
            guesses = task.suggested(fitted, take(table.X, found.rows)) if len(found.rows) else []
        if len(found.rows) < number:
            learnt = "" if isinstance(fitted, TreeGPClassifier) else " and from those that the model has learnt"
            console.note(
                f"{pool}: {number} rows were asked for, and there are {len(found.rows)} that differ from one another"
                + learnt
            )
        names = table.row_ids[found.rows].tolist()
        if as_json:
            rows = [
                {"row": name, **dict(zip(task.SUGGESTED, guess, strict=True)), "score": score}
                for name, guess, score in zip(names, guesses, found.score.tolist(), strict=True)
            ]
            console.print_json({"pool": len(table.row_ids), "rows": rows}, output)
        else:
            cells = [
                [written_number(one, beside) if isinstance(one, float) else one for one in guess] for guess in guesses
            ]
            with console.output_text(output) as stream:
                stream.write(as_head(output, beside, files.row_id, task.SUGGESTED))
                stream.write(as_lines(output, beside, names, found.rows, cells))

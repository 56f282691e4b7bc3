"""What commands ask and show of classes; `sureshot.cli.tasks` says when."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sureshot.cli import console, options
from sureshot.cli.tasks import shared_settings

if TYPE_CHECKING:
    import numpy as np

    from sureshot.cli.reading import Beside, Reading
    from sureshot.data import DataTable
    from sureshot.estimators.classes.classifier_base import IncrementalClassifier

SEPARATOR = "|"  # of the labels of a set
REASONS = ("label", "fall")  # what is told of each beside its name
SUGGESTED = ("prediction", "probability", "runner_up", "probability_of_runner_up")


def reporting() -> ModuleType:
    """What writes reports."""
    from sureshot.cli import reporting

    return reporting


def unfitted(asked: options.Classifier, how: Reading) -> IncrementalClassifier:
    """The classifier that is asked for."""
    if asked.checkpoint is not None:
        from sureshot.estimators.few_shot.classifier import FewShotClassifier

        return FewShotClassifier(asked.checkpoint, random_state=asked.seed)
    if asked.strategy is not None:
        from sureshot.estimators.tree.classifier import TreeGPClassifier

        return TreeGPClassifier(asked.strategy, random_state=asked.seed, columns=dict(how.kinds) or "auto")
    from sureshot.estimators.gp.classifier import GPClassifier

    shared = shared_settings(asked, how)
    return GPClassifier(likelihood=asked.likelihood, inference=asked.inference, **shared)


def learnt(model: IncrementalClassifier) -> dict[str, Any]:
    """What a fit has found."""
    return {
        "classes": model.classes_.tolist(),
        "settings": reporting().facts(model),
        "log_evidence": float(model.log_evidence_),
        "leave_one_out": _left_out(model),
    }


def _left_out(model: IncrementalClassifier) -> dict[str, float | None]:
    """Accuracy and NLL of rows by the posterior of all others, where the fit has them."""
    nll = getattr(model, "leave_one_out_nll_", None)
    if nll is None:  # where columns have length-scales of their own, only the score by which they were chosen is left
        score = getattr(model, "leave_one_out_score_", math.nan)
        nll = None if math.isnan(score) else -score
    accuracies = {name: getattr(model, f"leave_one_out_{name}_", None) for name in ("accuracy", "balanced_accuracy")}
    return {**accuracies, "nll": nll}


def print_fitted(summary: dict[str, Any], first: list[tuple[str, object]], last: list[tuple[str, object]]) -> None:
    """Between other lines what a fit has found, and classes beneath."""
    rows = [*first, ("classes", len(summary["classes"]))]
    rows += [(name, value) for name, value in summary["settings"].items() if name not in ("classes", "features")]
    for key, words in (("leave_one_out", "leave-one-out"), ("cross_validated", "cross-validated")):
        scores = summary.get(key, {})
        if scores.get("nll") is not None and scores["accuracy"] is None:
            rows.append((f"{words} accuracy", "not known, as columns were weighed by all rows: --report has it"))
        for name, value in scores.items():
            if value is not None and name != "classes":
                rows.append((f"{words} {'NLL (nats)' if name == 'nll' else name.replace('_', ' ')}", value))
    console.print_table(("fitted", ""), [*rows, *last])
    print_classes(summary.get("cross_validated", {}).get("classes", []))


def answerable(model: IncrementalClassifier, asked: options.Answers, as_json: bool) -> options.Answers:
    """What is asked of rows, with names for everything; `ValueError` for what the model cannot answer."""
    if asked.interval is not None:
        raise ValueError("--coverage is for models of numbers; --set gives sets of classes")
    if asked.coverage is not None and not as_json:
        _check_separable(model.classes_.tolist())
    return replace(asked, unknown=_name_of_rejected(model, asked))


def _check_separable(labels: list[Any]) -> None:
    """Refuse labels that would be ambiguous in a cell that holds several."""
    for label in labels:
        if SEPARATOR in str(label):
            raise ValueError(f"--set separates labels by {SEPARATOR}, which {label!r} contains: use --json")


def _name_of_rejected(model: IncrementalClassifier, asked: options.Answers) -> Any:
    """What rejected rows are called: a number, if the classes are numbers and it is written as one."""
    from sureshot.cli.model import as_known

    name = "unknown" if asked.unknown is None else asked.unknown
    if asked.reject is not None and name in map(str, model.classes_.tolist()):
        raise ValueError(f"{name!r} is a class of the model: give rejected rows another name with --unknown")
    return as_known([name], model.classes_).tolist()[0]


def columns(model: IncrementalClassifier, asked: options.Answers) -> list[str]:
    """Names of the columns of a row, its class first."""
    labels = model.classes_.tolist()
    found = ["prediction", *(f"probability_{label}" for label in (labels if asked.proba else ()))]
    for place in range(1, 1 + min(asked.top or 0, len(labels))):
        found += [f"class_{place}", f"probability_of_class_{place}"]
    last = {"outlier": asked.outlier, "p_value": asked.reject is not None, "set": asked.coverage is not None}
    return found + [name for name, is_wanted in last.items() if is_wanted]


def answers(model: IncrementalClassifier, X: Any, asked: options.Answers) -> dict[str, Any]:
    """The answers for all rows, by name."""
    labels = [str(label) for label in model.classes_.tolist()]
    decided = None if asked.reject is None else model.decide(X, asked.reject, asked.unknown)
    found: dict[str, Any] = {"prediction": (model.predict(X) if decided is None else decided.labels).tolist()}
    if asked.proba:
        found["probabilities"] = (dict(zip(labels, p.tolist(), strict=True)) for p in model.predict_proba(X))
    if asked.top is not None:
        top = model.predict_topk(X, min(asked.top, len(labels)))
        pairs = zip(top.labels.tolist(), top.probabilities.tolist(), strict=True)
        found["top"] = ([{"class": k, "probability": p} for k, p in zip(*pair, strict=True)] for pair in pairs)
    if asked.outlier:
        found["outlier"] = (model.outlier_score(X) if decided is None else decided.outlier_scores).tolist()
    if decided is not None:
        found["p_value"] = decided.p_values.tolist()
    if asked.coverage is not None:
        found["set"] = model.predict_set(X, asked.coverage).tolist()
    return found


def reasons(model: IncrementalClassifier, X: Any, n_rows: int) -> list[list[dict[str, Any]]]:
    """Of each answer the labelled rows that spoke most for it."""
    from sureshot.cli.driving_rows import reasons_for

    return [
        [{"row": one.name, "label": one.label, "fall": one.fall} for one in found]
        for found in reasons_for(model, X, n_rows)
    ]


def cells(found: dict[str, Any], beside: Beside | None) -> list[Any]:
    """The answers for a row, in the order of `columns`."""
    from sureshot.cli.reading import written_number

    row = [found["prediction"], *(written_number(p, beside) for p in found.get("probabilities", {}).values())]
    for one in found.get("top", ()):
        row += [one["class"], written_number(one["probability"], beside)]
    row += [written_number(found[name], beside) for name in ("outlier", "p_value") if name in found]
    return row + ([SEPARATOR.join(map(str, found["set"]))] if "set" in found else [])


def evaluated(
    model: IncrementalClassifier, path: Path, data: Path, table: DataTable, report: Path | None, quiet: bool
) -> dict[str, Any]:
    """Scores of labelled rows, and a report if one is wanted."""
    import numpy as np

    from sureshot.data.checks import listed

    assert table.y is not None
    known = np.isin(table.y, model.classes_)
    if not known.any():
        console.note(
            f"{data}: no row has a label that {path} knows: labels are {listed(sorted(set(table.y.tolist())))}, "
            f"classes are {listed(model.classes_.tolist())}. Is --target the column of classes?"
        )
    with console.progress(f"evaluating {len(table.row_ids)} rows", quiet):
        probabilities = model.predict_proba(table.X)
        outlier = model.outlier_score(table.X) if report is not None or not known.all() else None
    summary = summarise_rows(model, table, probabilities, outlier)
    if report is not None:
        title, answers = f"{path.name} on {data.resolve().name}", (probabilities, outlier)
        summary["report"] = str(reporting().write_evaluation(model, table, *answers, summary, report, title))
    return summary


def summarise_rows(
    model: IncrementalClassifier, table: DataTable, probabilities: np.ndarray, outlier: np.ndarray | None
) -> dict[str, Any]:
    """Scores of the rows of known classes, and how well the outlier score tells the others from them."""
    import numpy as np

    from sureshot.metrics import auroc_unknown, balanced_accuracy, summarise

    assert table.y is not None
    known = np.isin(table.y, model.classes_)
    summary: dict[str, Any] = {"rows": len(known), "unknown_rows": int((~known).sum())}
    if not known.all():
        names = sorted({str(label) for label in table.y[~known].tolist()})
        from sureshot.data.checks import listed

        console.note(
            f"{summary['unknown_rows']} rows are of classes unknown to the model ({listed(names)}): they "
            "count for the unknown AUROC only"
        )
    if known.any():
        rows = probabilities[known], table.y[known]
        scores = summarise(*rows, classes=model.classes_)
        summary["accuracy"] = scores.accuracy
        summary["balanced_accuracy"] = balanced_accuracy(*rows, classes=model.classes_)
        summary |= {"nll": scores.nll, "brier": scores.brier, "ece": scores.ece}
    if known.any() and not known.all() and outlier is not None:
        summary["unknown_auroc"] = auroc_unknown(outlier[known], outlier[~known])
    if known.any():
        summary["classes"] = scores_of_classes(*rows, model.classes_)
    return summary


def scores_of_classes(probabilities: np.ndarray, y: np.ndarray, classes: np.ndarray) -> list[dict[str, Any]]:
    """Of each class its rows, how many rows are taken for it, precision and recall."""
    from sureshot.metrics import class_scores

    found = class_scores(probabilities, y, classes=classes)
    parts = (classes.tolist(), found.rows, found.predicted, found.precision, found.recall)
    names = ("class", "rows", "predicted", "precision", "recall")
    return [dict(zip(names, of_class, strict=True)) for of_class in zip(*parts, strict=True)]


def print_evaluated(summary: dict[str, Any]) -> None:
    """Scores, overall and of classes."""
    shown = [(_NAMES.get(k, k), v) for k, v in summary.items() if v is not None and k != "classes"]
    console.print_table(("evaluated", ""), shown)
    print_classes(summary.get("classes", []))


_NAMES = {
    "unknown_rows": "rows of unknown classes",
    "balanced_accuracy": "balanced accuracy",
    "nll": "NLL (nats)",
    "brier": "Brier",
    "ece": "ECE",
    "unknown_auroc": "unknown AUROC",
}
_MOST_CLASSES = 12


def print_classes(classes: list[dict[str, Any]]) -> None:
    """Classes with their counts, precision and recall; of many those that are found least."""
    if not classes:
        return
    found = [of_class for of_class in classes if of_class["rows"]]
    if len(classes) > _MOST_CLASSES:
        classes = sorted(found, key=lambda of_class: of_class["recall"])[:_MOST_CLASSES]
        console.note(f"the {len(classes)} classes of lowest recall are shown; --json and --report have all")
    columns = ("rows", "predicted", "precision", "recall")
    rows = [(str(of_class["class"]), *(console.plain(of_class[name]) for name in columns)) for of_class in classes]
    console.print_table(("class", *columns), rows)


def suggested(model: IncrementalClassifier, X: Any) -> list[list[Any]]:
    """What `SUGGESTED` names of each row."""
    top = model.predict_topk(X, 2)
    pairs = zip(top.labels.tolist(), top.probabilities.tolist(), strict=True)
    return [[labels[0], p[0], labels[1], p[1]] for labels, p in pairs]

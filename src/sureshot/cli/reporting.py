"""Reports of ``fit`` and ``evaluate``: what the classifier is, and how it does on rows it was not taught."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from sureshot.cli.console import command_line
from sureshot.report import Predictions, Report, Table, Trace, environment, write_report

if TYPE_CHECKING:
    from sureshot.data import DataTable
    from sureshot.estimators.base import IncrementalClassifier

_log = logging.getLogger(__name__)

N_FOLDS = 5
HOLD_OUT_ABOVE = 5000  # rows from which one fold is judged instead of all: one more fit, not five


def write_evaluation(
    model: IncrementalClassifier,
    table: DataTable,
    probabilities: np.ndarray,
    outlier: np.ndarray,
    summary: dict[str, Any],
    folder: Path,
    title: str,
) -> Path:
    """Report of a saved model on labelled rows."""
    names = [name for name, value in summary.items() if isinstance(value, int | float)]
    predictions = Predictions(probabilities, model.classes_, y=table.y, outlier_score=outlier, row_names=table.row_ids)
    introduction = f"A saved classifier of {len(model.classes_)} classes on {len(table.row_ids)} labelled rows."
    scores = Table(tuple(names), (tuple(summary[name] for name in names),))
    return write_report(folder, _report(model, predictions, title, introduction, scores))


def cross_validated_report(model: IncrementalClassifier, table: DataTable, folder: Path, title: str) -> Path:
    """Report of a fit, on rows predicted by classifiers that were fitted without them.

    A classifier's own rows would flatter it. So the rows are dealt into five folds, class by class, and each
    fold is predicted by a classifier fitted on the others (beyond 5000 rows only the first fold is
    predicted). The only row of a class always stays with the fitted ones, since without it the class would
    be unknown.
    """
    assert table.y is not None
    folds = stratified_folds(table.y, N_FOLDS, np.random.default_rng(0))
    judged = range(1 if len(table.y) > HOLD_OUT_ABOVE else N_FOLDS)
    rows, probabilities, outlier = [], [], []
    for fold in judged:
        held_out = np.flatnonzero(folds == fold)
        if not len(held_out):
            continue
        fitted = clone(model).fit(take(table.X, folds != fold), table.y[folds != fold])
        X = take(table.X, held_out)
        rows.append(held_out)
        probabilities.append(fitted.predict_proba(X))
        outlier.append(fitted.outlier_score(X))
    introduction = f"A classifier of {len(model.classes_)} classes, fitted on {len(table.y)} rows. "
    predictions = None
    if rows:
        order = np.concatenate(rows)
        predictions = Predictions(
            np.concatenate(probabilities),
            model.classes_,
            y=table.y[order],
            outlier_score=np.concatenate(outlier),
            row_names=table.row_ids[order],
        )
        introduction += (
            f"Scores are of {len(order)} rows, each predicted by a classifier fitted without it "
            f"({N_FOLDS} folds, {len(rows)} of them judged)."
        )
    else:
        _log.warning("every class has one row, so none can be held out: the report has no scores")
        introduction += "Every class has one row, so none could be held out to judge it."
    return write_report(folder, _report(model, predictions, title, introduction))


def _report(
    model: IncrementalClassifier,
    predictions: Predictions | None,
    title: str,
    introduction: str,
    summary: Table | None = None,
) -> Report:
    trace = getattr(model, "bound_trace_", ())  # few-shot classifiers tune nothing
    return Report(
        title=title,
        introduction=introduction,
        summary=summary,
        predictions=predictions,
        trace=Trace(trace) if len(trace) else None,
        model=facts(model),
        environment=environment(),
        command=command_line(),
    )


def stratified_folds(
    y: np.ndarray,  # (N,)
    n_folds: int,
    generator: np.random.Generator,
    parts: np.ndarray | None = None,  # (N,) numbers
) -> np.ndarray:
    """Fold of each row, (N,); classes, and parts within them, are dealt evenly; the only row of a class gets -1.

    No class of two rows or more has all of them in one fold.
    """
    folds = np.full(len(y), -1)
    dealt = 0
    for label in np.unique(y):
        rows = generator.permutation(np.flatnonzero(y == label))
        if parts is not None:
            rows = rows[np.argsort(parts[rows], kind="stable")]
        if len(rows) > 1:
            folds[rows] = (np.arange(len(rows)) + dealt) % n_folds
            dealt += len(rows)
    return folds


def facts(model: IncrementalClassifier) -> dict[str, object]:
    """What the classifier became, for the report."""
    found: dict[str, object] = {**_method(model), "temperature": round(float(model.temperature_), 4)}
    found |= {"classes": len(model.classes_), "features": int(model.n_features_in_)}
    if math.isfinite(model.log_evidence_):
        found["log evidence (nats)"] = round(float(model.log_evidence_), 3)
    return found


def _method(model: IncrementalClassifier) -> dict[str, object]:
    """What learns: for a meta-trained learner its name, preset and backbone."""
    from sureshot.estimators.classifier import GPClassifier
    from sureshot.estimators.few_shot import FewShotClassifier
    from sureshot.estimators.search import KernelSearchClassifier
    from sureshot.estimators.tree import TreeGPClassifier

    if isinstance(model, GPClassifier):
        found: dict[str, object] = {
            "kernel": str(model.kernel_),
            "likelihood": model.likelihood_,
            "inference": model.inference_,
            "predictive rule": model.predictive_,
        }
        if len(model.members_) > 1:  # the above is the heaviest
            ranks = (" of ranks" if member.ranks else "" for member in model.members_)
            parts = zip(model.members_, ranks, strict=True)
            found["average of"] = "; ".join(f"{m.weight:.2f} {m.likelihood}, {m.kernel}{of}" for m, of in parts)
        return found
    if isinstance(model, TreeGPClassifier):
        return {"strategy": model.strategy, "memory": str(model.memory_)}
    if isinstance(model, KernelSearchClassifier):
        mass, structure = model.kernel_posterior_[0]
        return {
            "particles": model.n_particles,
            "heaviest structure": f"{structure} ({mass:.2f})",
            "predictive rule": model.predictive_,
        }
    if not isinstance(model, FewShotClassifier):
        return {}
    from sureshot.networks.backbones import Backbone

    learner = model.learner_
    assert isinstance(learner.backbone, Backbone)
    found = {"learner": learner.config["name"], "preset": learner.config["preset"]}
    return found | {"backbone": learner.backbone.config["name"]}


def take(X: Any, rows: np.ndarray) -> Any:
    """Rows of a table, by numbers or by a mask."""
    return X[rows] if isinstance(X, np.ndarray) else X.iloc[np.flatnonzero(rows) if rows.dtype == bool else rows]

"""Reports of ``fit`` and ``evaluate``: what the classifier is, and how it does on rows it was not taught."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from sureshot import metrics
from sureshot.cli.classes import scores_of_classes
from sureshot.cli.console import command_line
from sureshot.cli.driving_rows import Drivers, drivers_of, tables_of_driving_rows
from sureshot.cli.model import keeps_ids
from sureshot.cli.reading import take
from sureshot.estimators.outliers import Spread
from sureshot.progress import stage
from sureshot.report import Predictions, Report, Table, environment, write_report

if TYPE_CHECKING:
    from sureshot.data import DataTable
    from sureshot.estimators.classes.classifier_base import IncrementalClassifier
    from sureshot.estimators.gp.fitted import EnsembleMember
    from sureshot.estimators.gp.number_fitted import NumberEnsembleMember

_log = logging.getLogger(__name__)

N_FOLDS = 5
LEAST_NOISE = 0.01  # share of random labels from which on it is worth a line
_MOST_MEMBERS = 5  # of an average, that are listed one by one: fewer than 50 rows have many
HOLD_OUT_ABOVE = 5000  # rows from which one fold is judged instead of all: one more fit, not five


def write_evaluation(
    model: IncrementalClassifier,
    table: DataTable,
    probabilities: np.ndarray,
    outlier: np.ndarray | None,
    summary: dict[str, Any],
    folder: Path,
    title: str,
) -> Path:
    """Report of a saved model on labelled rows."""
    names = [name for name, value in summary.items() if isinstance(value, int | float)]
    predictions = Predictions(probabilities, model.classes_, y=table.y, outlier_score=outlier, row_names=table.row_ids)
    introduction = f"A saved classifier of {len(model.classes_)} classes on {len(table.row_ids)} labelled rows."
    scores = Table(tuple(names), (tuple(summary[name] for name in names),))
    assert table.y is not None
    known = np.isin(table.y, model.classes_)
    drivers = drivers_of(model, take(table.X, known), table.y[known], table.row_ids[known], probabilities[known])
    tables = tables_of_driving_rows(drivers)
    return write_report(folder, _report(model, predictions, title, introduction, scores, tables))


def cross_validated_report(
    model: IncrementalClassifier, table: DataTable, folder: Path, name: str
) -> tuple[Path, dict[str, Any]]:
    """Report of a fit, on rows predicted by classifiers that were fitted without them, and its scores if there are any.

    The rows are dealt into five folds, class by class, and each fold is predicted by a classifier fitted on the others
    (beyond 5000 rows only the first fold is predicted). The only row of a class always stays with the fitted ones.
    """
    assert table.y is not None
    folds = stratified_folds(table.y, N_FOLDS, np.random.default_rng(0))
    rows, probabilities, outlier, drivers = [], [], [], Drivers()
    for held_out, fitted in fitted_without(model, table, folds):
        X = take(table.X, held_out)
        rows.append(held_out)
        probabilities.append(fitted.predict_proba(X))
        far = fitted.outlier_score(X)
        outlier.append(Spread.of(far, 1.0)(far))  # folds may have different kernels
        drivers += drivers_of(fitted, X, table.y[held_out], table.row_ids[held_out], probabilities[-1])
    introduction = f"A classifier of {len(model.classes_)} classes, fitted on {len(table.y)} rows. "
    predictions, scores = None, dict[str, Any]()
    if rows:
        order = np.concatenate(rows)
        predictions = Predictions(
            np.concatenate(probabilities),
            model.classes_,
            y=table.y[order],
            outlier_score=np.concatenate(outlier),
            row_names=table.row_ids[order],
        )
        answers = np.concatenate(probabilities), table.y[order]
        scores = {
            "accuracy": metrics.accuracy(*answers, classes=model.classes_),
            "balanced_accuracy": metrics.balanced_accuracy(*answers, classes=model.classes_),
            "nll": metrics.negative_log_likelihood(*answers, classes=model.classes_),
            "classes": scores_of_classes(*answers, model.classes_),
        }
        introduction += (
            f"Scores are of {len(order)} rows, each predicted by a classifier fitted without it "
            f"({N_FOLDS} folds, {len(rows)} of them judged); outlier scores are in deviations from the median of the "
            "row's fold."
        )
        if single := int((np.unique(table.y, return_counts=True)[1] == 1).sum()):
            introduction += (
                f" {single} {'class has' if single == 1 else 'classes have'} one row, which is needed to know the "
                "class and so is not judged."
            )
    else:
        _log.warning("every class has one row, so none can be held out: the report has no scores")
        introduction += "Every class has one row, so none could be held out to judge it."
    tables = tables_of_driving_rows(drivers)
    report = _report(model, predictions, f"Classifier of {name}", introduction, tables=tables)
    return write_report(folder, report), scores


def fitted_without(model: Any, table: DataTable, folds: np.ndarray) -> Iterator[tuple[np.ndarray, Any]]:
    """The numbers of the rows of each fold that is judged, and the model fitted anew on all others."""
    assert table.y is not None
    kinds = getattr(model, "columns_", None)  # a fold may have no gap where the others have
    stated = {} if kinds is None or "columns" not in model.get_params() else {"columns": kinds}
    unfitted = clone(model).set_params(**stated)
    judged = range(1 if len(table.y) > HOLD_OUT_ABOVE else N_FOLDS)
    ids = np.asarray([str(name) for name in table.row_ids.tolist()]) if keeps_ids(model) else None
    for fold in judged:
        held_out, stays = np.flatnonzero(folds == fold), folds != fold
        if len(held_out):
            with stage(fold / len(judged), (fold + 1) / len(judged)):
                known = None if ids is None else ids[stays]
                yield held_out, clone(unfitted).fit(take(table.X, stays), table.y[stays], row_id=known)


def _report(
    model: IncrementalClassifier,
    predictions: Predictions | None,
    title: str,
    introduction: str,
    summary: Table | None = None,
    tables: tuple[Table, ...] = (),
) -> Report:
    return Report(
        title=title,
        introduction=introduction,
        summary=summary,
        predictions=predictions,
        trace=getattr(model, "bound_trace_", ()),  # few-shot classifiers tune nothing
        model=facts(model),
        environment=environment(),
        command=command_line(),
        tables=tables,
    )


def stratified_folds(
    y: np.ndarray,  # (N,)
    n_folds: int,
    generator: np.random.Generator,
) -> np.ndarray:
    """Fold of each row, (N,); classes are dealt evenly; the only row of a class gets -1.

    No class of two rows or more has all of them in one fold.
    """
    place = _dealt(y, generator, np.zeros(len(y)))
    return np.where(place < 0, -1, place % n_folds)


def held_out_share(
    y: np.ndarray,  # (N,)
    share: float,  # at most a half
    generator: np.random.Generator,
    parts: np.ndarray,  # (N,) numbers
) -> np.ndarray:
    """Which rows are held out, (N,) bool: so many of classes, and of parts within them, never all rows of a class."""
    place = _dealt(y, generator, parts)
    until, after = (np.ceil(np.round(share * number, 9)) for number in (place, place + 1))
    held: np.ndarray = (place >= 0) & (after > until)
    return held


def _dealt(y: np.ndarray, generator: np.random.Generator, parts: np.ndarray) -> np.ndarray:
    """At which place each row is dealt (N,): class by class, in them part by part; the only row of a class gets -1."""
    place = np.full(len(y), -1)
    dealt = 0
    for label in np.unique(y):
        rows = generator.permutation(np.flatnonzero(y == label))
        if len(rows) > 1:
            place[rows[np.argsort(parts[rows], kind="stable")]] = dealt + np.arange(len(rows))
            dealt += len(rows)
    return place


def facts(model: IncrementalClassifier) -> dict[str, object]:
    """What the classifier became, for the report."""
    found: dict[str, object] = {**_method(model), "temperature": round(float(model.temperature_), 4)}
    noise = float(getattr(model, "label_noise_", 0.0))
    if noise >= LEAST_NOISE:
        found["labels that look random"] = f"{noise:.1%}"
    found |= {"classes": len(model.classes_), "features": int(model.n_features_in_)}
    if math.isfinite(model.log_evidence_):
        found["log evidence (nats)"] = round(float(model.log_evidence_), 3)
    return found


def average_of(members: Iterable[tuple[float, str]]) -> str:
    """The heaviest of members, whose weights and descriptions are given, and the others together."""
    parts = list(members)
    others = parts[_MOST_MEMBERS:]
    shown = [f"{weight:.2f} {what}" for weight, what in parts[:_MOST_MEMBERS]]
    shown += [f"{sum(weight for weight, _ in others):.2f} {len(others)} more together"] if others else []
    return "; ".join(shown)


def seen_as(member: EnsembleMember | NumberEnsembleMember) -> str:
    """How a member's kernel sees rows, in words to be put behind it."""
    nearest = f" by {member.n_neighbours} nearest rows" if member.n_neighbours else ""
    return f"{' of ranks' if member.ranks else ''}{nearest}{', columns by relevance' if member.relevance else ''}"


def _method(model: IncrementalClassifier) -> dict[str, object]:
    """What learns: for a meta-trained learner its name, preset and backbone."""
    from sureshot.estimators.few_shot.classifier import FewShotClassifier
    from sureshot.estimators.gp.classifier import GPClassifier
    from sureshot.estimators.search.classifier import KernelSearchClassifier
    from sureshot.estimators.tree.classifier import TreeGPClassifier

    if isinstance(model, GPClassifier | FewShotClassifier) and hasattr(model, "members_"):
        found: dict[str, object] = {
            "kernel": str(model.kernel_),
            "likelihood": model.likelihood_,
            "inference": model.inference_,
            "predictive rule": model.predictive_,
        }
        if len(model.members_) > 1:  # the above is the heaviest
            found["average of"] = average_of(
                (m.weight, f"{m.likelihood}, {m.kernel}{seen_as(m)}{', integral' if m.rule == 'integral' else ''}")
                for m in model.members_
            )
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
    assert isinstance(learner.network, Backbone)
    found = {"learner": learner.config["name"], "preset": learner.config["preset"]}
    return found | {"backbone": learner.network.config["name"]}

"""Handwritten digits, five labels each of seven classes, three classes unknown: sureshot beside its neighbours.

A second part has the digits arrive in sessions (`sureshot.demo.sessions`); both are on one page.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.utils import Bunch

from sureshot.demo.comparison import HIGHER_IS_BETTER, METRICS, Split, means_and_errors, measure
from sureshot.demo.peers import TemperatureScaledLogisticRegression, logistic_regression, sklearn_gp
from sureshot.demo.sessions import N_BASE, WAY, run_session_demo
from sureshot.demo.sessions import SEEDS as SESSION_SEEDS
from sureshot.demo.sessions import SHOTS as SESSION_SHOTS
from sureshot.estimators.gp.classifier import GPClassifier
from sureshot.evaluation.session_study import SessionStudy, averaged
from sureshot.progress import reported_to, within
from sureshot.report import Measured, Predictions, Report, Table, environment, write_report
from sureshot.report.session_tables import session_curves, session_tables

N_KNOWN = 7
SHOTS = 5
SEEDS = (0, 1, 2, 3, 4)
FIRST_PART = 0.4
"""Of the time of the demo, what is done before digits arrive in sessions."""


@dataclass(frozen=True)
class DemoResult:
    """What the demo measured."""

    table: pd.DataFrame  # a row for each method: means over the seeds and their standard errors
    sessions: pd.DataFrame  # a row for each method on digits in sessions, as `table`
    report: Path  # the HTML report

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "methods": self.table.to_dict("records"),
            "sessions": self.sessions.to_dict("records"),
            "report": self.report.as_posix(),
        }


def few_label_split(digits: Bunch, seed: int) -> tuple[Split, np.ndarray]:
    """Seven known classes with a few labels each, three unknown; also the test rows' positions, known first."""
    rng = np.random.default_rng(seed)
    known = np.sort(rng.permutation(10)[:N_KNOWN])
    train = np.concatenate([rng.choice(np.flatnonzero(digits.target == c), SHOTS, replace=False) for c in known])
    rest = np.setdiff1d(np.arange(len(digits.target)), train)
    is_known = np.isin(digits.target[rest], known)
    test, unknown = rest[is_known], rest[~is_known]
    x = digits.data / 16
    split = Split(x[train], digits.target[train], x[test], digits.target[test], x[unknown])
    return split, np.concatenate([test, unknown])


def methods() -> dict[str, Callable[[], Any]]:
    """The classifiers of the demo, by the name of their row."""
    return {
        "sureshot": GPClassifier,
        "logistic regression": logistic_regression,
        "logistic regression, temperature by CV": lambda: TemperatureScaledLogisticRegression(1.0),
        "scikit-learn GP": lambda: sklearn_gp(64),
    }


def run_demo(
    output: Path,  # folder of ``report.html``
    progress: Callable[[str, float], None],  # told what is being done and the fraction done, 0 to 1
) -> DemoResult:
    """Measure every method on the same splits and write the report."""
    digits = load_digits()
    records = []
    classifiers = methods()
    shown: tuple[GPClassifier, np.ndarray] | None = None
    part = FIRST_PART / (len(SEEDS) * len(classifiers))
    for number, seed in enumerate(SEEDS):
        split, positions = few_label_split(digits, seed)
        for k, (name, make) in enumerate(classifiers.items()):
            label = f"seed {seed}: {name}"
            begin = part * (number * len(classifiers) + k)
            progress(label, begin)
            with reported_to(within(progress, label, begin, part)):
                scores, model = measure(make, split)
            records.append({"method": name, **scores})
            if shown is None:
                shown = model, positions
    table = means_and_errors(records, ["method"])
    assert shown is not None
    study = run_session_demo(within(progress, "sessions", FIRST_PART, 1 - FIRST_PART))
    progress("writing the report", 0.99)
    page = write_report(output, _report(table, digits, *shown, study))
    return DemoResult(table, averaged(study.summary(), ["method"]), page)


def _report(
    table: pd.DataFrame, digits: Bunch, model: GPClassifier, positions: np.ndarray, study: SessionStudy
) -> Report:
    x = digits.data[positions] / 16
    rows = tuple(
        (row["method"], *(Measured(row[name], row[f"{name} s.e."]) for name in METRICS))
        for row in table.to_dict("records")
    )
    better = (None, *("higher" if name in HIGHER_IS_BETTER else "lower" for name in METRICS))
    names = ", ".join(str(c) for c in model.classes_)
    return Report(
        title="Handwritten digits from five labels each",
        introduction=(
            f"{N_KNOWN} of the ten digits are known from {SHOTS} labels each; the other three never occur in training "
            f"and should look like none of these. The table is over {len(SEEDS)} random choices of classes and labels; "
            f"everything below it is sureshot in the first of them (known: {names})."
        ),
        summary=Table(
            ("method", *METRICS),
            rows,
            better,  # type: ignore[arg-type]
            "Means and standard errors over the seeds. Unknown AUROC: how well the outlier score (for the others, one "
            "minus the largest probability) tells unknown digits from known ones.",
        ),
        predictions=Predictions(
            model.predict_proba(x),
            model.classes_,
            digits.target[positions],
            model.uncertainty(x).total,
            model.outlier_score(x),
            digits.images[positions],
            positions,
        ),
        tables=_session_tables(study),
        pictures=(session_curves(study),),
        model={
            "likelihood": model.likelihood_,
            "inference": model.inference_,
            "predictive rule": model.predictive_,
            "temperature": f"{model.temperature_:.3f}",
            "leave-one-out log probability": f"{model.leave_one_out_score_:.3f}",
        },
        environment=environment(),
        command="sureshot demo",
    )


def _session_tables(study: SessionStudy) -> tuple[Table, ...]:
    """What is known and how sure methods are after the last session."""
    known, sure, *_ = session_tables(study)
    introduction = (
        f"{N_BASE} digits are known from half of their rows, the others arrive {WAY} at a time with {SESSION_SHOTS} "
        f"labels each; {len(SESSION_SEEDS)} random orders. "
    )
    return (
        replace(known, heading="Digits that arrive in sessions", note=introduction + known.note),
        replace(sure, heading="Digits that arrive in sessions: probabilities"),
    )

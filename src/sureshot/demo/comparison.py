"""One way to measure all classifiers: fit on a split, score the probabilities, average over repetitions.

The score for "none of these" is the outlier score of a classifier of ours, and for the others one minus the largest
probability.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning

from sureshot.estimators.gp.classifier import GPClassifier
from sureshot.metrics import auroc_unknown, summarise

METRICS = ("accuracy", "nll", "ece", "brier", "unknown AUROC", "fit seconds")
HIGHER_IS_BETTER = {"accuracy", "unknown AUROC"}


@dataclass(frozen=True)
class Split:
    """Training and test rows, and test rows of classes nobody has seen."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    x_unknown: np.ndarray | None = None


def outlier_score_of(model: Any, X: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """The model's own outlier score if it is one of ours, else one minus the largest probability."""
    return model.outlier_score(X) if isinstance(model, GPClassifier) else 1 - probabilities.max(axis=1)


def measure(make: Callable[[], Any], split: Split) -> tuple[dict[str, float], Any]:
    """Fit a fresh model on a split and score it; probabilities are clipped at 1e-6 for the log score."""
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = make().fit(split.x_train, split.y_train)
    seconds = time.perf_counter() - started
    p = model.predict_proba(split.x_test)
    clipped = np.clip(p, 1e-6, None)
    scores = summarise(clipped / clipped.sum(1, keepdims=True), split.y_test, classes=model.classes_)
    found = {"accuracy": scores.accuracy, "nll": scores.nll, "ece": scores.ece, "brier": scores.brier}
    if split.x_unknown is not None:
        known = outlier_score_of(model, split.x_test, p)
        unknown = outlier_score_of(model, split.x_unknown, model.predict_proba(split.x_unknown))
        found["unknown AUROC"] = auroc_unknown(known, unknown)
    found["fit seconds"] = seconds
    return found, model


def means_and_errors(records: Sequence[dict[str, Any]], keys: Sequence[str]) -> pd.DataFrame:
    """Mean and standard error over repetitions of every metric, one row for each combination of `keys`."""
    frame = pd.DataFrame(records)
    metrics = [name for name in METRICS if name in frame]
    rows = []
    for values, group in frame.groupby(list(keys), sort=False):
        row: dict[str, Any] = dict(zip(keys, values if isinstance(values, tuple) else (values,), strict=True))
        for name in metrics:
            row[name] = group[name].mean()
            row[f"{name} s.e."] = group[name].std(ddof=1) / np.sqrt(len(group)) if len(group) > 1 else float("nan")
        rows.append(row)
    return pd.DataFrame(rows)

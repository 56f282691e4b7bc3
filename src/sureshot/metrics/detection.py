"""Does the classifier know when not to answer?

Two questions. Is a point of a class it has never seen scored as more outlying than points of known classes
(`auroc_unknown`)? And if it may decline its least sure answers, how fast do errors vanish (`selective_risk`)?

References: Hanley and McNeil, "The meaning and use of the area under a ROC curve" (1982); Geifman and
El-Yaniv, "Selective classification for deep neural networks" (2017).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from sureshot.metrics.validation import check_prediction, real_numbers


def auroc_unknown(
    scores_known: ArrayLike,  # (n,)
    scores_unknown: ArrayLike,  # (m,)
) -> float:
    """Probability that a random unknown point is scored above a random known one, ties counting half.

    0.5 is chance, 1 perfect separation. It is the area under the ROC curve of "unknown" as the positive class. Larger
    scores mean less like any known class; infinities are allowed.
    """
    known = _check_scores("scores_known", scores_known)
    unknown = _check_scores("scores_unknown", scores_unknown)
    ranks = rankdata(np.concatenate([known, unknown]))
    above = ranks[known.size :].sum() - unknown.size * (unknown.size + 1) / 2
    return float(above / (known.size * unknown.size))


@dataclass(frozen=True)
class RiskCoverage:
    """Error rate among the surest answers, as more answers are given."""

    coverage: NDArray[np.float64]  # (n,), fraction answered: 1/n, 2/n, ..., 1
    risk: NDArray[np.float64]  # (n,), fraction wrong among the answered
    area: float  # mean of ``risk``: the area under the curve (smaller is better)


def selective_risk(
    probabilities: ArrayLike,  # (n, C)
    y: ArrayLike,  # (n,), true column numbers, or labels if ``classes`` is given
    confidence: ArrayLike | None = None,  # (n,), what to sort by, surest largest; the largest probability by default
    *,
    classes: ArrayLike | None = None,  # (C,), the label of each column
) -> RiskCoverage:
    """Risk-coverage curve: answer the surest points first (Geifman and El-Yaniv 2017).

    Equally sure points are answered in random order; the curve is the expectation over such orders, so it does not
    depend on the order of the rows.
    """
    p, truth = check_prediction(probabilities, y, classes)
    n = p.shape[0]
    sureness = p.max(axis=1) if confidence is None else _check_scores("confidence", confidence)
    if sureness.shape != (n,):
        raise ValueError(f"confidence: expected {n} numbers, one for each row, got {sureness.size}.")
    wrong = (p.argmax(axis=1) != truth).astype(np.float64)
    _, group, size = np.unique(-sureness, return_inverse=True, return_counts=True)
    errors_per_group = np.bincount(group, weights=wrong)
    answered = np.arange(1, n + 1)
    errors = np.cumsum(np.repeat(errors_per_group / size, size))
    risk = np.minimum(errors / answered, 1.0)
    return RiskCoverage(answered / n, risk, float(risk.mean()))


def _check_scores(name: str, scores: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(scores)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"{name}: expected a non-empty list of numbers, got shape {values.shape}.")
    values = real_numbers(name, values)
    if np.isnan(values).any():
        raise ValueError(f"{name}: expected numbers, got {int(np.isnan(values).sum())} NaN.")
    return values

"""Is the answer right, and was the probability a good one?

Accuracy looks at the most probable class only. The negative log-likelihood and the Brier score are proper:
their expectation is smallest for the true probabilities, so they cannot be improved by pretending.
`summarise` gives these together with the calibration errors of `sureshot.metrics.calibration`.

References: Brier, "Verification of forecasts expressed in terms of probability" (1950); Gneiting and Raftery,
"Strictly proper scoring rules, prediction, and estimation" (2007).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike

from sureshot.metrics.calibration import DEFAULT_BINS, reliability_curve
from sureshot.metrics.validation import check_prediction


@dataclass(frozen=True)
class Scores:
    """The usual scores of one set of predictions."""

    accuracy: float  # fraction right, 0..1
    nll: float  # mean negative log-likelihood in nats
    brier: float  # mean squared error summed over classes, 0..2
    ece: float  # expected calibration error, 0..1
    mce: float  # maximum calibration error, 0..1
    n: int  # number of predictions

    def as_dict(self) -> dict[str, float | int]:
        """The fields by name, for JSON and tables."""
        return asdict(self)


def accuracy(
    probabilities: ArrayLike,  # (n, C)
    y: ArrayLike,  # (n,), true column numbers, or labels if ``classes`` is given
    *,
    classes: ArrayLike | None = None,  # (C,), the label of each column
) -> float:
    """Fraction of points whose most probable class is the true one (the first of equals counts)."""
    p, truth = check_prediction(probabilities, y, classes)
    return float(np.mean(p.argmax(axis=1) == truth))


def negative_log_likelihood(probabilities: ArrayLike, y: ArrayLike, *, classes: ArrayLike | None = None) -> float:
    """Mean of ``-log p(true class)`` in nats.

    A probability of zero counts as the smallest positive double (708 nats): a finite, disastrous score.
    """
    p, truth = check_prediction(probabilities, y, classes)
    chosen = p[np.arange(p.shape[0]), truth]
    loss = float(-np.mean(np.log(np.maximum(chosen, np.finfo(np.float64).tiny))))
    return loss + 0.0  # turns the perfect predictor's -0.0 into 0.0


def brier(probabilities: ArrayLike, y: ArrayLike, *, classes: ArrayLike | None = None) -> float:
    """Squared error summed over classes, mean over points: 0 at best, 2 at worst (Brier 1950).

    For two classes this is twice the one-column version some libraries give.
    """
    p, truth = check_prediction(probabilities, y, classes)
    chosen = p[np.arange(p.shape[0]), truth]
    others = np.square(p).sum(axis=1) - np.square(chosen)
    return float(np.mean(np.maximum(others, 0.0) + np.square(1.0 - chosen)))


def summarise(
    probabilities: ArrayLike,  # (n, C)
    y: ArrayLike,  # (n,), true column numbers, or labels if ``classes`` is given
    n_bins: int = DEFAULT_BINS,  # bins of the calibration errors
    *,
    min_count: int = 1,  # predictions a bin needs to count in the maximum calibration error
    classes: ArrayLike | None = None,  # (C,), the label of each column
) -> Scores:
    """Accuracy, NLL, Brier, ECE and MCE of one set of predictions."""
    p, truth = check_prediction(probabilities, y, classes)
    curve = reliability_curve(p, truth, n_bins)
    return Scores(
        accuracy=accuracy(p, truth),
        nll=negative_log_likelihood(p, truth),
        brier=brier(p, truth),
        ece=curve.expected_error,
        mce=curve.maximum_error(min_count),
        n=p.shape[0],
    )

"""Is a confidence of 0.8 right eight times in ten?

The confidence of a prediction is its largest probability. Predictions are sorted into equal-width bins (lo,
hi] of confidence; in each, mean confidence is compared with the fraction that was right. The gaps' average
(weighted by count) is the expected calibration error, the largest gap the maximum calibration error, and
the bins themselves the reliability diagram. All predictions are pooled before binning. A confidence of
exactly 1 belongs to the last bin and a confidence of 0 to the first.

Temperature scaling divides the logits by one number T > 0. T is found by the negative log-likelihood, never
by minimising a calibration error, which rewards hiding what the classifier knows.

References: Naeini, Cooper and Hauskrecht, "Obtaining well calibrated probabilities using Bayesian binning"
(2015); Guo et al., "On calibration of modern neural networks" (2017).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_softmax

from sureshot.metrics.validation import check_prediction, real_matrix, true_columns

logger = logging.getLogger(__name__)

DEFAULT_BINS = 15


@dataclass(frozen=True)
class ReliabilityCurve:
    """Confidence against accuracy in equal-width bins."""

    edges: NDArray[np.float64]  # (bins + 1,), bin b is the interval (edges[b], edges[b + 1]]
    count: NDArray[np.int64]  # (bins,), predictions in each bin
    confidence: NDArray[np.float64]  # (bins,), mean confidence; NaN where a bin is empty
    accuracy: NDArray[np.float64]  # (bins,), fraction right; NaN where a bin is empty

    @classmethod
    def from_sums(cls, count: NDArray, confidence: NDArray, right: NDArray) -> ReliabilityCurve:
        """The curve of sums over each bin, (bins,): predictions, their confidence, how many are right."""
        edges = _bin_edges(len(count))
        with np.errstate(invalid="ignore"):  # 0 / 0 is the NaN of an empty bin
            return cls(edges, count.astype(np.int64), confidence / count, right / count)

    @property
    def gap(self) -> NDArray[np.float64]:
        """``|accuracy - confidence|`` of each bin, NaN where empty."""
        return np.abs(self.accuracy - self.confidence)

    @property
    def expected_error(self) -> float:
        """Gaps averaged with the bins' counts as weights."""
        filled = self.count > 0
        return float(np.average(self.gap[filled], weights=self.count[filled]))

    def maximum_error(self, min_count: int = 1) -> float:
        """Largest gap among bins of at least ``min_count`` predictions (0 if there is none)."""
        if min_count < 1:
            raise ValueError(f"min_count: expected a positive integer, got {min_count}.")
        return float(self.gap[self.count >= min_count].max(initial=0.0))


def reliability_curve(
    probabilities: ArrayLike,  # (n, C)
    y: ArrayLike,  # (n,), true column numbers, or labels if ``classes`` is given
    n_bins: int = DEFAULT_BINS,  # 15 by default, the literature's habit, so that numbers compare
    *,
    classes: ArrayLike | None = None,  # (C,), the label of each column
) -> ReliabilityCurve:
    """Mean confidence and accuracy in equal-width bins of confidence."""
    p, truth = check_prediction(probabilities, y, classes)
    return _binned(p.max(axis=1), p.argmax(axis=1) == truth, n_bins)


def expected_calibration_error(
    probabilities: ArrayLike, y: ArrayLike, n_bins: int = DEFAULT_BINS, *, classes: ArrayLike | None = None
) -> float:
    """Gap between confidence and accuracy, averaged over predictions (0 is best, 1 worst)."""
    return reliability_curve(probabilities, y, n_bins, classes=classes).expected_error


def _binned(confidence: NDArray[np.float64], correct: NDArray[np.bool_], n_bins: int) -> ReliabilityCurve:
    if n_bins < 1:
        raise ValueError(f"n_bins: expected a positive integer, got {n_bins}.")
    bin_of = bin_numbers(confidence, n_bins)
    weights = (None, confidence, correct.astype(np.float64))
    return ReliabilityCurve.from_sums(*(np.bincount(bin_of, weights=one, minlength=n_bins) for one in weights))


def bin_numbers(confidence: NDArray[np.float64], n_bins: int) -> NDArray[np.int64]:
    """The number of each confidence's bin (lo, hi], from 0."""
    edges = _bin_edges(n_bins)
    bin_of = (np.searchsorted(edges, confidence, side="left") - 1).clip(0, n_bins - 1)
    return bin_of


def _bin_edges(n_bins: int) -> NDArray[np.float64]:
    return np.arange(n_bins + 1) / n_bins  # correctly rounded, so that 0.2 is the edge 3/15


def fit_temperature(
    logits: ArrayLike,  # (n, C), logits or log-probabilities of held-out points
    y: ArrayLike,  # (n,), true column numbers, or labels if ``classes`` is given
    weight: ArrayLike | None = None,  # (n,), non-negative weights; 2 counts as two equal points
    *,
    bounds: tuple[float, float] = (0.01, 100.0),  # of the temperature: two orders of magnitude each way
    classes: ArrayLike | None = None,  # (C,), the label of each column
) -> float:
    """The temperature T that minimises the negative log-likelihood of ``softmax(logits / T)``.

    The loss is convex in 1/T, so its derivative is bracketed and its only root found by Brent's method. If the
    classifier is right everywhere the loss has no minimum (T would go to 0): the lower bound comes back. If the logits
    say less than nothing (T would go to infinity): the upper bound. If no temperature makes a difference (equal
    logits): 1. Logits of minus infinity, a probability of zero, are read as the smallest positive number.
    """
    scores = _shifted_logits(logits)
    truth = true_columns(y, scores.shape[0], scores.shape[1], classes)
    weights = _check_weight(weight, scores.shape[0])
    low, high = bounds
    if not 0.0 < low < high < np.inf:
        raise ValueError(f"bounds: expected 0 < low < high, got {bounds}.")
    true_score = scores[np.arange(scores.shape[0]), truth]

    def slope(log_inverse: float) -> float:
        """Derivative of the mean loss in 1/T: expected minus observed logit."""
        unnormalised = np.exp(np.exp(log_inverse) * scores)  # rows' maxima are 0: no overflow, sums of at least 1
        expected = np.einsum("nc,nc->n", unnormalised, scores) / unnormalised.sum(axis=1)
        return float(weights @ (expected - true_score))

    coldest, hottest = -np.log(low), -np.log(high)
    slope_coldest, slope_hottest = slope(coldest), slope(hottest)
    if slope_coldest == 0.0 and slope_hottest == 0.0:
        # Either the logits are equal in each row, or all is right by such margins that the slope underflows.
        return float(low) if np.any(scores != 0.0) and np.all(true_score[weights > 0] == 0.0) else 1.0
    if slope_coldest <= 0.0:
        logger.warning("fit_temperature: every temperature above %g is worse; it is the lower bound.", low)
        return float(low)
    if slope_hottest >= 0.0:
        logger.warning("fit_temperature: every temperature below %g is worse; it is the upper bound.", high)
        return float(high)
    return float(np.exp(-brentq(slope, hottest, coldest, xtol=1e-10)))


def likeliest_temperature(
    loss: Callable[[float], float],  # of a temperature: minus the log probability of all labels, in nats
    usual: float,  # the temperature beforehand
    spread: float,  # how far it may be from that: the standard deviation of its logarithm
    bounds: tuple[float, float] | None = None,  # of the temperature; a factor of 400 from the usual one by default
    tolerance: float = 1e-4,  # of its logarithm
) -> float:
    """The most probable temperature where temperatures are log-normal beforehand; for any loss, by its values alone."""
    centre = math.log(usual)
    low, high = (centre - 6.0, centre + 6.0) if bounds is None else map(math.log, bounds)

    def objective(point: float) -> float:
        return loss(math.exp(point)) + 0.5 * ((point - centre) / spread) ** 2

    return math.exp(minimize_scalar(objective, bounds=(low, high), method="bounded", options={"xatol": tolerance}).x)


def apply_temperature(
    logits: ArrayLike,  # (n, C), logits or log-probabilities; minus infinity as in `fit_temperature`
    temperature: float,  # above 1 makes predictions less sure, below 1 surer
) -> NDArray[np.float64]:
    """Normalised log-probabilities ``log softmax(logits / temperature)``, (n, C)."""
    if not (np.isfinite(temperature) and temperature > 0.0):
        raise ValueError(f"temperature: expected a positive number, got {temperature}.")
    return log_softmax(_shifted_logits(logits) / temperature, axis=1)


def _shifted_logits(logits: ArrayLike) -> NDArray[np.float64]:
    """Logits less their row's maximum, with minus infinity replaced by something that can be scaled."""
    values = real_matrix("logits", logits)
    top = values.max(axis=1, keepdims=True)
    if not np.isfinite(top).all():
        row = int(np.flatnonzero(~np.isfinite(top))[0])
        raise ValueError(
            f"logits: expected no NaN, no plus infinity and a finite maximum in each row, row {row} fails."
        )
    values = values - top
    finite = np.where(np.isfinite(values), values, 0.0)
    floor = np.minimum(np.log(np.finfo(np.float64).tiny), finite.min(axis=1, keepdims=True))
    return np.maximum(values, floor)


def _check_weight(weight: ArrayLike | None, n_points: int) -> NDArray[np.float64]:
    """Weights that sum to one."""
    if weight is None:
        return np.full(n_points, 1.0 / n_points)
    values = np.asarray(weight, dtype=np.float64)
    if values.shape != (n_points,):
        raise ValueError(f"weight: expected {n_points} numbers, one for each row, got shape {values.shape}.")
    if not np.isfinite(values).all() or (values < 0).any() or values.sum() <= 0.0:
        raise ValueError("weight: expected finite, non-negative numbers, not all zero.")
    return values / values.sum()

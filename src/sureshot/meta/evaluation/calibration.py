"""Calibration of few-shot predictions, pooled over the queries of all tasks, in named variants.

``none`` is what the learner says. ``temperature`` divides its log-probabilities by one number, found by the negative
log-likelihood of tasks of *validation* classes: never of test classes, and never by minimising a calibration error,
which can be made small by saying the same of everything. ``least_ece`` and ``least_mce``, which some papers print, are
the temperatures of the lowest ECE and MCE on tasks of validation classes.

A calibration error of few queries is biased upward, and the largest gap of any bin is decided by the emptiest bin,
so both come with a standard error from resampling tasks with replacement (a bootstrap of 200).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sureshot.meta.evaluation.estimate import Estimate, Result, mean_over_queries
from sureshot.meta.evaluation.scores import TaskScores
from sureshot.metrics import ReliabilityCurve, apply_temperature, fit_temperature, reliability_curve

RESAMPLES = 200

TEMPERATURES = np.array(sorted(np.geomspace(0.05, 20.0, 151), key=lambda t: abs(np.log(t))))
"""Candidates for the lowest calibration error, four per cent apart; of equals the one nearest to 1 is taken."""

LEAST_ERRORS: Mapping[str, Callable[[ReliabilityCurve], float]] = {
    "least_ece": lambda curve: curve.expected_error,
    "least_mce": lambda curve: curve.maximum_error(),
}
"""The variants that minimise a calibration error of validation tasks, and that error."""


@dataclass(frozen=True)
class Calibration(Result):
    """Scores of probabilities, pooled over all queries of all tasks."""

    variant: str  # "none", "temperature", "least_ece" or "least_mce"
    temperature: float  # 1 for "none"
    nll: Estimate  # in nats
    brier: Estimate  # summed over classes, 0..2
    ece: Estimate  # of equal-width bins (lo, hi]; standard error by resampling tasks
    mce: Estimate  # likewise
    curve: ReliabilityCurve = field(repr=False)

    also = ("bins",)

    @property
    def bins(self) -> ReliabilityCurve:
        """The curve, by its name in JSON."""
        return self.curve


def summarise_calibration(
    scores: TaskScores,
    variant: str = "none",
    temperature: float = 1.0,  # what was applied to the log-probabilities already
    seed: int = 0,  # of the resampling
) -> Calibration:
    """Pool tasks into one set of scores."""
    ece, mce = _resampled_errors(scores, seed)
    curve = pooled_curve(scores)
    return Calibration(
        variant,
        temperature,
        nll=mean_over_queries(scores.log_loss, scores.count),
        brier=mean_over_queries(scores.squared_error, scores.count),
        ece=Estimate(curve.expected_error, ece),
        mce=Estimate(curve.maximum_error(), mce),
        curve=curve,
    )


def pooled_curve(scores: TaskScores) -> ReliabilityCurve:
    """The reliability diagram of all queries."""
    sums = (scores.bin_count, scores.bin_confidence, scores.bin_right)
    return ReliabilityCurve.from_sums(*(one.sum(axis=0) for one in sums))


def _resampled_errors(scores: TaskScores, seed: int) -> tuple[float, float]:
    """Standard errors of ECE and MCE over tasks drawn with replacement."""
    n_tasks = len(scores.count)
    if n_tasks < 2:
        return float("nan"), float("nan")
    generator = np.random.default_rng(seed)
    times = generator.multinomial(n_tasks, np.full(n_tasks, 1.0 / n_tasks), size=RESAMPLES).astype(np.float64)
    count = times @ scores.bin_count  # (resamples, bins)
    gap = np.abs(times @ (scores.bin_right - scores.bin_confidence))
    ece = gap.sum(axis=1) / count.sum(axis=1)
    mce = (gap / np.maximum(count, 1.0)).max(axis=1)
    return float(ece.std(ddof=1)), float(mce.std(ddof=1))


def at_temperature(
    probabilities: NDArray[np.float64],  # (T, Q, C)
    temperature: float,
    present: NDArray[np.bool_] | None = None,  # (T, C), False for classes that a task lacks; they keep probability 0
) -> NDArray[np.float64]:
    """``softmax(log p / temperature)`` over the classes a task has; see `apply_temperature`."""
    tempered = np.exp(apply_temperature(_log(probabilities), temperature)).reshape(probabilities.shape)
    if present is None:
        return tempered
    tempered = np.where(present[:, None, :], tempered, 0.0)
    return tempered / tempered.sum(axis=-1, keepdims=True)


def temperature_of(
    probabilities: NDArray[np.float64], y: NDArray[np.int64], weight: NDArray[np.float64] | None = None
) -> float:
    """The temperature of lowest negative log-likelihood for probabilities (n, C) of classes ``y`` (n,)."""
    return fit_temperature(_log(probabilities), y, weight)


def temperature_of_least_error(
    probabilities: NDArray[np.float64], y: NDArray[np.int64], error: Callable[[ReliabilityCurve], float]
) -> float:
    """The temperature of lowest calibration error, among `TEMPERATURES`: such an error has many local minima."""
    logs = _log(probabilities)
    found = [error(reliability_curve(np.exp(apply_temperature(logs, t)), y)) for t in TEMPERATURES]
    return float(TEMPERATURES[int(np.argmin(found))])


def _log(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithms as rows (n, C), minus infinity for a probability of zero."""
    with np.errstate(divide="ignore"):
        return np.log(np.asarray(probabilities, dtype=np.float64)).reshape(-1, probabilities.shape[-1])

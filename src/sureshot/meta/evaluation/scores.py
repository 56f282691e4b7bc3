"""What is kept of a task's predictions: sums over its queries, not the predictions themselves.

Three thousand tasks of 75 ways would be gigabytes of probabilities. Every score reported here is a function of
sums over queries (right answers, log-loss, squared error, and for each bin of confidence the count, the confidence
and the right answers), so a batch of tasks is reduced to these sums, and pooling tasks is adding them. Kept apart by
task, the sums also give standard errors with tasks as independent units, and paired differences between learners.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from sureshot.metrics import DEFAULT_BINS
from sureshot.metrics.calibration import bin_numbers
from sureshot.metrics.validation import SUM_TOLERANCE


@dataclass(frozen=True)
class TaskScores:
    """Sums over the queries of each of T tasks."""

    count: NDArray[np.float64]  # (T,), queries
    right: NDArray[np.float64]  # (T,), queries whose most probable class is the true one (the first of equals counts)
    # (T,), sum of -log p(true class), nats; a probability of zero counts as the smallest positive double
    log_loss: NDArray[np.float64]
    squared_error: NDArray[np.float64]  # (T,), sum of the squared error summed over classes
    bin_count: NDArray[np.float64]  # (T, bins), queries by equal-width bins (lo, hi] of the largest probability
    bin_confidence: NDArray[np.float64]  # (T, bins), their summed confidence
    bin_right: NDArray[np.float64]  # (T, bins), how many of them were right

    @property
    def accuracy(self) -> NDArray[np.float64]:
        """Accuracy of each task, (T,)."""
        return self.right / self.count

    @property
    def nll(self) -> NDArray[np.float64]:
        """Mean negative log-likelihood of each task, (T,)."""
        return self.log_loss / self.count

    def select(self, index: slice) -> TaskScores:
        """Some of the tasks."""
        return TaskScores(**{f.name: getattr(self, f.name)[index] for f in fields(self)})


def join(parts: Iterable[TaskScores]) -> TaskScores:
    """All tasks of several results, in order."""
    listed = list(parts)
    return TaskScores(**{f.name: np.concatenate([getattr(p, f.name) for p in listed]) for f in fields(TaskScores)})


def score_tasks(
    probabilities: NDArray[np.float64],  # (T, Q, C)
    y: NDArray[np.int64],  # (T, Q), true classes
    mask: NDArray[np.bool_] | None = None,  # (T, Q), False for padded queries
    n_bins: int = DEFAULT_BINS,  # bins of confidence
) -> TaskScores:
    """Sums over the queries of each task, whose probabilities must be finite and sum to 1 (`ValueError`)."""
    p = np.asarray(probabilities, dtype=np.float64)
    real = np.ones(y.shape, dtype=bool) if mask is None else mask
    sums = np.where(real, p.sum(axis=-1), 1.0)
    if not (np.abs(sums - 1.0) <= SUM_TOLERANCE).all():  # also false for NaN
        task, query = (int(i) for i in np.argwhere(~(np.abs(sums - 1.0) <= SUM_TOLERANCE))[0])
        raise ValueError(
            f"the learner's class probabilities must be finite and sum to 1, but those of query {query} of task "
            f"{task} of a batch sum to {sums[task, query]:.6g}: has its training diverged?"
        )
    kept = real.astype(np.float64)
    p = p.clip(0.0, 1.0)
    chosen = np.take_along_axis(p, np.where(real, y, 0)[..., None], -1)[..., 0]
    confidence = p.max(axis=-1)
    right = (p.argmax(axis=-1) == y) * kept
    squared = np.maximum(np.square(p).sum(axis=-1) - np.square(chosen), 0.0) + np.square(1.0 - chosen)
    n_tasks = len(p)
    flat = (np.arange(n_tasks)[:, None] * n_bins + bin_numbers(confidence, n_bins)).ravel()

    def binned(values: NDArray[np.float64]) -> NDArray[np.float64]:
        sums = np.bincount(flat, weights=values.ravel(), minlength=n_tasks * n_bins).astype(np.float64)
        return sums.reshape(n_tasks, n_bins)

    return TaskScores(
        count=kept.sum(axis=1),
        right=right.sum(axis=1),
        log_loss=(-np.log(np.maximum(chosen, np.finfo(np.float64).tiny)) * kept).sum(axis=1),
        squared_error=(squared * kept).sum(axis=1),
        bin_count=binned(kept),
        bin_confidence=binned(confidence * kept),
        bin_right=binned(right),
    )

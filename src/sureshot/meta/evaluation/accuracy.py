"""Few-shot accuracy: mean over episodes, with an interval, and the papers' deviation between batches of episodes.

Two spreads are common in the literature and are not comparable. The 95 % interval of the mean over episodes shrinks
with their number. The standard deviation of the means of (five) batches of (600) episodes says how much a result
of 600 episodes moves, and does not shrink. Both are given, under their names.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sureshot.meta.evaluation.estimate import Estimate, mean_over_tasks


@dataclass(frozen=True)
class Accuracy(Estimate):
    """Mean accuracy over many episodes, and of batches of them."""

    batch_means: tuple[float, ...]  # means of consecutive batches of episodes

    also = (*Estimate.also, "batch_deviation")

    @property
    def batch_deviation(self) -> float:
        """Standard deviation of the batches' means (n - 1 in the denominator); NaN for a single batch."""
        return float(np.std(self.batch_means, ddof=1)) if len(self.batch_means) > 1 else math.nan


def summarise_accuracy(
    per_task: NDArray[np.float64],  # (T,)
    n_batches: int,  # batches for the papers' deviation; sizes differ by at most one if T is not a multiple
) -> Accuracy:
    """Accuracy from that of each task, (T,), in the order in which they were drawn."""
    means = tuple(float(part.mean()) for part in np.array_split(per_task, n_batches))
    whole = mean_over_tasks(per_task)
    return Accuracy(whole.mean, whole.standard_error, means)

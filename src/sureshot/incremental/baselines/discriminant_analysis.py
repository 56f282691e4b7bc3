"""Streaming linear discriminant analysis: class means and one covariance, both running, rows passed once.

Each row moves its class's mean and the shared covariance (`DiscriminantState`), of rows around the means of their
classes as these are now (Welford's update). Nothing else is kept. The covariance is shrunk towards a multiple of the
identity before it is inverted; with few rows for each column that decides.

Its scores are Gaussian log densities under that covariance, which are far too sure of themselves in many dimensions. So
they are divided by a temperature that the base session's left-out rows choose; 1 takes them as they are.

Reference: Hayes & Kanan, "Lifelong machine learning with deep streaming linear discriminant analysis" (2020).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sureshot.incremental.baselines.base import Baseline
from sureshot.incremental.method import Memory
from sureshot.incremental.temperature import left_out_temperature

SHRINKAGE = 1e-4
"""Share of the identity in the covariance, as published."""


class DiscriminantState(NamedTuple):
    """All that is kept."""

    means: Tensor  # (C, D)
    counts: Tensor  # (C,)
    scatter: Tensor  # (D, D), summed over rows; divided by the number of rows it is the covariance
    temperature: float


class StreamingDiscriminantAnalysis(Baseline[DiscriminantState]):
    """Running means and covariance."""

    name = "streaming_lda"

    def __init__(
        self,
        shrinkage: float = SHRINKAGE,
        temperature: float | None = None,  # None: that of left-out rows of the base session
    ) -> None:
        if not 0 < shrinkage <= 1:
            raise ValueError(f"shrinkage must be above 0 and at most 1, got {shrinkage}")
        if temperature is not None and not 0 < temperature < float("inf"):
            raise ValueError(f"temperature must be positive and finite, got {temperature}")
        self.shrinkage, self.temperature = shrinkage, temperature

    def _learnt(self, x: Tensor, y: Tensor, n_classes: int) -> DiscriminantState:
        def scores_of_others(queries: Tensor, rows: Tensor, classes: Tensor) -> Tensor:
            return self._scores(_from_nothing(rows, classes, n_classes), queries)

        chosen = self.temperature
        if chosen is None:
            chosen = left_out_temperature(x, y, scores_of_others, x.shape[1] ** 0.5)
        return _from_nothing(x, y, n_classes)._replace(temperature=chosen)

    def _grown(self, state: DiscriminantState, x: Tensor, y: Tensor, n_classes: int) -> DiscriminantState:
        more = n_classes - len(state.counts)
        means = torch.cat([state.means, x.new_zeros(more, x.shape[1])])
        return _streamed(state._replace(means=means, counts=torch.cat([state.counts, x.new_zeros(more)])), x, y)

    def _scores(self, state: DiscriminantState, x: Tensor) -> Tensor:
        means = state.means - state.means[:1]  # differences first, so that far rows keep their digits
        weights = torch.cholesky_solve(means.mT, self._factor(state)).mT  # (C, D)
        middle = (state.means + state.means[:1]) / 2
        return (x @ weights.mT - (middle * weights).sum(-1)) / state.temperature

    def _outlier(self, state: DiscriminantState, x: Tensor) -> Tensor:
        """Squared Mahalanobis distance to the nearest class mean."""
        factor = self._factor(state)
        rows, means = (torch.linalg.solve_triangular(factor, part.mT, upper=False).mT for part in (x, state.means))
        return torch.cdist(rows, means, compute_mode="donot_use_mm_for_euclid_dist").amin(-1).square()

    def _memory(self, state: DiscriminantState, n_classes: int) -> Memory:
        return Memory(state.scatter.numel() + 1, state.means.numel() + state.counts.numel(), n_classes)

    def _factor(self, state: DiscriminantState) -> Tensor:
        """Cholesky factor of the shrunk covariance; the identity's part is in units of the rows' mean variance."""
        covariance = state.scatter / state.counts.sum()
        size = covariance.diagonal().mean()
        size = size if float(size) > 0 else torch.ones_like(size)  # a row for each class says nothing of spread
        eye = torch.eye(len(covariance), dtype=covariance.dtype)
        return torch.linalg.cholesky((1 - self.shrinkage) * covariance + self.shrinkage * size * eye)


def _from_nothing(x: Tensor, y: Tensor, n_classes: int) -> DiscriminantState:
    """The base session at once: the covariance around the final means, as published for it."""
    counts = torch.bincount(y, minlength=n_classes).to(x.dtype)
    means = x.new_zeros(n_classes, x.shape[1]).index_add(0, y, x) / counts.clamp_min(1).unsqueeze(-1)
    apart = x - means[y]
    return DiscriminantState(means, counts, apart.mT @ apart, 1.0)


def _streamed(state: DiscriminantState, x: Tensor, y: Tensor) -> DiscriminantState:
    """Row by row; the first row of a class is its mean, and says nothing of the covariance."""
    means, counts, scatter = state.means.clone(), state.counts.clone(), state.scatter.clone()
    for row, own in zip(x, y.tolist(), strict=True):
        apart = row - means[own]
        n = counts[own]
        if n > 0:
            scatter += torch.outer(apart, apart) * (n / (n + 1))
        means[own] += apart / (n + 1)
        counts[own] += 1
    return state._replace(means=means, counts=counts, scatter=scatter)

"""Incremental least squares: a Gaussian process on -1/+1 targets; rows are appended, nothing is factorised again.

All classes share one kernel matrix, so one Cholesky factor serves them: a new row borders it in O(N^2)
(`append_to_factor`), a new class is one more right-hand side. The prior mean is -1, "not this class", so rows
that came before a class are -1 to it at no cost.

Rows are bounded: `rows_per_class` of each class are kept, the first ones chosen by herding, which keeps
their mean near that of all; a class that has so many takes no more. With as many rows of old classes as of new ones
neither is preferred: on sentence embeddings with five-shot novel classes, five rows of each base class gave better
accuracy after all sessions than twenty. The base session's other rows choose the temperature.

Reference: Rasmussen & Williams 2006, section 6.5.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sureshot.gaussian.algebra import append_to_factor
from sureshot.incremental.baselines.base import Baseline
from sureshot.incremental.herding import herded_rows
from sureshot.incremental.method import Memory
from sureshot.incremental.temperature import loss_and_temperature
from sureshot.kernels.compositions import UnitSphere
from sureshot.kernels.expression import Expression
from sureshot.kernels.leaves import RBF
from sureshot.kernels.unit_sphere import unit_rows
from sureshot.ranges import check_counts, check_positive

ROWS_PER_CLASS, LENGTHSCALE, NOISE = 5, 1.0, 0.1

_DEFAULT_TEMPERATURE = 0.1  # where the base session has no row to spare; latents are between -1 and 1


class Regression(NamedTuple):
    """All that is kept."""

    x: Tensor  # (N, D)
    y: Tensor  # (N,)
    factor: Tensor  # (N, N), Cholesky factor of kernel matrix plus noise
    weights: Tensor  # (N, C), of each class's latent, less the prior mean
    temperature: float


class IncrementalLeastSquares(Baseline[Regression]):
    """One regression for each class, one factor for all."""

    name = "least_squares"

    def __init__(
        self,
        rows_per_class: int = ROWS_PER_CLASS,
        lengthscale: float = LENGTHSCALE,  # of the RBF kernel, between rows scaled to length one
        noise: float = NOISE,  # variance, beside a latent of variance 1
    ) -> None:
        check_counts(1, rows_per_class=rows_per_class)
        check_positive(lengthscale=lengthscale, noise=noise)
        self.rows_per_class, self.lengthscale, self.noise = rows_per_class, lengthscale, noise

    def _learnt(self, x: Tensor, y: Tensor, n_classes: int) -> Regression:
        kept = self._kept(x, y, torch.zeros(n_classes, dtype=torch.int64))
        rows, labels = x[kept], y[kept]
        factor = torch.linalg.cholesky(self._noisy(rows))
        state = _solved(rows, labels, factor, n_classes, 1.0)
        spare = torch.ones(len(x), dtype=torch.bool).index_fill(0, kept, False)
        temperature = _DEFAULT_TEMPERATURE
        if bool(spare.any()) and n_classes > 1:
            temperature = loss_and_temperature(self._latents(state, x[spare]), y[spare], temperature)[1]
        return state._replace(temperature=temperature)

    def _grown(self, state: Regression, x: Tensor, y: Tensor, n_classes: int) -> Regression:
        kept = self._kept(x, y, torch.bincount(state.y, minlength=n_classes))
        rows, labels = x[kept], y[kept]
        if not len(rows):
            return state
        factor = append_to_factor(state.factor, self._kernel(state.x, rows), self._noisy(rows))
        both = torch.cat([state.x, rows]), torch.cat([state.y, labels])
        return _solved(*both, factor, n_classes, state.temperature)

    def _scores(self, state: Regression, x: Tensor) -> Tensor:
        return self._latents(state, x) / state.temperature

    def _outlier(self, state: Regression, x: Tensor) -> Tensor:
        """Minus the largest latent: -1 for the centre of a class, 1 far from all."""
        return -self._latents(state, x).amax(-1)

    def _memory(self, state: Regression, n_classes: int) -> Memory:
        """Rows, labels and weights; the factor, shared by the classes, has N (N + 1) / 2 numbers."""
        n = len(state.y)
        return Memory(n * (n + 1) // 2 + 1, state.x.numel() + n + state.weights.numel(), n_classes)

    @property
    def _kernel(self) -> Expression:
        return UnitSphere(RBF(torch.tensor(self.lengthscale, dtype=torch.float64)))

    def _noisy(self, rows: Tensor) -> Tensor:
        return self._kernel(rows, rows) + self.noise * torch.eye(len(rows), dtype=rows.dtype)

    def _latents(self, state: Regression, x: Tensor) -> Tensor:
        return self._kernel(state.x, x).mT @ state.weights - 1

    def _kept(self, x: Tensor, y: Tensor, have: Tensor) -> Tensor:
        """Numbers of the rows to keep, where classes have so many already."""
        return herded_rows(unit_rows(x), y, self.rows_per_class - have)


def _solved(x: Tensor, y: Tensor, factor: Tensor, n_classes: int, temperature: float) -> Regression:
    """With the weights of all classes, O(N^2) each."""
    targets = torch.nn.functional.one_hot(y, n_classes).to(x.dtype) * 2  # above the prior mean
    return Regression(x, y, factor, torch.cholesky_solve(targets, factor), temperature)

"""Mixtures of normals: what a regression answers. Where members disagree no single normal would say so."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp, ndtr, ndtri

_STEPS = 60  # of bisection: halves an interval to the last digit


@dataclass(frozen=True)
class NormalMixture:
    """Of n numbers of P targets each, independent of each other."""

    weight: np.ndarray  # (M,), sum 1; or (M, n) where each number has its own
    means: np.ndarray  # (M, n, P)
    deviations: np.ndarray  # (M, n, P)

    @property
    def mean(self) -> np.ndarray:
        """(n, P)."""
        return self._averaged(self.means)

    @property
    def deviation(self) -> np.ndarray:
        """Standard deviations (n, P): what members expect, and how they differ."""
        within = self._averaged(self.deviations**2)
        between = self._averaged((self.means - self.mean) ** 2)
        found: np.ndarray = np.sqrt(within + between)
        return found

    def log_density(self, y: np.ndarray) -> np.ndarray:
        """Of numbers (n, P), (n, P), in nats."""
        z = (y - self.means) / self.deviations
        logs = -0.5 * (z**2 + np.log(2 * np.pi)) - np.log(self.deviations)
        found: np.ndarray = logsumexp(logs, axis=0, b=self.weight.reshape(len(self.weight), -1, 1))
        return found

    def errors(self, y: np.ndarray) -> np.ndarray:
        """How far numbers (n, P) are above the mean, in deviations."""
        found: np.ndarray = (y - self.mean) / self.deviation
        return found

    def cumulative(self, y: np.ndarray) -> np.ndarray:
        """The probability (n, P) of less than numbers (n, P)."""
        return self._averaged(ndtr((y - self.means) / self.deviations))

    def quantile(self, q: float) -> np.ndarray:
        """The numbers (n, P) that a share q is less than."""
        ends = self.means + ndtri(q) * self.deviations  # of each member; that of the mixture lies between them
        low, high = ends.min(axis=0), ends.max(axis=0)
        for _ in range(_STEPS if len(self.weight) > 1 else 0):
            middle = 0.5 * (low + high)
            below = self.cumulative(middle) < q
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        found: np.ndarray = 0.5 * (low + high)
        return found

    def sample(self, n_samples: int, rng: np.random.Generator) -> np.ndarray:
        """Draws (n, P, n_samples), one row and target independent of the others; weights are those of all."""
        shape = (*self.means.shape[1:], n_samples)
        member = rng.choice(len(self.weight), size=shape, p=self.weight)
        parts = (np.moveaxis(part, 0, -1) for part in (self.means, self.deviations))
        mean, deviation = (np.take_along_axis(part, member, -1) for part in parts)
        return mean + deviation * rng.standard_normal(shape)

    def _averaged(self, values: np.ndarray) -> np.ndarray:
        """Of values (M, n, P), (n, P)."""
        weight = self.weight.reshape(len(self.weight), -1)
        found: np.ndarray = np.einsum("mn,mnp->np", np.broadcast_to(weight, values.shape[:2]), values)
        return found

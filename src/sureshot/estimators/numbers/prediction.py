"""Predicted numbers in the user's units: a mixture of normals on the scale on which numbers are learnt."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sureshot.estimators.numbers.mixture import NormalMixture
from sureshot.estimators.numbers.target_scale import TargetScale

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(24)

_OUTERMOST = 0.001


@dataclass(frozen=True)
class Prediction:
    """Of n rows and P targets."""

    scaled: NormalMixture
    scale: TargetScale
    has_tails: bool = False  # heavier than a normal's

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances (n, P), by quadrature over each normal where the scale is bent.

        Numbers with tails have no mean there: beyond the outermost thousandths they count as these.
        """
        if self.scale.transform == "none":
            unit = self.scale.unit
            return self.scale.back(self.scaled.mean), (unit * self.scaled.deviation) ** 2
        weight = _WEIGHTS / _WEIGHTS.sum()
        nodes = self.scaled.means + _NODES[:, None, None, None] * self.scaled.deviations  # (K, M, n, P)
        if self.has_tails:
            nodes = nodes.clip(self.scaled.quantile(_OUTERMOST), self.scaled.quantile(1 - _OUTERMOST))
        y = self.scale.back(nodes)
        mean = np.einsum("k,m,kmnp->np", weight, self.scaled.weight, y)
        return mean, np.einsum("k,m,kmnp->np", weight, self.scaled.weight, (y - mean) ** 2)

    @property
    def mean(self) -> np.ndarray:
        """(n, P)."""
        return self._moments[0]

    @property
    def deviation(self) -> np.ndarray:
        """Standard deviations (n, P)."""
        found: np.ndarray = np.sqrt(self._moments[1])
        return found

    def log_density(self, y: np.ndarray) -> np.ndarray:
        """Of numbers (n, P), (n, P), in nats per unit of the user's."""
        if self.scale.transform == "log" and (y <= 0).any():
            known = self.log_density(np.where(y > 0, y, 1.0))
            return np.where(y > 0, known, -np.inf)
        return self.scaled.log_density(self.scale(y)) + self.scale.log_slope(y)

    def quantile(self, q: float) -> np.ndarray:
        """The numbers (n, P) that a share q is less than."""
        return self.scale.back(self.scaled.quantile(q))

    def interval(self, within: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ends (n, P) of so many deviations (P,) to both sides, on the scale on which numbers are learnt."""
        mean, deviation = self.scaled.mean, within * self.scaled.deviation
        return self.scale.back(mean - deviation), self.scale.back(mean + deviation)

    def errors(self, y: np.ndarray) -> np.ndarray:
        """How far off numbers (n, P) are, in deviations, on the scale on which they are learnt."""
        return np.abs(self.scaled.errors(self.scale(y)))

    def sample(self, n_samples: int, rng: np.random.Generator) -> np.ndarray:
        """Draws (n, P, n_samples), one row and target independent of the others."""
        return np.moveaxis(self.scale.back(np.moveaxis(self.scaled.sample(n_samples, rng), -1, 0)), 0, -1)

"""The scale on which numbers are learnt: as they are, their logarithms, or a power of Yeo and Johnson; standardised.

Densities in units of the user's numbers have the Jacobian of the scale, so that scales can be compared by them.

Reference: Yeo & Johnson 2000.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from scipy import special, stats

Transform = Literal["none", "log", "yeo_johnson"]
TRANSFORMS: tuple[str, ...] = get_args(Transform)
_CONSTANT = 1e-12
_POWERS = (0.0, 2.0)  # beyond, a mean may not exist: the inverse is bent more than an exponential
_FARTHEST = 700.0  # logarithms of numbers that can be told


@dataclass(frozen=True)
class TargetScale:
    """Of P targets, each with its own numbers: ``((T((y - centre) / unit) - mean) / deviation``."""

    transform: str
    centre: np.ndarray  # (P,), 0 of logarithms
    unit: np.ndarray  # (P,), positive
    power: np.ndarray  # (P,), Yeo & Johnson's; 1 changes nothing
    mean: np.ndarray  # (P,)
    deviation: np.ndarray  # (P,), positive

    @classmethod
    def of(cls, y: np.ndarray, weight: np.ndarray, transform: str = "none") -> TargetScale:
        """Of numbers (n, P) of rows with weights (n,); one that does not vary has deviation 1, of one row its size."""
        zeros, ones = np.zeros(y.shape[1]), np.ones(y.shape[1])
        largest = np.maximum(np.abs(y).max(axis=0), np.finfo(float).tiny)
        mean, deviation = (largest * part for part in _standard(y / largest, weight))
        constant = deviation <= _CONSTANT * largest
        usual = np.where((len(y) == 1) & (y[0] != 0), largest, 1.0)
        deviation = np.where(constant, usual, deviation)
        if transform == "log":
            plain = cls("log", zeros, ones, ones, zeros, ones)
        else:
            powers = ones if transform == "none" else np.array([_power(one) for one in ((y - mean) / deviation).T])
            plain = cls(transform, mean, deviation, powers, zeros, ones)
            if transform == "none":
                return plain
        mean, deviation = _standard(plain(y), weight)
        return cls(transform, plain.centre, plain.unit, plain.power, mean, np.where(constant, 1.0, deviation))

    def check_parts(self) -> None:
        """ValueError for numbers that are no scale."""
        parts = (self.centre, self.unit, self.power, self.mean, self.deviation)
        if self.transform not in TRANSFORMS or any(part.shape != self.mean.shape for part in parts):
            raise ValueError("malformed scale of targets")
        if self.mean.ndim != 1 or not (self.deviation > 0).all() or not (self.unit > 0).all():
            raise ValueError("malformed scale of targets")

    def __call__(self, y: np.ndarray) -> np.ndarray:
        """Numbers (..., P) as they are learnt; -inf where there is no logarithm."""
        if self.transform == "log":
            with np.errstate(divide="ignore"):
                found = np.log(np.maximum(y, 0.0))
        else:
            u = (y - self.centre) / self.unit
            found = u if self.transform == "none" else np.sign(u) * special.boxcox1p(np.abs(u), self._powers(u))
        return (found - self.mean) / self.deviation

    def back(self, z: np.ndarray) -> np.ndarray:
        """Numbers (..., P) in the user's units, from those on the scale."""
        u = z * self.deviation + self.mean
        if self.transform == "log":
            return np.exp(np.minimum(u, _FARTHEST))
        if self.transform != "none":
            roots = special.inv_boxcox1p(np.abs(u), self._powers(u))
            u = np.sign(u) * np.minimum(roots, np.exp(_FARTHEST))
        return u * self.unit + self.centre

    def log_slope(self, y: np.ndarray) -> np.ndarray:
        """Logarithms (..., P) of how much the scale moves with numbers: what densities on it lack."""
        flat = -np.log(self.unit * self.deviation)
        if self.transform == "log":
            return flat - np.log(np.maximum(y, np.finfo(float).tiny))
        u = (y - self.centre) / self.unit
        slope: np.ndarray = flat + np.sign(u) * (self.power - 1) * np.log1p(np.abs(u))
        return slope

    def _powers(self, u: np.ndarray) -> np.ndarray:
        """Box & Cox's of sizes (..., P), as Yeo & Johnson's goes by the sign."""
        return np.where(u < 0, 2 - self.power, self.power)


def _standard(y: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean = np.average(y, axis=0, weights=weight)
    return mean, np.sqrt(np.average((y - mean) ** 2, axis=0, weights=weight))


def _power(u: np.ndarray) -> float:
    """By maximum likelihood of standardised numbers (n,)."""
    if len(np.unique(u)) < 3:
        return 1.0
    return float(np.clip(stats.yeojohnson_normmax(u), *_POWERS))

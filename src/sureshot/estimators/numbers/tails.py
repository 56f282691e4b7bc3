"""Noise with heavy tails: Student's t as a scale mixture, so that a few wild numbers drive nothing.

``e | l ~ N(0, s^2 / l)``, ``l ~ Gamma(nu / 2, nu / 2)``: a row whose left-out number is z deviations off has
``E[l] = (nu + 1) / (nu + z^2)``, which multiplies its weight; the noise of a number to come is a mixture of normals.

Reference: Lange, Little & Taylor 1989.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

DEGREES = (2.0, 4.0, 8.0)
MARGIN = 2.0  # standard errors by which what is not usual must be ahead
_SHARES = np.array([0, 1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.05, 0.15, 0.3, 0.5, 0.7, 0.9, 1.0])


def is_ahead(gain: np.ndarray) -> bool:
    """Whether gains (n,) of left-out rows are more than luck."""
    return float(gain.mean()) > MARGIN * float(gain.std()) / math.sqrt(len(gain))


def trust(z: np.ndarray, degrees: float) -> np.ndarray:
    """What weights of rows are multiplied by, whose numbers are z deviations off."""
    found: np.ndarray = (degrees + 1) / (degrees + z**2)
    return found


def noise_scales(degrees: float) -> tuple[np.ndarray, np.ndarray]:
    """What the variance of the noise is multiplied by in normals, and their weights, each (K,).

    By shares of the gamma variable, the smaller the wilder the numbers that they stand for.
    """
    if math.isinf(degrees):
        return np.ones(1), np.ones(1)
    middles = np.concatenate(
        [[0.1 * _SHARES[1]], np.sqrt(_SHARES[1:5] * _SHARES[2:6]), 0.5 * (_SHARES[5:-1] + _SHARES[6:])]
    )
    found: np.ndarray = 0.5 * degrees / stats.gamma.ppf(middles, 0.5 * degrees)
    return found, np.diff(_SHARES)


def degrees_of(z: np.ndarray) -> tuple[float, float]:
    """Degrees of freedom of left-out errors (n,) in deviations, and their scale; infinity unless tails are clear."""
    if len(z) < 2 or not z.any():
        return math.inf, 1.0
    normal = stats.norm.logpdf(z, 0, math.sqrt(np.mean(z**2)))
    best = (math.inf, 1.0, 0.0)
    for degrees in DEGREES:
        scale = scale_of(z, degrees)
        gain = stats.t.logpdf(z / scale, degrees) - math.log(scale) - normal
        if is_ahead(gain) and gain.mean() > best[2]:
            best = (degrees, scale, float(gain.mean()))
    return best[:2]


def scale_of(z: np.ndarray, degrees: float) -> float:
    """Of errors (n,) with tails, by maximum likelihood: the fixed point of a weighted variance."""
    square = float(np.mean(z**2))
    for _ in range(100):
        square = max(float(np.mean((degrees + 1) * z**2 / (degrees + z**2 / square))), 1e-12)
    return math.sqrt(square)

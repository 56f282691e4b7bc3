"""Draws of few labels; what sets say of the temperature at one for each class, and formulas that predict it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.spatial.distance import pdist
from scipy.special import log_softmax

from sureshot.estimators.base import IncrementalClassifier

Array = NDArray[Any]

LOGS = np.linspace(-4, 3, 71)
"""Of temperatures that are tried."""


@dataclass(frozen=True)
class OneShotSet:
    """What a set says of the temperature at one label."""

    data: str
    kind: str  # "embeddings" or "tables"
    size: float  # classes of embeddings, columns of tables
    losses: Array  # (T,), mean log loss at temperatures exp(LOGS)
    further: tuple[float, ...] = ()  # of the support: logarithm of the number of classes, spread of similarities
    in_use: float = math.nan  # mean log loss as one setting is in use

    def loss(self, factor: float, power: float, *further: float) -> float:
        """At the temperature of a formula: a factor, a power of the size, and slopes by what else is known."""
        log = math.log(factor) + power * math.log(self.size) + float(np.dot(further, self.further[: len(further)]))
        return float(np.interp(log, LOGS, self.losses))


def drawn(x: Array, y: Array, shots: int, n_test: int, seed: int) -> tuple[Array, Array, Array, Array]:
    """Rows to learn from with labels, others to test on with theirs, at most `n_test`; of classes that have enough."""
    generator = np.random.default_rng(seed)
    classes, counts = np.unique(y, return_counts=True)
    parts = [generator.permutation(np.flatnonzero(y == label)) for label in classes[counts >= shots + 2]]
    train = np.concatenate([part[:shots] for part in parts])
    test = generator.permutation(np.concatenate([part[shots:] for part in parts]))[:n_test]
    return x[train], y[train], x[test], y[test]


def spread_of_similarities(x: Array) -> float:
    """Of rows (n, D) with all columns alike: deviation of the distances between pairs, relative to their mean."""
    varying = x[:, x.std(axis=0) > 0]
    distances = pdist((varying - varying.mean(0)) / varying.std(0))
    return float(distances.std() / distances.mean()) if len(distances) > 1 else 0.0


def fitted_formula(sets: list[OneShotSet], n_further: int = 0) -> tuple[float, ...]:
    """Factor, power and slopes that suit sets on average."""

    def excess(values: Array) -> float:
        losses = [part.loss(math.exp(values[0]), *values[1:]) - part.losses.min() for part in sets]
        return float(np.mean(losses))

    start = np.zeros(2 + n_further)
    found = minimize(excess, start, method="Nelder-Mead", options={"maxiter": 200 * len(start)}).x
    return math.exp(found[0]), *map(float, found[1:])


def losses_by_temperature(model: IncrementalClassifier, x: Array, y: Array) -> Array:
    """Mean log loss (T,) by `LOGS` of temperatures that divide the latents."""
    latents, truth = model.predict_latent(x).mean, np.searchsorted(model.classes_, y)
    logs = [log_softmax(latents / math.exp(value), axis=1)[np.arange(len(y)), truth] for value in LOGS]
    return -np.maximum(logs, math.log(1e-6)).mean(1)

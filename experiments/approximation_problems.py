"""Functions of a known process at rows of a table or of a series, with noise, and the exact posterior by a factor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.spatial.distance import cdist

NOISE = 0.1  # deviation; functions have one of about 1
FREQUENCIES, AT_ONCE = 1000, 5000
QUERIES = 500  # inside, and as many outside
TABLE, SERIES = "table", "series"


@dataclass(frozen=True)
class Drawn:
    """Rows to learn from, and queries among them and away from them."""

    x: np.ndarray  # (n, D)
    y: np.ndarray  # (n,)
    queries: np.ndarray  # (Q, D)
    function: np.ndarray  # (Q,), without noise
    is_inside: np.ndarray  # (Q,)


@dataclass(frozen=True)
class Problem:
    """An RBF process of one length-scale, at places that a generator draws."""

    places: Callable[[int, np.random.Generator], tuple[np.ndarray, np.ndarray, np.ndarray]]
    lengthscale: float

    def drawn(self, n_rows: int, seed: int = 0) -> Drawn:
        """By many random features, whose sums are nearly normal."""
        rng = np.random.default_rng(seed)
        x, inside, outside = self.places(n_rows, rng)
        queries = np.concatenate([inside, outside])
        frequencies = rng.normal(size=(x.shape[1], FREQUENCIES)) / self.lengthscale
        phases, weights = rng.uniform(0, 2 * np.pi, FREQUENCIES), rng.normal(size=FREQUENCIES)

        def function(rows: np.ndarray) -> np.ndarray:
            parts = np.split(rows, range(AT_ONCE, len(rows), AT_ONCE))
            waves = [np.cos(part @ frequencies + phases) @ weights for part in parts]
            return np.sqrt(2 / FREQUENCIES) * np.concatenate(waves)

        y = function(x) + NOISE * rng.normal(size=n_rows)
        return Drawn(x, y, queries, function(queries), np.arange(len(queries)) < len(inside))


def of_table(n_rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three columns from 0 to 1; outside the first one is from 1.2 to 1.6."""
    x, inside, outside = (rng.uniform(size=(size, 3)) for size in (n_rows, QUERIES, QUERIES))
    outside[:, 0] = 1.2 + 0.4 * outside[:, 0]
    return x, inside, outside


def of_series(n_rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nine tenths of even steps, in the order of time; inside are gaps, outside is 1 to 3 length-scales beyond."""
    steps = np.arange(-(-10 * n_rows // 9), dtype=float)[:, None]
    is_row = np.zeros(len(steps), dtype=bool)
    is_row[rng.permutation(len(steps))[:n_rows]] = True
    outside = len(steps) + 20 + np.arange(40.0)[:, None]
    return steps[is_row], rng.permutation(steps[~is_row])[:QUERIES], outside


PROBLEMS = {TABLE: Problem(of_table, 0.2), SERIES: Problem(of_series, 20.0)}
"""Rows of a table fill a cube more and more densely; a series grows longer."""


def exact_answers(problem: Problem, drawn: Drawn) -> tuple[np.ndarray, np.ndarray]:
    """Means and deviations (Q,) of numbers, noise included, by the kernel that is true."""
    gram, cross = (_kernel(problem, drawn.x, other) for other in (drawn.x, drawn.queries))
    gram[np.diag_indices_from(gram)] += NOISE**2
    factor = cho_factor(gram, lower=True, overwrite_a=True)
    centre = drawn.y.mean()
    mean = centre + cross.T @ cho_solve(factor, drawn.y - centre)
    known = solve_triangular(factor[0], cross, lower=True)
    return mean, np.sqrt(1 + NOISE**2 - (known**2).sum(axis=0))


def _kernel(problem: Problem, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.exp(-cdist(a, b, "sqeuclidean") / (2 * problem.lengthscale**2))

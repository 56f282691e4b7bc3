"""Which rows of a pool to ask about next: doubtful ones, no two of them alike.

The rows of the largest doubt lie close together, and a label for one of them answers for its neighbours. So of ten
times as many rows as are wanted, a thousand at most, those of largest doubt, the medoids are taken: the rows from which
all of these are near, each counting by its doubt (Zhdanov 2019, "Diverse mini-batch active learning", has k-means in
the place of medoids). One after the other is chosen, the one that brings the candidates nearest to those chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sureshot.computing.layout import aligned
from sureshot.estimators.fitted import Fitted
from sureshot.estimators.outliers import OutlierScore
from sureshot.estimators.rows.labelled_rows import equal_rows
from sureshot.kernels.distances import squared_distances

CANDIDATES = 10
"""Rows of large doubt among which one is chosen."""

MOST_CANDIDATES = 1000
"""Rows whose distances are compared; of suggestions beyond, doubts decide alone."""


@dataclass(frozen=True)
class Suggestions:
    """Rows of a pool that are worth a label, the most useful first."""

    rows: np.ndarray  # (k,) int64, positions in the pool
    score: np.ndarray  # (k,), doubts: of classes 1 minus the margin; of numbers standard deviations without noise


def suggestions(
    fitted: Fitted,
    outlier_score: Callable[[], OutlierScore],  # which knows distances, where rows have any
    pool: np.ndarray,  # (n, D), as the reader keeps rows
    doubt: np.ndarray,  # (n,) of these
    n: int,
) -> Suggestions:
    """At most n distinct rows that are not among the labelled ones."""
    unlabelled = _unlabelled(fitted, pool)
    doubt = doubt[unlabelled]
    by_doubt = np.argsort(-doubt, kind="stable")
    candidates = by_doubt[: min(CANDIDATES * n, MOST_CANDIDATES)]
    if fitted.has_distances and len(candidates) > 1:
        squared = _squared(outlier_score(), pool[unlabelled[candidates]])
        chosen = candidates[medoids(squared, doubt[candidates], n)]
        by_doubt = np.concatenate([chosen, by_doubt[~np.isin(by_doubt, chosen)]])
    found = by_doubt[:n]
    return Suggestions(unlabelled[found], doubt[found])


def medoids(
    distance: np.ndarray,  # (m, m)
    weight: np.ndarray,  # (m,)
    k: int,
) -> np.ndarray:
    """Positions of k rows, or all if there are fewer, that keep the weighted sum of distances to the nearest small.

    Greedily: each is the one that lessens the sum most.
    """
    nearest = np.full(len(distance), distance.max())
    chosen: list[int] = []
    for _ in range(min(k, len(distance))):
        lessened = weight @ np.maximum(nearest[:, None] - distance, 0)
        lessened[chosen] = -1
        chosen.append(int(lessened.argmax()))
        nearest = np.minimum(nearest, distance[chosen[-1]])
    return np.array(chosen, dtype=np.int64)


def _squared(score: OutlierScore, rows: np.ndarray) -> np.ndarray:
    """Squared distances (m, m) of rows (m, D) under the maps of columns that outlier scores use, their mean."""
    scaled = [aligned(distance.scaling(rows)) for distance in score.distances]
    found: np.ndarray = np.mean([squared_distances(x, x).numpy() for x in scaled], axis=0)
    return found


def _unlabelled(fitted: Fitted, pool: np.ndarray) -> np.ndarray:
    """Positions of the rows (n, D) that are no labelled ones, the first of each that repeat, to seven digits.

    So a pool that was saved in single precision is told from the rows that were labelled as it was.
    Of precomputed kernels nobody knows which rows are labelled.
    """
    known, pool = fitted.rows.x if fitted.has_distances else pool[:0], fitted.reader.as_learnt(pool)
    if (arrival := fitted.reader.arrival) is not None:
        known, pool = (np.delete(rows, arrival, axis=1) for rows in (known, pool))
    digits, exponent = np.frexp(np.concatenate([known, pool]))  # of single precision, but not its range
    with np.errstate(over="ignore"):
        rounded = np.ldexp(np.round(digits * 2**24), exponent - 24)
    first = np.sort(np.unique(equal_rows(rounded), return_index=True)[1])
    found: np.ndarray = first[first >= len(known)] - len(known)
    return found

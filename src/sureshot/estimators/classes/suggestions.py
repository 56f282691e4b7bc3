"""Which rows to label next: those whose two most probable classes are about as probable, no two of them alike.

The margin between the two says how much an answer may change. The rows with the smallest lie close together, though,
and a label for one of them answers for its neighbours. So of ten times as many rows as are wanted, a thousand at most,
those of smallest margin, the medoids are taken: the rows from which all of these are near, each counting by what its
margin is short of 1 (Zhdanov 2019, "Diverse mini-batch active learning", has k-means in the place of medoids). One
after the other is chosen, the one that brings the candidates nearest to those chosen.

Mutual information of label and latents, which looks like what a label teaches, asks for the rows that are far from
everything: on half of the pools it was behind random rows. The study is docs/results/what-to-label.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sureshot.computing.layout import aligned
from sureshot.estimators.classes.class_fitted import ClassFitted
from sureshot.estimators.rows.labelled_rows import equal_rows
from sureshot.kernels.distances import squared_distances

CANDIDATES = 10
"""Rows of small margin among which one is chosen."""

MOST_CANDIDATES = 1000
"""Rows whose distances are compared; of suggestions beyond, the margins decide alone."""


@dataclass(frozen=True)
class Suggestions:
    """Rows of a pool that are worth a label, the most useful first."""

    rows: np.ndarray  # (k,) int64, positions in the pool
    score: np.ndarray  # (k,) 1 minus the margin: 1 where two classes are equally probable, 0 where one is certain


def suggestions(
    fitted: ClassFitted,
    pool: np.ndarray,  # (n, D), as the reader keeps rows
    probabilities: np.ndarray,  # (n, C) of these
    n: int,
) -> Suggestions:
    """At most n distinct rows that are not among the labelled ones; `ValueError` where there is one class only."""
    if probabilities.shape[1] < 2:
        raise ValueError(
            "suggest needs two classes, between which a label could decide, and the model knows only "
            f"{fitted.classes.tolist()[0]!r}: label the rows of largest outlier_score first."
        )
    unlabelled = _unlabelled(fitted, pool)
    doubt = 1 - margins(probabilities[unlabelled])
    by_doubt = np.argsort(-doubt, kind="stable")
    candidates = by_doubt[: min(CANDIDATES * n, MOST_CANDIDATES)]
    if fitted.has_distances and len(candidates) > 1:
        chosen = candidates[medoids(_squared(fitted, pool[unlabelled[candidates]]), doubt[candidates], n)]
        by_doubt = np.concatenate([chosen, by_doubt[~np.isin(by_doubt, chosen)]])
    found = by_doubt[:n]
    return Suggestions(unlabelled[found], doubt[found])


def margins(probabilities: np.ndarray) -> np.ndarray:
    """The largest minus the second of class probabilities (n, C), (n,)."""
    two = np.partition(probabilities, -2, axis=1)[:, -2:]
    found: np.ndarray = two[:, 1] - two[:, 0]
    return found


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


def _squared(fitted: ClassFitted, rows: np.ndarray) -> np.ndarray:
    """Squared distances (m, m) of rows (m, D) under the maps of columns that outlier scores use, their mean."""
    scaled = [aligned(distance.scaling(rows)) for distance in fitted.outlier_score.distances]
    found: np.ndarray = np.mean([squared_distances(x, x).numpy() for x in scaled], axis=0)
    return found


def _unlabelled(fitted: ClassFitted, pool: np.ndarray) -> np.ndarray:
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

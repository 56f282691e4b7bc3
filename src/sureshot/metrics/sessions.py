"""What is learnt and what is forgotten while classes arrive in sessions.

``R[k, j]`` is the accuracy on the test rows of session j's classes after session k, among all classes seen so far; it
is defined for j <= k, and everything here is a function of it or of a column of it. Sessions count from 0, the base
session.

Forgetting only counts what was known once: a class that is never learnt forgets nothing. So it is read beside the
accuracy. The harmonic mean of the accuracies on base and on novel classes, both among all classes, is high only if both
are: a classifier that ignores new classes has a good accuracy as long as these are few, and a harmonic mean of zero.

References: Chaudhry et al., "Riemannian walk for incremental learning" (2018), for forgetting; Tao et al., "Few-shot
class-incremental learning" (2020), for accuracies by session and the performance drop.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def accuracy_by_session(
    right: ArrayLike,  # (n,), whether each test row of all classes seen so far is right
    session_of: ArrayLike,  # (n,), the session of its class
    n_sessions: int,
) -> NDArray[np.float64]:
    """A row of ``R``: the accuracy on each session's rows, (n_sessions,), NaN where there are none."""
    of, hits = np.asarray(session_of), np.asarray(right)
    if of.shape != hits.shape or of.ndim != 1:
        raise ValueError(f"session_of: expected a session for each of {hits.shape} rows, got shape {of.shape}.")
    counts = np.bincount(of, minlength=n_sessions)
    if len(counts) > n_sessions:
        raise ValueError(f"session_of: expected 0 to {n_sessions - 1}, got {of.max()}.")
    with np.errstate(invalid="ignore"):
        return np.bincount(of, weights=hits.astype(np.float64), minlength=n_sessions) / counts


def forgetting(
    accuracies: ArrayLike,  # (K, K), R; what is above the diagonal is not looked at
) -> NDArray[np.float64]:
    """Average forgetting after each session, (K,): how far earlier sessions are below their best so far.

    After session k the mean over j < k of ``max_{l < k} R[l, j] - R[k, j]``; NaN after the base session, which has
    nothing before it. Negative where earlier sessions are better than they ever were.
    """
    r = _checked(accuracies)
    found = np.full(len(r), np.nan)
    for k in range(1, len(r)):
        found[k] = np.mean([r[j:k, j].max() - r[k, j] for j in range(k)])
    return found


def performance_drop(
    accuracies: ArrayLike,  # (K,), on all classes seen so far after each session
) -> float:
    """First accuracy less last accuracy."""
    values = np.asarray(accuracies, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"accuracies: expected one for each session, got shape {values.shape}.")
    return float(values[0] - values[-1])


def harmonic_mean(base: float, novel: float) -> float:
    """``2 base novel / (base + novel)``, 0 if both are; NaN if one is missing."""
    if base + novel == 0:
        return 0.0
    return 2 * base * novel / (base + novel)


def _checked(accuracies: ArrayLike) -> NDArray[np.float64]:
    r = np.asarray(accuracies, dtype=np.float64)
    if r.ndim != 2 or r.shape[0] != r.shape[1] or len(r) == 0:
        raise ValueError(f"accuracies: expected a square matrix (sessions, sessions), got shape {r.shape}.")
    below = r[np.tril_indices(len(r))]
    if not ((below >= 0) & (below <= 1)).all():
        raise ValueError("accuracies: expected numbers from 0 to 1 on and below the diagonal.")
    return r

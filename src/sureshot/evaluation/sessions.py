"""One method through a protocol of sessions: what it knows after each of them.

After every session the method is asked about all test rows of the classes seen so far, in their joint label space: no
row comes with a hint which session it is of. From its probabilities follow accuracy (of the whole, by session, of base
and of novel classes), negative log-likelihood, calibration error and Brier score; from its outlier score how well it
tells queries of no class; beside them what it keeps and how long it took. Nothing is fitted here: no temperature, no
threshold, no choice of a session.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sureshot.incremental.method import Memory, SessionMethod
from sureshot.incremental.sessions import Rows, Sessions
from sureshot.metrics import (
    accuracy_by_session,
    auroc_unknown,
    forgetting,
    harmonic_mean,
    performance_drop,
    summarise,
)
from sureshot.progress import Progress, reported_to, within


@dataclass(frozen=True)
class SessionScores:
    """After one session; scores are of all classes seen so far unless they say otherwise."""

    session: int  # 0 is the base session
    n_classes: int
    n_rows: int  # test rows asked about
    accuracy: float
    base_accuracy: float  # of base classes' rows
    novel_accuracy: float | None  # of other classes' rows; None after the base session, and so are the next two
    harmonic_mean: float | None  # of these two
    forgetting: float | None  # average over earlier sessions
    nll: float  # nats
    ece: float  # 15 bins
    brier: float
    out_of_scope_auroc: float | None  # None without such rows, or without an outlier score
    shared_numbers: int | None  # numbers kept whatever the number of classes; None if the method does not say
    numbers_per_class: float | None  # numbers kept for a class, on average
    learn_seconds: float  # of this session
    predict_seconds: float  # of all rows asked about


@dataclass(frozen=True, eq=False)
class SessionsEvaluation:
    """A method's way through all sessions."""

    sessions: tuple[SessionScores, ...]
    matrix: NDArray[np.float64]  # (K, K), R[k, j], the accuracy on session j's classes after session k; NaN for j > k

    @property
    def accuracies(self) -> tuple[float, ...]:
        """After each session."""
        return tuple(one.accuracy for one in self.sessions)

    @property
    def average_accuracy(self) -> float:
        """Mean over the sessions, the base session among them."""
        return float(np.mean(self.accuracies))

    @property
    def performance_drop(self) -> float:
        """Accuracy after the base session less accuracy after the last."""
        return performance_drop(self.accuracies)

    @property
    def last(self) -> SessionScores:
        """After all sessions."""
        return self.sessions[-1]

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "average_accuracy": self.average_accuracy,
            "performance_drop": self.performance_drop,
            "sessions": [asdict(one) for one in self.sessions],
            "matrix": [[float(value) for value in row[: k + 1]] for k, row in enumerate(self.matrix)],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SessionsEvaluation:
        """What `as_dict` gave."""
        n = len(values["sessions"])
        matrix = np.full((n, n), np.nan)
        for k, row in enumerate(values["matrix"]):
            matrix[k, : k + 1] = row
        return cls(tuple(SessionScores(**one) for one in values["sessions"]), matrix)


def evaluate_sessions(
    method: SessionMethod,  # `sureshot.evaluation.methods.EstimatorMethod` makes one of any estimator
    sessions: Sessions,
    progress: Progress = lambda what, fraction: None,
) -> SessionsEvaluation:
    """Teach a method session by session and score it after each.

    Class numbers of the protocol are the labels. A method that does not know the classes it was taught, or others too,
    is a ValueError.
    """
    n = len(sessions)
    matrix = np.full((n, n), np.nan)
    found = []
    for k in range(n):
        progress(f"session {k}", k / n)
        arriving, asked = sessions.arriving(k), sessions.asked(k)
        started = time.perf_counter()
        with reported_to(within(progress, f"session {k}", k / n, 1 / n)):
            learnt = _fitted(method, arriving) if k == 0 else method.partial_fit(arriving.x, arriving.y)
        learn_seconds = time.perf_counter() - started
        _check_classes(learnt.classes_, set(asked.y.tolist()), k)
        started = time.perf_counter()
        p = learnt.predict_proba(asked.x)
        predict_seconds = time.perf_counter() - started
        scores = summarise(p, asked.y, classes=learnt.classes_)
        right = np.asarray(learnt.classes_)[p.argmax(axis=1)] == asked.y
        matrix[k] = accuracy_by_session(right, asked.session, n)
        base = float(matrix[k, 0])
        novel = float(right[asked.session > 0].mean()) if k else None
        found.append(
            SessionScores(
                session=k,
                n_classes=len(learnt.classes_),
                n_rows=scores.n,
                accuracy=scores.accuracy,
                base_accuracy=base,
                novel_accuracy=novel,
                harmonic_mean=None if novel is None else harmonic_mean(base, novel),
                forgetting=float(forgetting(matrix[: k + 1, : k + 1])[k]) if k else None,
                nll=scores.nll,
                ece=scores.ece,
                brier=scores.brier,
                out_of_scope_auroc=_out_of_scope_auroc(learnt, sessions, asked.x),
                **_kept(learnt.memory()),
                learn_seconds=learn_seconds,
                predict_seconds=predict_seconds,
            )
        )
    progress("done", 1.0)
    return SessionsEvaluation(tuple(found), matrix)


def _fitted(method: SessionMethod, first: Rows) -> SessionMethod:
    if first.unseen is None:
        return method.fit(first.x, first.y)
    return method.fit(first.x, first.y, first.unseen)


def _check_classes(classes: NDArray, expected: set[int], k: int) -> None:
    known = set(np.asarray(classes).tolist())
    if known != expected:
        wrong = sorted(known ^ expected)
        raise ValueError(
            f"after session {k} the method knows {len(known)} classes, expected the {len(expected)} that it was "
            f"taught; they differ in class number {wrong[0]}"
        )


def _out_of_scope_auroc(method: SessionMethod, sessions: Sessions, known: NDArray) -> float | None:
    if sessions.out_of_scope is None:
        return None
    inside, outside = method.outlier_score(known), method.outlier_score(sessions.out_of_scope.numpy())
    return None if inside is None or outside is None else auroc_unknown(inside, outside)


def _kept(memory: Memory | None) -> dict[str, Any]:
    if memory is None:
        return {"shared_numbers": None, "numbers_per_class": None}
    return {"shared_numbers": memory.shared, "numbers_per_class": memory.per_class}

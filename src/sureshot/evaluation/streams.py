"""One method through a stream of batches: each is predicted and scored, then learnt (prequential evaluation).

So every row is asked about once, before it is learnt, and none is held out. The first batch is learnt only. Rows of a
class that the method does not know yet have no probability; they are left out of the scores, and their classes named.

>>> import numpy as np
>>> from sureshot import KernelSearchClassifier
>>> x = np.random.default_rng(0).normal(size=(60, 1))
>>> y = (x[:, 0] > 0).astype(int)
>>> model = KernelSearchClassifier(n_particles=4, n_rejuvenation=1, window=40)
>>> found = evaluate_stream(model, ((x[i : i + 20], y[i : i + 20]) for i in (0, 20, 40)))
>>> [batch.accuracy is None for batch in found], pooled(found).rows, pooled(found).accuracy > 0.8
([True, False, False], 40, True)

Reference: Gama, Sebastião & Rodrigues 2013.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sureshot.metrics import reliability_curve, summarise
from sureshot.metrics.calibration import ReliabilityCurve


class StreamMethod(Protocol):
    """What is asked: part of scikit-learn's contract."""

    @property
    def classes_(self) -> Any:
        """Labels, in the order of the columns of probabilities; asked for behind the first batch."""

    @property
    def partial_fit(self) -> Callable[..., Any]:
        """Learn rows X (n, D) with labels y (n,)."""

    @property
    def predict_proba(self) -> Callable[[Any], NDArray]:
        """Class probabilities of rows (n, C)."""


@dataclass(frozen=True)
class BatchScores:
    """Of a batch before it was learnt; no scores for the first, and for one whose classes are all new."""

    rows: int
    scored: int  # rows, those of classes that were known
    new_classes: tuple[Any, ...]
    accuracy: float | None
    nll: float | None  # nats
    brier: float | None
    ece: float | None  # 15 bins
    bins: tuple[tuple[float, ...], ...] | None  # of confidence: numbers of rows, sums of confidence, how many are right
    predict_seconds: float
    learn_seconds: float


@dataclass(frozen=True)
class StreamScores:
    """Of all scored rows of several batches together."""

    rows: int
    accuracy: float
    nll: float
    brier: float
    ece: float


def evaluate_stream(
    method: StreamMethod,
    batches: Iterable[tuple[Any, ArrayLike]],  # rows (n, D) and labels (n,), in the order in which they come
    classes: ArrayLike | None = None,  # announced with the first batch, as scikit-learn's classifiers need it
    least_probability: float = 0.0,  # smaller ones count as this
    progress: Callable[[int, BatchScores], None] = lambda batch, scores: None,
) -> list[BatchScores]:
    """Ask about each batch, then teach it; the method has learnt all of them in the end.

    `pooled` makes scores of all rows together.
    """
    found: list[BatchScores] = []
    for number, (x, y) in enumerate(batches):
        announced = {} if number or classes is None else {"classes": classes}
        found.append(evaluate_batch(method, x, y, number == 0, least_probability, **announced))
        progress(number, found[-1])
    return found


def evaluate_batch(
    method: StreamMethod,
    x: Any,  # (n, D)
    y: ArrayLike,  # (n,)
    first: bool = False,  # that the method knows nothing yet
    least_probability: float = 0.0,
    **options: Any,  # of `partial_fit`
) -> BatchScores:
    """Ask about one batch, then teach it: a step of `evaluate_stream`, for those who keep what came of it."""
    labels = np.asarray(y)
    seen = np.zeros(len(labels), dtype=bool) if first else np.isin(labels, method.classes_)
    known = seen if first or len(method.classes_) > 1 else np.zeros_like(seen)  # one class is no question
    scores: dict[str, Any] = dict.fromkeys(("accuracy", "nll", "brier", "ece", "bins"))
    started = time.perf_counter()
    if known.any():
        p = method.predict_proba(x)
        predicted = time.perf_counter()
        scores = _scores(p[known], labels[known], np.asarray(method.classes_), least_probability)
    else:
        predicted = started
    began = time.perf_counter()
    method.partial_fit(x, y, **options)
    return BatchScores(
        rows=len(labels),
        scored=int(known.sum()),
        new_classes=tuple(np.unique(labels[~seen]).tolist()),
        **scores,
        predict_seconds=predicted - started,
        learn_seconds=time.perf_counter() - began,
    )


def pooled(batches: Sequence[BatchScores]) -> StreamScores | None:
    """Scores of all rows of several batches together; None if none has any."""
    scored, curve = [batch for batch in batches if batch.bins is not None], pooled_reliability(batches)
    if curve is None:
        return None
    weights = [batch.scored for batch in scored]
    means = {
        name: float(np.average([getattr(batch, name) for batch in scored], weights=weights))
        for name in ("accuracy", "nll", "brier")
    }
    return StreamScores(rows=sum(weights), **means, ece=curve.expected_error)


def pooled_reliability(batches: Sequence[BatchScores]) -> ReliabilityCurve | None:
    """Accuracy against confidence of all rows of several batches together; None if none has scores."""
    bins = [np.array(batch.bins) for batch in batches if batch.bins is not None]
    return ReliabilityCurve.from_sums(*np.sum(bins, axis=0)) if bins else None


def _scores(p: NDArray, y: NDArray, classes: NDArray, least_probability: float) -> dict[str, Any]:
    p = np.clip(p, least_probability, None)
    p = p / p.sum(axis=1, keepdims=True)
    found, curve = summarise(p, y, classes=classes), reliability_curve(p, y, classes=classes)
    sums = (curve.count, np.nan_to_num(curve.count * curve.confidence), np.nan_to_num(curve.count * curve.accuracy))
    bins = tuple(tuple(float(value) for value in row) for row in sums)
    return {"accuracy": found.accuracy, "nll": found.nll, "brier": found.brier, "ece": found.ece, "bins": bins}

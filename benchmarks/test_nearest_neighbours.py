"""Nearest neighbours beside boosting and beside the least that rows cost, in the same run; ratios in ``extra_info``.

Run with ``python -m pytest benchmarks/test_nearest_neighbours.py``. Processor time of one thread.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss

from sureshot import GPClassifier


def table(n: int) -> tuple[np.ndarray, np.ndarray]:
    found: tuple[np.ndarray, np.ndarray] = make_classification(n, 20, n_informative=10, random_state=0)
    return found


def seconds(call: Any) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


@pytest.mark.benchmark(timer=time.process_time)
@pytest.mark.parametrize("n", [20_000, 100_000])
def test_a_fit_and_predictions_of_a_large_table(benchmark: Any, one_thread: None, n: int) -> None:
    x, y = table(n + 10_000)
    model, peer = GPClassifier(), HistGradientBoostingClassifier(max_iter=500, early_stopping=True)
    benchmark.pedantic(lambda: model.fit(x[:n], y[:n]), rounds=1)
    benchmark.extra_info["peer"] = "HistGradientBoosting, at most 500 iterations, early stopping"
    fitting = seconds(lambda: peer.fit(x[:n], y[:n]))
    own, other = (seconds(lambda one=one: one.predict_proba(x[n:])) for one in (model, peer))
    benchmark.extra_info["seconds of 10,000 predictions"] = own
    benchmark.extra_info["times the peer's"] = own / other
    for name, one in (("nll", model), ("nll of the peer", peer)):
        benchmark.extra_info[name] = log_loss(y[n:], one.predict_proba(x[n:]))
    if benchmark.stats is not None:
        benchmark.extra_info["times the peer's fit"] = benchmark.stats.stats.min / fitting


@pytest.mark.benchmark(timer=time.process_time)
@pytest.mark.parametrize("what", ["row", "row of a stream", "class"])
def test_one_more_beside_a_copy_of_all(benchmark: Any, one_thread: None, what: str) -> None:
    """Of 15,000 rows; the least there is to do is to copy rows to make room for one in their order."""
    n = 15_000
    x, y = table(n + 60)
    time_of_rows = "arrival" if what == "row of a stream" else None
    model = GPClassifier("matern32", approximation="nearest_neighbours", time=time_of_rows).fit(x[:n], y[:n])
    rows = iter(range(n, n + 60))

    def another() -> None:
        row = next(rows)
        model.partial_fit(x[row : row + 1], [row] if what == "class" else y[row : row + 1])

    benchmark.pedantic(another, rounds=50, warmup_rounds=5)
    benchmark.extra_info["bound"] = "a copy of the rows"
    if benchmark.stats is not None:
        copies = min(seconds(lambda: np.insert(x[:n], n // 2, x[n], axis=0)) for _ in range(20))
        benchmark.extra_info["times the bound"] = benchmark.stats.stats.min / max(copies, 1e-6)

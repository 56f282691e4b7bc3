"""Time of a row more beside a refit of all rows, in the same run; the ratio is in ``extra_info``.

Run with ``python -m pytest benchmarks/test_updates.py``. Processor time of one thread.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_classification

from sureshot import GPClassifier


@pytest.mark.benchmark(timer=time.process_time)
@pytest.mark.parametrize(("n_classes", "shots"), [(150, 5), (50, 20)])
def test_a_row_more_beside_a_refit(benchmark: Any, one_thread: None, n_classes: int, shots: int) -> None:
    """Unit-length rows of 384 columns; the refit has the kernel given, and its likelihood and rule."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(n_classes), shots + 1)
    x = rng.normal(size=(n_classes, 384))[y] + 1.2 * rng.normal(size=(len(y), 384))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    later = np.arange(len(y)) % (shots + 1) == shots
    model = GPClassifier(likelihood="softmax").fit(x[~later], y[~later])
    rows = iter(np.flatnonzero(later))

    def another() -> GPClassifier:
        row = next(rows)
        return model.partial_fit(x[row : row + 1], y[row : row + 1])

    benchmark.pedantic(another, rounds=5, warmup_rounds=1)
    started = time.process_time()
    model.predict_proba(x[:1])
    benchmark.extra_info["seconds of the first prediction"] = time.process_time() - started
    refit = GPClassifier(model.kernel_, "softmax", objective=None, class_prior="support")
    started = time.process_time()
    refit.fit(x[~later], y[~later])
    benchmark.extra_info["peer"] = "fit with the kernel given"
    if benchmark.stats is not None:
        benchmark.extra_info["share of its time"] = benchmark.stats.stats.min / (time.process_time() - started)


@pytest.mark.benchmark(timer=time.process_time)
@pytest.mark.parametrize("likelihood", ["least_squares", "softmax", "logistic"])
def test_a_row_more_of_many_beside_the_fit(benchmark: Any, one_thread: None, likelihood: str) -> None:
    """15,000 rows of ten columns by 500 inducing inputs, and the prediction behind the update."""
    n = 15_000
    x, y = make_classification(
        n + 10, 10, n_informative=6, n_classes=2 if likelihood == "logistic" else 3, random_state=0
    )
    model = GPClassifier("matern32", likelihood)
    started = time.process_time()
    model.fit(x[:n], y[:n])
    benchmark.extra_info["peer"] = "fit"
    fitting = time.process_time() - started
    rows = iter(range(n, n + 10))

    def another() -> np.ndarray:
        row = next(rows)
        return model.partial_fit(x[row : row + 1], y[row : row + 1]).predict_proba(x[:1])

    benchmark.pedantic(another, rounds=3, warmup_rounds=1)
    if benchmark.stats is not None:
        benchmark.extra_info["share of its time"] = benchmark.stats.stats.min / fitting

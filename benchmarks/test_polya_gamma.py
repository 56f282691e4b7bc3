"""Time per draw of PG(1, z) beside the package `polyagamma`, on one thread.

pytest benchmarks/test_polya_gamma.py --benchmark-columns=min,median,rounds
The ratio (ours over `polyagamma`, alternating calls in one run) is stored in ``extra_info``.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import polyagamma
import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from sureshot.likelihoods.polya_gamma import sample_polya_gamma

DRAWS = 1_000_000


pytestmark = pytest.mark.usefixtures("one_thread")


def seconds(call: Callable[[], object]) -> float:
    """Processor time of this thread: what else the machine does matters less."""
    start = time.thread_time()
    call()
    return time.thread_time() - start


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_unit_draws_beside_polyagamma(benchmark: BenchmarkFixture, dtype: torch.dtype) -> None:
    source, oracle = torch.Generator().manual_seed(0), np.random.default_rng(0)
    z = (2 * torch.randn(DRAWS, generator=source, dtype=torch.float64)).to(dtype)
    z_numpy = z.double().numpy()

    def ours() -> torch.Tensor:
        return sample_polya_gamma(1, z, source)

    def theirs() -> np.ndarray:
        return polyagamma.random_polyagamma(1, z_numpy, random_state=oracle)

    ours(), theirs()
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(7)]
    median_ours, median_theirs = np.median(pairs, axis=0)
    benchmark.extra_info["nanoseconds_per_draw"] = median_ours / DRAWS * 1e9
    benchmark.extra_info["polyagamma_nanoseconds_per_draw"] = median_theirs / DRAWS * 1e9
    benchmark.extra_info["ratio_to_polyagamma"] = median_ours / median_theirs
    benchmark.pedantic(ours, rounds=5)


def test_polyagamma_itself(benchmark: BenchmarkFixture) -> None:
    oracle = np.random.default_rng(0)
    z = 2 * oracle.normal(size=DRAWS)
    benchmark.pedantic(lambda: polyagamma.random_polyagamma(1, z, random_state=oracle), rounds=5, warmup_rounds=1)


@pytest.mark.parametrize("size", [100, 10_000])
def test_small_calls(benchmark: BenchmarkFixture, size: int) -> None:
    source = torch.Generator().manual_seed(0)
    z = 2 * torch.randn(size, generator=source, dtype=torch.float64)
    benchmark.pedantic(lambda: sample_polya_gamma(1, z, source), rounds=30, warmup_rounds=2)


def test_draws_of_mixed_h(benchmark: BenchmarkFixture) -> None:
    source = torch.Generator().manual_seed(0)
    z = torch.randn(200_000, generator=source, dtype=torch.float64)
    h = torch.randint(0, 6, z.shape, generator=source)
    benchmark.extra_info["unit_draws"] = int(h.sum())
    benchmark.pedantic(lambda: sample_polya_gamma(h, z, source), rounds=5, warmup_rounds=1)

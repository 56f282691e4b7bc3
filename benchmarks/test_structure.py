"""Time of sequential Monte Carlo over kernel structures: one more datum, and proposals; two classes, one thread.

Run: ``pytest benchmarks/test_structure.py --benchmark-only``. Times are processor time of the one thread, so that
other work on the machine disturbs them less. ``extra_info`` holds milliseconds beside the aim, and for the growth in
the number of rows the exponent that is fitted to the times: 2 where a datum costs O(N^2), 3 where it costs a new
factorisation, 0 where it costs the same after any number of rows, as through inducing inputs. Of several threads it
holds the wall time of one divided by theirs, both taken in turn in one run, and how many processors they kept busy.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import make_moons

from sureshot import KernelSearchClassifier
from sureshot.estimators.search.settings import SWEEPS
from sureshot.estimators.search.size import seconds_of_a_batch
from sureshot.structure.contrasts import Contrasts
from sureshot.structure.grammar import Grammar, KernelPrior
from sureshot.structure.rejuvenation_data import Data
from sureshot.structure.smc import SmcSettings, SmcState, extended, rejuvenated

N_COLUMNS, N_PARTICLES = 8, 32
AIM_MS = 50.0  # of one more datum at 300 rows
SIZES = (100, 200, 400, 800, 1600)
N_INDUCING = 50


pytestmark = pytest.mark.usefixtures("one_thread")


def weighed(
    n: int, n_particles: int = N_PARTICLES, n_inducing: int | None = None
) -> tuple[SmcState, torch.Tensor, torch.Tensor]:
    """Particles with n rows, of kernels of the prior, seen through some of the rows if wanted; and a row more."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n + 1, N_COLUMNS, generator=generator, dtype=torch.float64)
    y = (x[:, 0] + 0.5 * torch.randn(n + 1, generator=generator, dtype=torch.float64) > 0).long()
    inducing = None if n_inducing is None else x[:n_inducing]
    state = SmcState.start(KernelPrior(Grammar(), N_COLUMNS), n_particles, 2, generator, inducing=inducing)
    for part in torch.arange(n).split(100):
        state, _ = extended(state, x[part], y[part], 2, generator)
    return state, x[n:], y[n:]


@pytest.mark.benchmark(timer=time.process_time)
def test_one_more_datum(benchmark: Any) -> None:
    state, x, y = weighed(300)
    benchmark(extended, state, x, y, 2, torch.Generator().manual_seed(1))
    benchmark.extra_info |= {"milliseconds": 1e3 * benchmark.stats.stats.median, "aim": AIM_MS}


@pytest.mark.parametrize("n_inducing", [None, N_INDUCING])
def test_growth_of_a_datum(benchmark: Any, n_inducing: int | None) -> None:
    times = []
    for n in SIZES:
        state, x, y = weighed(n, 8, n_inducing)
        spent = []
        for _ in range(7):
            begin = time.process_time()
            extended(state, x, y, 2, torch.Generator().manual_seed(1))
            spent.append(time.process_time() - begin)
        times.append(min(spent))
    exponents = np.diff(np.log(times)) / np.diff(np.log(SIZES))
    benchmark.extra_info |= {
        "milliseconds": {n: 1e3 * spent for n, spent in zip(SIZES, times, strict=True)},
        "exponent": float(np.polyfit(np.log(SIZES), np.log(times), 1)[0]),
        "exponent of the last doubling": float(exponents[-1]),
    }
    benchmark.pedantic(lambda: None)


@pytest.mark.benchmark(timer=time.process_time)
@pytest.mark.parametrize("n", [30, 100, 300])
def test_proposals(benchmark: Any, n: int) -> None:
    """One proposal for each particle: kernels, matrices, factors, likelihoods."""
    state, _, _ = weighed(n)
    data = Data.of(state.prior, state.x, Contrasts.of_labels(state.y, 2))
    places = range(N_PARTICLES)
    benchmark(lambda: data.proposed(state.latent, places, state.particles).log_likelihood)
    benchmark.extra_info["milliseconds a particle"] = 1e3 * benchmark.stats.stats.median / N_PARTICLES


@pytest.mark.parametrize("n", [500, 1000])
def test_through_inducing_inputs(benchmark: Any, n: int) -> None:
    """One more datum, and one sweep of moves, beside those of kernels that are seen whole."""
    spent: dict[int | None, list[tuple[float, float]]] = {None: [], N_INDUCING: []}
    for n_inducing, times in spent.items():
        state, x, y = weighed(n, 8, n_inducing)
        for _ in range(3):
            begin = time.process_time()
            extended(state, x, y, 2, torch.Generator().manual_seed(1))
            middle = time.process_time()
            rejuvenated(state, torch.Generator().manual_seed(1), SmcSettings())
            times.append((middle - begin, time.process_time() - middle))
    (whole, swept_whole), (datum, swept) = (np.min(times, axis=0) for times in spent.values())
    benchmark.extra_info |= {
        "milliseconds of a datum": 1e3 * datum,
        "milliseconds of a sweep": 1e3 * swept,
        "ratio of a datum": datum / whole,
        "ratio of a sweep": swept / swept_whole,
    }
    benchmark.pedantic(lambda: None)


@pytest.mark.parametrize("n", [250, 500, 1000, 2000])
def test_the_last_batch_of_a_fit(benchmark: Any, n: int) -> None:
    """Processor time beside what is said where so many rows are refused."""
    x, y = make_moons(n, noise=0.25, random_state=0)
    times: list[float] = []
    callback = lambda step: times.append(time.process_time())  # noqa: E731
    model = KernelSearchClassifier(4, schedule=[n // 2], random_state=0, callback=callback).fit(x, y)
    spent, parts = times[1] - times[0], len(model.steps_[-1].effective_sample_sizes)
    said = seconds_of_a_batch(4, SWEEPS, n)
    benchmark.extra_info |= {"seconds": spent, "said": said, "ratio": spent / said, "parts of the batch": parts}
    benchmark.pedantic(lambda: None)


@pytest.mark.parametrize("n", [200, 600])
def test_particles_shared_by_threads(benchmark: Any, n: int) -> None:
    """One sweep of moves of all particles, by one thread and by two."""
    state, _, _ = weighed(n)
    spent: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
    for _ in range(5):
        for jobs, times in spent.items():
            begin = time.perf_counter(), time.process_time()
            rejuvenated(state, torch.Generator().manual_seed(1), SmcSettings(n_jobs=jobs))
            times.append((time.perf_counter() - begin[0], time.process_time() - begin[1]))
    (wall, cpu), (wall_of_two, cpu_of_two) = (np.median(spent[jobs], axis=0) for jobs in spent)
    benchmark.extra_info |= {
        "seconds by one thread": (float(wall), float(cpu)),  # wall and processor time
        "seconds by two": (float(wall_of_two), float(cpu_of_two)),
        "speed-up": float(wall / wall_of_two),
        "processors kept busy by two": float(cpu_of_two / wall_of_two),
    }
    benchmark.pedantic(lambda: None)

"""Work that workers do for a joblib backend: the same bits as in one process, also when one of them is killed."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import joblib
import numpy as np
import pytest

from sureshot import GPClassifier, KernelSearchClassifier
from sureshot.computing.workers import are_workers, at_once, each

RNG = np.random.default_rng(0)
X = RNG.uniform(-3, 3, (5000, 3))
Y = (np.floor(X[:, 0]) + 2 * np.floor(X[:, 1])).astype(int) % 3
QUERIES = RNG.uniform(-3, 3, (20_000, 3))  # ten blocks


@pytest.fixture(scope="module")
def model() -> GPClassifier:
    return GPClassifier("matern32", approximation="nearest_neighbours", n_neighbours=25).fit(X, Y)


@contextmanager
def killing(victim: Callable[[], int | None]) -> Iterator[list[int]]:
    """Kill the process that is named, as soon as one is; its number is then in the list."""
    killed: list[int] = []
    over = threading.Event()

    def look() -> None:
        while not over.is_set() and not killed:
            if pid := victim():
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            time.sleep(0.01)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def test_there_are_workers_where_a_backend_of_processes_is_named() -> None:
    assert not are_workers()
    for config in ({"n_jobs": 2}, {"backend": "threading", "n_jobs": 2}, {"backend": "loky", "n_jobs": 1}):
        with joblib.parallel_config(**config):
            assert not are_workers()
            assert (
                list(at_once(joblib.delayed(os.getpid)() for _ in range(2))) == [os.getpid()] * 2
                or config["n_jobs"] == 1
            )
    with joblib.parallel_config("loky", n_jobs=2):
        assert are_workers()


def falls_ill(folder: Path, number: int) -> int:
    """Where 3 is asked for the first time the process dies; 4 is refused."""
    if number == 3 and not (folder / "ill").exists():
        (folder / "ill").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 4:
        with (folder / "refused").open("a") as file:
            file.write("x")
        raise ValueError("4 is refused")
    return number


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:A worker stopped while some jobs:UserWarning")
def test_lost_work_is_done_again_and_an_error_of_the_work_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with joblib.parallel_config("loky", n_jobs=2):
        with caplog.at_level(logging.WARNING):
            assert each(falls_ill, tmp_path, [0, 1, 2, 3]) == [0, 1, 2, 3]
        assert "a worker was lost" in caplog.text
        with pytest.raises(ValueError, match="4 is refused"):
            each(falls_ill, tmp_path, [4])
    assert (tmp_path / "refused").read_text() == "x"


@pytest.mark.slow
def test_dask_shares_fits_and_answers(model: GPClassifier) -> None:
    distributed = pytest.importorskip("distributed", reason="Dask is not installed: sureshot[dask]")
    here, far = model.predict_proba(QUERIES), model.outlier_score(QUERIES[:5000])
    chosen, searched = GPClassifier(), KernelSearchClassifier(n_particles=16, n_rejuvenation=1, random_state=0)
    expected = [learner.fit(X[:60], Y[:60]).predict_proba(QUERIES[:100]) for learner in (chosen, searched)]
    cluster = distributed.LocalCluster(n_workers=2, processes=True, threads_per_worker=1, dashboard_address=None)
    with cluster, distributed.Client(cluster) as client, joblib.parallel_config("dask"):
        for learner, p in zip((chosen, searched), expected, strict=True):
            np.testing.assert_array_equal(learner.fit(X[:60], Y[:60]).predict_proba(QUERIES[:100]), p)
        np.testing.assert_array_equal(model.outlier_score(QUERIES[:5000]), far)
        address, pid = next(iter(client.run(os.getpid).items()))
        begun: set[str] = set()

        def has_answered() -> int | None:
            running = set(client.processing().get(address, ()))
            done = begun - running
            begun.update(running)
            return pid if done else None

        with killing(has_answered) as killed:
            there = model.predict_proba(QUERIES)
        assert killed == [pid]
    np.testing.assert_array_equal(there, here)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="Linux tells which process is at work")
def test_ray_shares_answers(model: GPClassifier, caplog: pytest.LogCaptureFixture) -> None:
    ray = pytest.importorskip("ray", reason="Ray is not installed: sureshot[ray]")
    from ray.util.joblib import register_ray

    def works() -> int | None:
        pids = [actor["Pid"] for actor in ray._private.state.actors().values() if actor["State"] == "ALIVE"]
        names = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids if Path(f"/proc/{pid}").exists()}
        return next((pid for pid, name in names.items() if b"run_batch" in name), None)

    here = model.predict_proba(QUERIES)
    register_ray()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        with joblib.parallel_config("ray", n_jobs=-1), killing(works) as killed, caplog.at_level(logging.WARNING):
            there = model.predict_proba(QUERIES)
    finally:
        ray.shutdown()
    assert len(killed) == 1
    assert "a worker was lost" in caplog.text
    np.testing.assert_array_equal(there, here)

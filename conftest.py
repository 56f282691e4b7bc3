"""How tests are divided among processes."""

from __future__ import annotations

import os

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """A process for each core if the whole suite runs, each with one thread; one process for named files."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores == 1 or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return 0
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # workers inherit it
    return cores

"""How tests are collected and divided among processes."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Nothing that is made of thousands of tests is garbage yet; to look for it is a quarter of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """A process for each core if the whole suite runs, each with one thread; one process for named files."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores == 1 or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return 0
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # workers inherit it
    return cores

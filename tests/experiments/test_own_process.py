"""Seconds and memory of work, and work in another process."""

from __future__ import annotations

import mmap
import os
import time

import pytest

from experiments.own_process import measured, on_its_own

CAN_MEASURE = pytest.mark.skipif(not os.access("/proc/self/statm", os.R_OK), reason="Linux counts the memory")


@CAN_MEASURE
def test_memory_is_the_peak_of_the_work() -> None:
    def pages() -> mmap.mmap:  # new ones, where an array may get what another has left
        found = mmap.mmap(-1, 80_000_000)
        for _ in range(80):
            found.write(bytes(range(250)) * 4000)
        return found

    def held_for_a_moment() -> None:
        found = pages()
        time.sleep(0.3)
        found.close()

    for work in (pages, held_for_a_moment):
        _, seconds, megabytes = measured(work)
        assert seconds > 0
        assert megabytes == pytest.approx(80, rel=0.1)


def test_work_is_done_elsewhere() -> None:
    assert on_its_own(os.getpid) != os.getpid()

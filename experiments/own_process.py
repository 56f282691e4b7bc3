"""How long work takes and how much memory, and work in a process of its own, whose memory is then its alone."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def on_its_own(work: Callable[..., T], *arguments: Any) -> T:
    """What the work returns, from a new process; the work is a function of a module."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(work, *arguments).result()


def measured(work: Callable[[], T]) -> tuple[T, float, float]:
    """What the work returns, its processor seconds, and its peak of memory in MB above what was there before.

    Memory is looked at every few milliseconds: not every kernel lets a process forget the peak that it counts.
    """
    before, over = _megabytes(), threading.Event()
    peak = before

    def watch() -> None:
        nonlocal peak
        while not over.wait(0.005):
            peak = max(peak, _megabytes())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    started = time.process_time()
    try:
        found = work()
        seconds = time.process_time() - started
        peak = max(peak, _megabytes())
    finally:
        over.set()
        watcher.join()
    return found, seconds, peak - before


def _megabytes() -> float:
    """Memory of the process now, as Linux counts it."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

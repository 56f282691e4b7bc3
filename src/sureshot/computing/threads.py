"""One thread for small work, and for all work after a fork; given back afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from threading import Lock
from typing import Any

import torch
from threadpoolctl import ThreadpoolController

SMALL_SUPPORT = 2000  # distinct rows up to which one core was measured to be as fast as two


@contextmanager
def one_thread() -> Iterator[None]:
    """Run linear algebra on one core, torch's in this thread and that of numpy and scipy, then restore all settings.

    Matrices of a few hundred rows gain nothing from more cores. Never raises the number of threads.
    """
    before = torch.get_num_threads()
    _libraries.limit()
    try:
        if before > 1:
            torch.set_num_threads(1)
        yield
    finally:
        if before > 1:
            torch.set_num_threads(before)
        _libraries.release()


def threads_for(n_rows: int) -> AbstractContextManager[None]:
    """`one_thread` for conditioning on few distinct rows, the user's threads for more."""
    return one_thread() if n_rows <= SMALL_SUPPORT else nullcontext()


def surviving_threads() -> AbstractContextManager[None]:
    """One thread in a child that was forked, where OpenMP waits for the parent's threads for ever; else the user's."""
    return _one_thread_of_every_pool() if _libraries.forked else nullcontext()


@contextmanager
def _one_thread_of_every_pool() -> Iterator[None]:
    with one_thread(), _pools().limit(limits=1, user_api="openmp"):
        yield


class _Libraries:
    """Limits the thread pools of numpy and scipy, which a process has once: the last of several callers restores."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._callers = 0
        self.forked = False
        self._limiter: Any = None

    def limit(self) -> None:
        with self._lock:
            if self._callers == 0:
                self._limiter = _pools().limit(limits=1, user_api="blas")
            self._callers += 1

    def release(self) -> None:
        with self._lock:
            self._callers -= 1
            if self._callers == 0:
                self._limiter.restore_original_limits()

    def in_forked_child(self) -> None:
        """Whatever thread held the lock in the parent is gone."""
        self._lock = Lock()
        self.forked = True


_libraries = _Libraries()
if hasattr(os, "register_at_fork"):  # where processes can be forked
    os.register_at_fork(after_in_child=_libraries.in_forked_child)


@cache
def _pools() -> ThreadpoolController:
    """The thread pools of the libraries in this process; looking for them takes milliseconds."""
    return ThreadpoolController()

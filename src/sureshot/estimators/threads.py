"""One thread for small work, given back afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch operations of the calling thread on one core, then restore the user's setting.

    Matrices of a few hundred rows gain nothing from more cores, and on a busy machine threads that wait for each other
    at every operation cost ten times the work itself. Never raises the number of threads.
    """
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)

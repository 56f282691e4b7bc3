"""Threads are borrowed and given back, by however many callers at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
import torch
from threadpoolctl import threadpool_info

from sureshot.computing.threads import one_thread


def pools() -> list[Any]:
    """Threads of the libraries behind numpy and scipy; torch's follows the thread that asks."""
    return [pool["num_threads"] for pool in threadpool_info() if pool["internal_api"] == "openblas"]


def test_all_is_restored_after_an_error_too() -> None:
    before = torch.get_num_threads(), pools()
    with one_thread():
        assert torch.get_num_threads() == 1
        assert all(n == 1 for n in pools())
    assert (torch.get_num_threads(), pools()) == before
    with pytest.raises(ZeroDivisionError), one_thread():
        raise ZeroDivisionError
    assert (torch.get_num_threads(), pools()) == before


def test_the_last_of_several_callers_restores() -> None:
    first_left = Barrier(2)

    def work(waits: bool) -> None:
        with one_thread():
            first_left.wait(10)  # both are in
            if waits:
                first_left.wait(10)  # the other has left
        if not waits:
            first_left.wait(10)

    before = torch.get_num_threads(), pools()
    with ThreadPoolExecutor(2) as executor:
        list(executor.map(work, (True, False)))
    assert (torch.get_num_threads(), pools()) == before

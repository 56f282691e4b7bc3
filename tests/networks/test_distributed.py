"""What each of several processes takes; that they train as one does is shown in `tests/meta/training`."""

from __future__ import annotations

import torch

from sureshot.networks import Processes


def test_shares_are_contiguous_and_complete() -> None:
    for count in (1, 2, 3, 5):
        shares = [Processes(rank, count, torch.device("cpu")).share(7) for rank in range(count)]
        taken = [task for share in shares for task in range(7)[share]]
        assert taken == list(range(7))
        sizes = [len(range(7)[share]) for share in shares]
        assert max(sizes) - min(sizes) <= 1

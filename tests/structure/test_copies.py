"""Rows that are the same row again."""

from __future__ import annotations

import torch

from sureshot.structure.copies import Copies

X = torch.tensor([[3.0], [1.0], [3.0], [2.0], [1.0], [1.0], [0.0], [-0.0]], dtype=torch.float64)
Y = torch.tensor([1, 0, 1, 0, 0, 1, 0, 0])


def test_rows_are_counted_in_the_order_in_which_they_came() -> None:
    copies = Copies.of(X, Y)
    assert copies.first.tolist() == [0, 1, 3, 5, 6]
    assert copies.place.tolist() == [0, 1, 0, 2, 1, 3, 4, 4]
    assert copies.sizes.tolist() == [2, 2, 1, 1, 2]


def test_they_leave_together_and_count_once_unless_equal_rows_contradict_them() -> None:
    copies = Copies.of(X, Y)
    assert copies.together.tolist() == [True, False, True, False, True]
    assert copies.evidence.tolist() == [1, 2, 1, 1, 1]
    found = {those: rows for k, r in copies.sets() for those, rows in zip(k.tolist(), r.tolist(), strict=True)}
    assert found == {0: [0, 2], 1: [1], 2: [3], 3: [5], 4: [6, 7]}
    values = torch.arange(16.0).view(1, 8, 2)
    assert copies.leaving(values).tolist() == [[[4, 6], [2, 3], [6, 7], [10, 11], [26, 28]]]


def test_where_all_rows_differ_each_is_its_own() -> None:
    x = torch.randn(9, 2, generator=torch.Generator().manual_seed(0))
    copies = Copies.of(x, torch.zeros(9, dtype=torch.int64))
    assert copies.first.tolist() == copies.place.tolist() == list(range(9))
    ((those, rows),) = copies.sets()
    assert those.tolist() == rows.flatten().tolist() == list(range(9))

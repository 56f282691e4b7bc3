"""Masks of rows and classes in logits and losses."""

from __future__ import annotations

import torch

from sureshot.meta.baselines.logits import mean_cross_entropy, only_present
from sureshot.meta.tasks import TaskRows


def test_padding_has_no_label() -> None:
    support = TaskRows(torch.ones(1, 3, 1), torch.tensor([[2, 0, 1]]), 3, torch.tensor([[True, True, False]]))
    assert support.one_hot().tolist() == [[[0, 0, 1], [1, 0, 0], [0, 0, 0]]]


def test_padding_may_hold_anything() -> None:
    rows = torch.tensor([[[1.0], [torch.nan]]])
    support = TaskRows(rows, torch.zeros(1, 2, dtype=torch.int64), 2, torch.tensor([[True, False]]))
    assert support.without_padding().tolist() == [[[1.0], [0.0]]]


def test_loss_ignores_padded_rows_and_absent_classes() -> None:
    logits = torch.tensor([[[0.0, 0.0, 9.0], [5.0, 1.0, 9.0]]], requires_grad=True)
    present = torch.tensor([[True, True, False]])
    losses = mean_cross_entropy(only_present(logits, present), torch.tensor([[0, 2]]), torch.tensor([[True, False]]))
    torch.testing.assert_close(losses, torch.tensor([2.0]).log())
    losses.sum().backward()
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, torch.tensor([[[-0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]]))

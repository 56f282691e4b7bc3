"""Classification layers: values by hand, gradients against automatic differentiation."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sureshot.meta.baselines.heads import CosineHead, Head, LinearHead

HEADS = [LinearHead(), CosineHead(2.0), CosineHead(10.0)]


def normal(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_linear_logits() -> None:
    matrix, vector = torch.tensor([[1.0, 2.0], [0.0, 1.0]]), torch.tensor([0.5, -0.5])
    logits = LinearHead().logits(torch.tensor([[3.0, 1.0]]), matrix, vector)
    torch.testing.assert_close(logits, torch.tensor([[5.5, 0.5]]))


def test_cosine_logits() -> None:
    head = CosineHead(2.0)
    features = head.features(torch.tensor([[3.0, 4.0]]))
    logits = head.logits(features, torch.tensor([[7.0, 0.0], [0.0, -1.0]]), torch.tensor([1.0, 3.0]))
    torch.testing.assert_close(logits, torch.tensor([[2 * 0.6, -2 * 3 * 0.8]]))


def test_start() -> None:
    uniform = torch.rand(1000, 17, generator=torch.Generator().manual_seed(0))
    matrix, vector = LinearHead().initial(uniform)
    assert matrix.shape == (1000, 16)
    assert vector.shape == (1000,)
    assert matrix.abs().max() <= 0.25
    assert matrix.std().item() == pytest.approx(0.25 / math.sqrt(3), rel=0.02)
    directions, norms = CosineHead(2.0).initial(uniform)
    torch.testing.assert_close(directions, matrix)
    torch.testing.assert_close(norms, matrix.norm(dim=-1))


@pytest.mark.parametrize("head", HEADS, ids=repr)
def test_gradient(head: Head) -> None:
    features = head.features(normal(2, 5, 4, seed=1))
    matrix, vector = normal(2, 3, 4, seed=2).requires_grad_(), normal(2, 3, seed=3).requires_grad_()
    y = torch.tensor([[0, 1, 2, 0, 1], [2, 2, 1, 0, 0]])
    logits = head.logits(features, matrix, vector)
    loss = F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="sum") / 5
    expected = torch.autograd.grad(loss, (matrix, vector))
    error = (logits.softmax(-1) - F.one_hot(y, 3)) / 5
    torch.testing.assert_close(head.gradient(features, error, matrix, vector), expected)

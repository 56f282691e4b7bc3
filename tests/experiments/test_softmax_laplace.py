"""Laplace's method with the full curvature against explicit inverses."""

from __future__ import annotations

import torch
from torch import Tensor

from experiments.softmax_laplace import softmax_laplace_exact
from tests.oracles.softmax_laplace import dense_softmax_laplace


def problem() -> tuple[Tensor, Tensor, Tensor]:
    x = torch.randn(7, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return x, 3 * torch.exp(-0.5 * torch.cdist(x, x) ** 2), torch.arange(7) % 3


def test_mode_evidence_and_queries_are_those_of_dense_algebra() -> None:
    x, gram, y = problem()
    mode, covariance, evidence = dense_softmax_laplace(gram, y, 3, torch.ones(7, dtype=torch.float64))
    found = softmax_laplace_exact(gram, y, 3)
    torch.testing.assert_close(found.mean, mode, rtol=0, atol=1e-10)
    torch.testing.assert_close(found.log_evidence, evidence, rtol=0, atol=1e-10)
    query = torch.tensor([[0.3, -0.2], [4.0, 4.0]], dtype=torch.float64)
    cross = 3 * torch.exp(-0.5 * torch.cdist(x, query) ** 2)
    mean, variance = found.query(cross.unsqueeze(0), torch.full((1, 2), 3.0, dtype=torch.float64))
    inverse = torch.linalg.inv(torch.block_diag(*[gram] * 3))
    for q in range(2):
        loading = inverse @ torch.block_diag(*[cross[:, q : q + 1]] * 3)
        prior = 3 * torch.eye(3, dtype=torch.float64) - torch.block_diag(*[cross[:, q : q + 1]] * 3).mT @ loading
        torch.testing.assert_close(variance[q], prior + loading.mT @ covariance @ loading, rtol=0, atol=1e-9)
        torch.testing.assert_close(mean[:, q], loading.mT @ mode.reshape(-1), rtol=0, atol=1e-9)


def test_a_batch_is_its_members() -> None:
    _, gram, y = problem()
    grams = torch.stack([gram, 0.1 * gram, 50 * gram])
    together = softmax_laplace_exact(grams, y.expand(3, -1), 3)
    for k in range(3):
        torch.testing.assert_close(together.mean[k], softmax_laplace_exact(grams[k], y, 3).mean, rtol=0, atol=1e-8)


def test_it_converges_where_undamped_newton_diverges() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.nn.functional.normalize(torch.randn(60, 20, generator=generator, dtype=torch.float64), dim=1)
    gram = 300 * (x @ x.mT + 1)
    y = torch.arange(60) % 30
    found = softmax_laplace_exact(gram, y, 30)
    stationary = torch.nn.functional.one_hot(y, 30).double().mT - torch.softmax(found.mean, 0)
    torch.testing.assert_close(found.mean, stationary @ gram, rtol=0, atol=1e-6)

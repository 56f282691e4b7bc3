"""Regressions on nearest rows, against arithmetic by inverses, automatic differentiation and exact leave-one-out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sureshot.gaussian.local_regression import LocalProblem, local_regression, local_regression_without


def problem(b: int = 4, k: int = 6, p: int = 3, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(b, k + 1, 2, generator=generator, dtype=torch.float64)
    whole = torch.exp(-0.5 * torch.cdist(x, x).square())
    noise = 0.1 + torch.rand(b, k, generator=generator, dtype=torch.float64)
    targets = torch.randn(b, k, p, generator=generator, dtype=torch.float64)
    parts = whole[:, 1:, 1:], whole[:, 0, 1:], noise, targets
    return tuple(part.to(dtype).contiguous() for part in parts)


def by_inverses(gram: Tensor, cross: Tensor, noise: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    weights = torch.einsum("bij,bj->bi", torch.linalg.inv(gram + torch.diag_embed(noise)), cross)
    return torch.einsum("bi,bip->bp", weights, targets), (weights * cross).sum(-1), weights


def test_moments_and_weights() -> None:
    parts = problem()
    for found, expected in zip(local_regression(LocalProblem(*parts[:3]), parts[3]), by_inverses(*parts), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)


def test_gradients_are_those_of_automatic_differentiation() -> None:
    *parts, targets = problem()
    leaves = [part.clone().requires_grad_() for part in parts]
    generator = torch.Generator().manual_seed(1)
    of_mean = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    of_explained = torch.randn(4, generator=generator, dtype=torch.float64)

    def gradients(mean: Tensor, explained: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad((mean * of_mean).sum() + (explained * of_explained).sum(), leaves)

    found = gradients(*local_regression(LocalProblem(*leaves), targets)[:2])
    expected = gradients(*by_inverses(*leaves, targets)[:2])
    for one, other, name in zip(found, expected, ("gram", "cross", "noise"), strict=True):
        both = (one, other) if name != "gram" else (one + one.mT, other + other.mT)  # a matrix that stays symmetric
        torch.testing.assert_close(*both, rtol=1e-10, atol=1e-10)


def test_with_all_other_rows_it_is_exact_leave_one_out() -> None:
    """Diagonal and solutions of one inverse of all rows: m_i = t_i - [A^-1 t]_i / [A^-1]_ii."""
    generator = torch.Generator().manual_seed(2)
    x, t = (torch.randn(12, d, generator=generator, dtype=torch.float64) for d in (2, 1))
    gram = torch.exp(-0.5 * torch.cdist(x, x).square())
    inverse = torch.linalg.inv(gram + 0.3 * torch.eye(12, dtype=torch.float64))
    expected = t - (inverse @ t) / inverse.diagonal()[:, None]
    others = torch.tensor([[j for j in range(12) if j != i] for i in range(12)])
    cross = gram.gather(1, others)
    among = LocalProblem(gram[others.unsqueeze(-1), others.unsqueeze(-2)], cross, torch.full_like(cross, 0.3))
    found = local_regression(among, t[others])
    torch.testing.assert_close(found.mean, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(1 - found.explained + 0.3, 1 / inverse.diagonal(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_rows_are_solved_in_any_precision(dtype: torch.dtype) -> None:
    """64 copies of one row with next to no noise have no factor in single precision."""
    k, noise = 64, 1e-9
    ones, targets = torch.ones(1, k, dtype=dtype), torch.linspace(0, 1, k, dtype=dtype)[None, :, None]
    found = local_regression(LocalProblem(ones.unsqueeze(-1) * ones.unsqueeze(-2), ones, noise * ones), targets)
    torch.testing.assert_close(found.mean, torch.full((1, 1), 0.5, dtype=dtype), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.weights.sum(), torch.tensor(1.0, dtype=dtype), rtol=1e-5, atol=1e-5)


def test_without_a_neighbour_or_a_part_of_its_weight() -> None:
    gram, cross, noise, targets = problem()
    query, neighbour = torch.tensor([0, 0, 2, 3]), torch.tensor([1, 4, 0, 5])
    share = torch.tensor([1.0, 0.25, 1.0, 0.0], dtype=torch.float64)
    mean, explained = local_regression_without(LocalProblem(gram, cross, noise), targets, query, neighbour, share)
    for k, (b, j, gone) in enumerate(zip(query.tolist(), neighbour.tolist(), share.tolist(), strict=True)):
        keep = [i for i in range(gram.shape[1]) if i != j or gone < 1]
        changed = noise[b].clone()
        changed[j] = changed[j] / (1 - gone) if gone < 1 else changed[j]
        parts = gram[b][keep][:, keep], cross[b][keep], changed[keep], targets[b][keep]
        expected = by_inverses(*(part.unsqueeze(0) for part in parts))
        torch.testing.assert_close(mean[k], expected[0][0], rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(explained[k], expected[1][0], rtol=1e-10, atol=1e-10)


def test_a_kernel_that_rounding_leaves_without_a_factor_gets_a_little_noise() -> None:
    """Smooth functions of rows close together, with noise far below single precision."""
    x = torch.linspace(0, 1, 40, dtype=torch.float64)[None, :, None]
    gram = torch.exp(-0.5 * torch.cdist(x, x).square()).float()
    assert int(torch.linalg.cholesky_ex(gram + 1e-12 * torch.eye(40, dtype=torch.float32))[1]) > 0
    cross, noise = gram[:, 20].clone(), torch.full((1, 40), 1e-12, dtype=torch.float32)
    found = local_regression(LocalProblem(gram, cross, noise), torch.sin(x).float())
    torch.testing.assert_close(found.mean[0, 0].double(), torch.sin(x[0, 20, 0]), atol=1e-3, rtol=0)
    assert float(found.explained) == pytest.approx(1, abs=1e-3)

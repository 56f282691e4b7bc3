"""Roots of kernel matrices, and what is rounding in them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sureshot.approximations.exact import Roots, lifted, rounding
from sureshot.kernels import RBF, Linear

F64 = torch.float64


def rows(n: int, width: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, width, dtype=F64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_a_matrix_of_rank_one_has_roots_whatever_its_size(scale: float) -> None:
    line = scale * Linear(1.0)(rows(40, 1))
    assert float(rounding(line)) == pytest.approx(256 * np.finfo(float).eps * np.trace(line.numpy()))
    roots = Roots.of(line)
    assert roots.features.shape == (40, 1)
    torch.testing.assert_close(roots.features @ roots.features.mT, line, rtol=0, atol=1e-12 * scale)
    triangle = torch.linalg.cholesky(lifted(line))
    torch.testing.assert_close(triangle @ triangle.mT, line, rtol=0, atol=1e-10 * scale)


def test_a_matrix_without_directions_of_rounding_is_used_as_it_is() -> None:
    gram = RBF(0.5)(rows(40, 3))
    for orthogonal in (False, True):
        features, inverse = (part.numpy() for part in reversed(Roots.of(gram, orthogonal)))
        np.testing.assert_allclose(features @ features.T, gram, atol=1e-13)
        np.testing.assert_allclose(inverse @ inverse.T, np.linalg.inv(gram), rtol=1e-7, atol=1e-7)
        product = features.T @ features
        assert np.allclose(product, np.diag(product.diagonal()), atol=1e-12) is orthogonal


def test_rounding_of_each_matrix_of_a_batch_is_its_own() -> None:
    x = rows(6, 1)
    pair = torch.stack([Linear(1.0)(x), 1e8 * Linear(1.0)(x)])
    torch.testing.assert_close(lifted(pair)[0], lifted(pair[0]), rtol=0, atol=0)
    padded = torch.nn.functional.pad(pair[0], (0, 2, 0, 2))
    torch.testing.assert_close(lifted(padded)[:6, :6], lifted(pair[0]), rtol=0, atol=0)


def test_factors_have_gradients() -> None:
    def value(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.cholesky(lifted(RBF(1.0)(x))).sin().sum()

    assert torch.autograd.gradcheck(value, rows(5, 2).requires_grad_())

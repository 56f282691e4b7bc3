"""Kernels as plain tensors: bad input is named, user kernels work, threads do not disturb each other."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gpytorch.kernels as gk
import pytest
import torch
from gpytorch.kernels import Kernel

from sureshot.kernels import UnitSphereKernel, evaluate, make_kernel
from sureshot.kernels.dense import as_expression


def _rows(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class _OwnKernel(Kernel):
    """A user's kernel that ignores `diag`, as many do."""

    def forward(self, x1: torch.Tensor, x2: torch.Tensor, **params: Any) -> torch.Tensor:
        return torch.exp(-(x1.unsqueeze(-2) - x2.unsqueeze(-3)).abs().sum(-1))


class _DoubledScale(gk.ScaleKernel):
    """A subclass that overrides `forward`, so it must not be taken for its parent."""

    def forward(self, x1: torch.Tensor, x2: torch.Tensor, **params: Any) -> Any:
        return super().forward(x1, x2, **params) * 2.0


def test_user_kernels_are_evaluated_by_their_own_forward() -> None:
    x, z = _rows(7, 3), _rows(4, 3, seed=1)
    own = _OwnKernel()
    expected = torch.exp(-torch.cdist(x, z, p=1))
    torch.testing.assert_close(evaluate(own, x, z), expected)
    torch.testing.assert_close(evaluate(own, x, diag=True), torch.ones(7, dtype=torch.float64))
    torch.testing.assert_close(evaluate(gk.AdditiveKernel(own, own), x, z), 2 * expected)
    torch.testing.assert_close(
        evaluate(UnitSphereKernel(own), x, z),
        evaluate(own, x / x.norm(dim=-1, keepdim=True), z / z.norm(dim=-1, keepdim=True)),
    )
    scaled = gk.ScaleKernel(gk.RBFKernel()).double()
    doubled = _DoubledScale(gk.RBFKernel()).double()
    torch.testing.assert_close(evaluate(doubled, x), 2 * evaluate(scaled, x))
    assert as_expression(doubled).rank(3) is None


def test_other_gpytorch_kernels_are_evaluated() -> None:
    x, z = _rows(6, 2), _rows(3, 2, seed=1)
    for kernel in (gk.PiecewisePolynomialKernel(q=2), gk.SpectralMixtureKernel(num_mixtures=2, ard_num_dims=2)):
        kernel = kernel.double()
        torch.testing.assert_close(evaluate(kernel, x, z), kernel(x, z).to_dense())
        gram = evaluate(kernel, x)
        assert torch.equal(gram, gram.mT)


def test_the_diagonal_is_exact_even_while_learning_with_ard() -> None:
    gram = evaluate(make_kernel("matern12", 64, ard=True, constant=False), _rows(40, 64))
    assert gram.requires_grad
    torch.testing.assert_close(gram.diagonal(), torch.ones(40, dtype=torch.float64), rtol=0, atol=1e-15)


def test_queries_do_not_depend_on_their_batch() -> None:
    x, queries = _rows(40, 5), _rows(60, 5, seed=1)
    for name in ("rbf", "matern32", "cosine", "polynomial2"):
        kernel = make_kernel(name, 5)
        alone = torch.cat([evaluate(kernel, x, query.unsqueeze(0)) for query in queries], dim=-1)
        torch.testing.assert_close(alone, evaluate(kernel, x, queries), rtol=1e-13, atol=1e-13)


def test_threads_sharing_a_kernel_do_not_disturb_each_other() -> None:
    kernel = gk.ScaleKernel(gk.RBFKernel(active_dims=(0,)) + gk.MaternKernel(active_dims=(1, 2))).double()
    kernel = kernel * gk.SpectralMixtureKernel(num_mixtures=1, ard_num_dims=1, active_dims=(3,)).double()
    inputs = [_rows(20, 4, seed=seed) for seed in range(8)]
    expected = [evaluate(kernel, x) for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            for gram, known in zip(pool.map(lambda x: evaluate(kernel, x), inputs), expected, strict=True):
                assert torch.equal(gram, known)


@pytest.mark.parametrize(
    ("kernel", "x1", "x2", "options", "message"),
    [
        ("rbf", _rows(3, 4), None, {}, "kernel must be an Expression or a gpytorch.kernels.Kernel, got str"),
        (make_kernel("rbf", 4), _rows(4), None, {}, r"x1 must be a floating-point tensor .* shape \(4,\)"),
        (make_kernel("rbf", 4), torch.ones(3, 4).long(), None, {}, "x1 must be a floating-point tensor"),
        (make_kernel("rbf", 4), _rows(3, 4), _rows(3, 5), {}, "x1 has 4 features and x2 has 5"),
        (make_kernel("rbf", 4), _rows(3, 4), _rows(2, 4), {"diag": True}, "x1 has 3 rows and x2 has 2"),
        (make_kernel("rbf", 4), _rows(3, 4).float(), None, {}, r"is torch.float64 and the inputs are torch.float32"),
        (make_kernel("rbf", 4), _rows(3, 4), _rows(3, 4).float(), {}, "torch.float64 and torch.float32"),
        (make_kernel("rbf", 4, ard=True), _rows(3, 5), None, {}, "made for 4 features.* the inputs have 5"),
        (gk.RBFKernel(active_dims=(6,)).double(), _rows(3, 4), None, {}, "looks at feature 6, .* only 4 features"),
    ],
)
def test_bad_input_is_named(
    kernel: Any, x1: torch.Tensor, x2: torch.Tensor | None, options: dict, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate(kernel, x1, x2, **options)

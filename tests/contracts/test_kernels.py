"""The battery that every kernel passes: presets, our classes on their own, and compositions of GPyTorch's."""

import copy
import pickle
from collections.abc import Callable

import gpytorch.kernels as gk
import pytest
import torch
from gpytorch.kernels import Kernel

from sureshot.kernels import (
    KERNEL_NAMES,
    CosineKernel,
    ScaledPolynomialKernel,
    UnitSphereKernel,
    evaluate,
    make_kernel,
)
from sureshot.kernels.dense import as_expression

WIDTH = 4


def _center() -> torch.Tensor:
    return torch.tensor([0.3, -0.2, 0.1, 0.5], dtype=torch.float64)


def _preset(name: str, **options: object) -> Callable[[], Kernel]:
    return lambda: make_kernel(name, WIDTH, outputscale=2.5, constant_weight=0.4, **options)


COMPOSED: dict[str, Callable[[], Kernel]] = {
    "sum": lambda: gk.ScaleKernel(gk.RBFKernel(ard_num_dims=WIDTH)) + gk.LinearKernel(),
    "product": lambda: gk.PeriodicKernel() * gk.RQKernel() * gk.ScaleKernel(gk.MaternKernel(nu=1.5)),
    "active columns": lambda: (
        gk.ScaleKernel(gk.RBFKernel(active_dims=(0, 2))) + gk.MaternKernel(nu=0.5, active_dims=(1,))
    ),
    "nested": lambda: gk.ScaleKernel(
        (gk.RBFKernel() + gk.ConstantKernel()) * (gk.LinearKernel() + gk.PolynomialKernel(2))
    ),
    "on the sphere, some columns": lambda: UnitSphereKernel(
        gk.RBFKernel(active_dims=(0, 1)) + gk.LinearKernel(ard_num_dims=WIDTH), center=_center()
    ),
    "finite rank": lambda: gk.ScaleKernel(
        gk.LinearKernel(ard_num_dims=2, active_dims=(1, 3)) + gk.PolynomialKernel(2) + CosineKernel()
    ),
    "cosine alone": lambda: CosineKernel(active_dims=(0, 1, 3)),
    "polynomial alone": lambda: ScaledPolynomialKernel(3, WIDTH),
}
KERNELS: dict[str, Callable[[], Kernel]] = {
    **{name: _preset(name) for name in KERNEL_NAMES},
    **{f"{name}, no constant": _preset(name, constant=False) for name in KERNEL_NAMES},
    **{
        f"{name}, ard": _preset(name, ard=True)
        for name in KERNEL_NAMES
        if name != "cosine" and not name.startswith(("polynomial", "additive", "interactions"))
    },
    **{f"{name}, centred": _preset(name, center=_center()) for name in ("cosine", "unit_rbf", "unit_matern32")},
    **COMPOSED,
}
everywhere = pytest.mark.parametrize("build", KERNELS.values(), ids=KERNELS.keys())


def _kernel(build: Callable[[], Kernel], dtype: torch.dtype = torch.float64) -> Kernel:
    """The kernel with parameters moved off their round starting values."""
    kernel = build().to(dtype)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in kernel.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=dtype)
    return kernel


def _rows(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@everywhere
def test_the_matrix_is_exactly_symmetric_and_positive_semidefinite(build: Callable[[], Kernel]) -> None:
    gram = evaluate(_kernel(build), _rows(40))
    assert type(gram) is torch.Tensor
    assert torch.equal(gram, gram.mT)
    eigenvalues = torch.linalg.eigvalsh(gram)
    assert eigenvalues[0] > -1e-13 * eigenvalues[-1]


@everywhere
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_it_is_what_gpytorch_gives(build: Callable[[], Kernel], dtype: torch.dtype) -> None:
    kernel, x, z = _kernel(build, dtype), _rows(9, dtype=dtype), _rows(5, seed=1, dtype=dtype)
    tolerance = {"rtol": 1e-12, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-4}
    gram, reference = evaluate(kernel, x), kernel(x).to_dense()
    # Off the diagonal: there GPyTorch's distances carry the square root of the rounding error.
    off = ~torch.eye(9, dtype=torch.bool)
    for ours, theirs in (
        (evaluate(kernel, x, z), kernel(x, z).to_dense()),
        (gram[off], reference[off]),
        (gram.diagonal(), kernel(x, diag=True)),
        (evaluate(kernel, x, diag=True), kernel(x, diag=True)),
    ):
        assert ours.dtype == dtype
        torch.testing.assert_close(ours, theirs, **tolerance)


@everywhere
def test_the_diagonal_agrees(build: Callable[[], Kernel]) -> None:
    kernel, x, z = _kernel(build), _rows(9), _rows(9, seed=1)
    assert torch.equal(evaluate(kernel, x).diagonal(), evaluate(kernel, x, diag=True))
    paired = evaluate(kernel, x, z, diag=True)
    torch.testing.assert_close(paired, evaluate(kernel, x, z).diagonal(), rtol=1e-12, atol=1e-12)


@everywhere
def test_the_block_of_two_sets_is_part_of_the_whole(build: Callable[[], Kernel]) -> None:
    kernel, x, z = _kernel(build), _rows(6), _rows(3, seed=1)
    whole = evaluate(kernel, torch.cat([x, z]))
    torch.testing.assert_close(evaluate(kernel, x, z), whole[:6, 6:], rtol=1e-10, atol=1e-10)


@everywhere
def test_batches_equal_their_members(build: Callable[[], Kernel]) -> None:
    kernel, x, z = _kernel(build), _rows(2, 3, 6), _rows(3, 5, seed=1)
    gram, cross, diagonal = evaluate(kernel, x), evaluate(kernel, x, z), evaluate(kernel, x, diag=True)
    assert gram.shape == (2, 3, 6, 6)
    assert cross.shape == (2, 3, 6, 5)
    assert diagonal.shape == (2, 3, 6)
    for i in range(2):
        for j in range(3):
            torch.testing.assert_close(gram[i, j], evaluate(kernel, x[i, j]), rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(cross[i, j], evaluate(kernel, x[i, j], z[j]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_batches_of_parameters_equal_their_members(name: str) -> None:
    together = make_kernel(name, WIDTH, batch_shape=(3,))
    with torch.no_grad():
        for parameter in together.parameters():
            parameter += torch.linspace(-1, 1, 3, dtype=torch.float64).view(3, *[1] * (parameter.ndim - 1))
    x = _rows(6)
    gram = evaluate(together, x)
    assert gram.shape == (3, 6, 6)
    features = as_expression(together).features(x)
    for member in range(3):
        alone = make_kernel(name, WIDTH)
        with torch.no_grad():
            for own, shared in zip(alone.parameters(), together.parameters(), strict=True):
                own.copy_(shared[member])
        torch.testing.assert_close(gram[member], evaluate(alone, x), rtol=1e-12, atol=1e-12)
        if features is not None:
            torch.testing.assert_close(features[member], as_expression(alone).features(x), rtol=1e-12, atol=1e-12)


@everywhere
def test_gradients_agree_with_finite_differences(build: Callable[[], Kernel]) -> None:
    kernel, x, z = _kernel(build), _rows(4), _rows(3, seed=1)
    weight = torch.randn(4, 4, generator=torch.Generator().manual_seed(5), dtype=torch.float64)

    def value(x: torch.Tensor) -> torch.Tensor:
        return (
            (evaluate(kernel, x) * weight).sum()
            + (evaluate(kernel, x, z) ** 2).sum()
            + evaluate(kernel, x, diag=True).sin().sum()
        )

    for parameter in kernel.parameters():
        if not parameter.requires_grad:
            continue
        (gradient,) = torch.autograd.grad(value(x), parameter)
        with torch.no_grad():
            for index in range(parameter.numel()):
                entry = parameter.view(-1)[index]
                start, step = entry.clone(), 1e-5
                entry.copy_(start + step)
                above = value(x)
                entry.copy_(start - step)
                below = value(x)
                entry.copy_(start)
                difference = (above - below) / (2 * step)
                torch.testing.assert_close(gradient.reshape(-1)[index], difference, rtol=1e-6, atol=1e-7)
    assert torch.autograd.gradcheck(value, x.clone().requires_grad_(), eps=1e-6, atol=1e-6, rtol=1e-5)


@everywhere
def test_gradients_stay_finite_with_equal_rows(build: Callable[[], Kernel]) -> None:
    kernel = _kernel(build)
    x = _rows(5)
    x = torch.cat([x, x[:2]]).requires_grad_()
    evaluate(kernel, x).sum().backward()
    assert x.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in kernel.parameters() if p.requires_grad and p.grad is not None)


@everywhere
def test_features_reproduce_the_matrix(build: Callable[[], Kernel]) -> None:
    kernel, x, z = _kernel(build), _rows(2, 9), _rows(5, seed=1)
    kernel = as_expression(kernel)
    phi = kernel.features(x)
    if phi is None:
        # Then the rank must really be beyond any small number of features: full on as many rows as one likes.
        assert torch.linalg.matrix_rank(evaluate(kernel, _rows(16))) == 16
        return
    assert phi.shape == (2, 9, kernel.rank(WIDTH))
    torch.testing.assert_close(phi @ phi.mT, evaluate(kernel, x), rtol=0, atol=1e-12)
    torch.testing.assert_close(phi @ kernel.features(z).mT, evaluate(kernel, x, z), rtol=0, atol=1e-12)


@everywhere
def test_it_survives_copying_and_pickling(build: Callable[[], Kernel]) -> None:
    kernel, x = _kernel(build), _rows(6)
    for again in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
        assert torch.equal(evaluate(again, x), evaluate(kernel, x))


@pytest.mark.parametrize("name", ["rbf", "matern12", "matern32", "matern52", "laplacian"])
def test_stationary_presets_ignore_translation(name: str) -> None:
    kernel, x = _kernel(_preset(name)), _rows(8)
    torch.testing.assert_close(evaluate(kernel, x + 3.0), evaluate(kernel, x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["cosine", "unit_rbf", "unit_matern32"])
@pytest.mark.parametrize("factor", [1e-200, 0.01, 7.0, 1e200])
def test_unit_sphere_presets_ignore_the_length_of_rows(name: str, factor: float) -> None:
    kernel, x = _kernel(_preset(name)), _rows(8)
    lengths = factor * torch.linspace(1, 3, 8, dtype=torch.float64).unsqueeze(-1)
    torch.testing.assert_close(evaluate(kernel, x * lengths), evaluate(kernel, x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["cosine", "unit_rbf", "unit_matern32"])
def test_a_centre_makes_unit_sphere_presets_ignore_translation(name: str) -> None:
    x, shift = _rows(8), torch.tensor([3.0, -1.0, 0.5, 2.0], dtype=torch.float64)
    here = make_kernel(name, WIDTH, center=x.mean(0))
    there = make_kernel(name, WIDTH, center=(x + shift).mean(0))
    torch.testing.assert_close(evaluate(there, x + shift), evaluate(here, x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["cosine", "unit_rbf", "unit_matern32"])
@pytest.mark.parametrize("centred", [False, True])
def test_a_row_without_direction_is_as_far_from_all_others(name: str, centred: bool) -> None:
    x = _rows(2, 5)
    x[1, 3] = 0
    kernel = make_kernel(name, WIDTH, center=x[0, 0] if centred else None)
    values = evaluate(kernel, x)[1].detach()
    assert float(values[3, [0, 1, 2, 4]].std()) < 1e-12
    assert float(torch.linalg.eigvalsh(values).min()) > -1e-12
    if centred:
        torch.testing.assert_close(evaluate(kernel, x[0, :1], x[0]), evaluate(kernel, 0 * x[0, :1], x[0]))


@pytest.mark.parametrize("name", ["cosine", "unit_rbf", "unit_matern32"])
def test_a_centre_of_another_width_is_refused(name: str) -> None:
    x = _rows(2, 5)
    with pytest.raises(ValueError, match="made for 4 features, the inputs have 3"):
        evaluate(make_kernel(name, WIDTH, center=_center()), x[0, :, :3])

"""Presets are the functions that their names promise, with starting values that suit any width."""

import math

import gpytorch.kernels as gk
import numpy as np
import pytest
import torch
from sklearn.gaussian_process.kernels import RBF, Matern
from sklearn.metrics.pairwise import laplacian_kernel

from sureshot.kernels import KERNEL_NAMES, ScaledPolynomialKernel, evaluate, make_kernel, natural_lengthscale


def _rows(n: int, width: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_each_preset_is_its_formula() -> None:
    x, z = _rows(6, 3), _rows(4, 3, seed=1)
    ux, uz = x / x.norm(dim=-1, keepdim=True), z / z.norm(dim=-1, keepdim=True)
    root = math.sqrt(3)
    bases = {
        "cosine": ux @ uz.T,
        "linear": x @ z.T / 3,
        "rbf": torch.from_numpy(RBF(root)(x.numpy(), z.numpy())),
        "matern12": torch.from_numpy(Matern(root, nu=0.5)(x.numpy(), z.numpy())),
        "matern32": torch.from_numpy(Matern(root, nu=1.5)(x.numpy(), z.numpy())),
        "matern52": torch.from_numpy(Matern(root, nu=2.5)(x.numpy(), z.numpy())),
        "laplacian": torch.from_numpy(laplacian_kernel(x.numpy(), z.numpy(), gamma=math.sqrt(math.pi) / 6)),
        "additive_matern32": sum(
            torch.from_numpy(Matern(1.0, nu=1.5)(x[:, [d]].numpy(), z[:, [d]].numpy())) / 3 for d in range(3)
        ),
        "interactions_matern32": math.prod(
            torch.from_numpy(np.exp(Matern(1.0, nu=1.5)(x[:, [d]].numpy(), z[:, [d]].numpy()) - 1)) for d in range(3)
        ),
        "unit_rbf": torch.from_numpy(RBF(1.0)(ux.numpy(), uz.numpy())),
        "unit_matern32": torch.from_numpy(Matern(1.0, nu=1.5)(ux.numpy(), uz.numpy())),
    }
    for name, base in bases.items():
        kernel = make_kernel(name, 3, outputscale=2.0, constant_weight=0.5)
        torch.testing.assert_close(evaluate(kernel, x, z), 2 * (base + 0.5), rtol=1e-12, atol=1e-12)
        bare = make_kernel(name, 3, constant=False, outputscale=2.0)
        torch.testing.assert_close(evaluate(bare, x, z), 2 * base, rtol=1e-12, atol=1e-12)
    for power in (1, 2):
        kernel = make_kernel(f"polynomial{power}", 3, outputscale=2.0, constant_weight=0.5)
        expected = 2 * (x @ z.T / 3 + 0.5) ** power
        torch.testing.assert_close(evaluate(kernel, x, z), expected, rtol=1e-12, atol=1e-12)
    assert bases.keys() | {"polynomial1", "polynomial2"} == set(KERNEL_NAMES)


@pytest.mark.parametrize("name", KERNEL_NAMES)
@pytest.mark.parametrize("width", [1, 10, 1000])
def test_values_do_not_depend_on_the_width_in_scale(name: str, width: int) -> None:
    """Standardised rows: diagonals near base + constant = 2, whatever D (polynomial2: its square)."""
    diagonal = evaluate(make_kernel(name, width), _rows(400, width), diag=True)
    expected = {"polynomial2": 4 + 2 / width}.get(name, 2.0)
    assert diagonal.mean().item() == pytest.approx(expected, rel=0.25)


@pytest.mark.parametrize("name", ["rbf", "matern12", "matern32", "matern52", "laplacian"])
def test_the_kernel_of_a_typical_pair_does_not_depend_on_the_width(name: str) -> None:
    values = []
    for width in (100, 2000):
        gram = evaluate(make_kernel(name, width, constant=False), _rows(30, width))
        values.append(gram[~torch.eye(30, dtype=torch.bool)].mean().item())
    assert values[0] == pytest.approx(values[1], abs=0.02)
    assert 0.2 < values[1] < 0.5


def test_starting_values_can_be_chosen_and_are_exact() -> None:
    kernel = make_kernel("rbf", 9, ard=True, lengthscale=0.7, outputscale=30.1, constant_weight=0.1)
    assert kernel.outputscale.item() == pytest.approx(30.1, rel=1e-14)
    base, intercept = kernel.base_kernel.kernels
    assert base.lengthscale.shape == (1, 9)
    assert base.lengthscale[0].tolist() == pytest.approx([0.7] * 9, rel=1e-14)
    assert intercept.constant.item() == pytest.approx(0.1, rel=1e-14)
    assert natural_lengthscale("rbf", 9) == 3.0
    assert natural_lengthscale("unit_rbf", 9) == 1.0
    assert make_kernel("matern32", 9, constant=False).base_kernel.lengthscale.item() == pytest.approx(3.0)


def test_only_what_the_output_scale_does_not_already_say_is_learned() -> None:
    linear = make_kernel("linear", 4)
    assert not linear.base_kernel.kernels[0].raw_variance.requires_grad
    assert make_kernel("linear", 4, ard=True).base_kernel.kernels[0].raw_variance.requires_grad
    learned = {name for name, value in make_kernel("rbf", 4).named_parameters() if value.requires_grad}
    assert len(learned) == 3


def test_dtype_is_float64_unless_asked() -> None:
    assert {p.dtype for p in make_kernel("rbf", 4).parameters()} == {torch.float64}
    assert {p.dtype for p in make_kernel("rbf", 4, dtype=torch.float32).parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "squared"}, "unknown kernel 'squared': expected one of cosine, linear"),
        ({"name": "rbf", "n_features": 0}, "n_features must be an integer of at least 1, got 0"),
        ({"name": "rbf", "n_features": 2.0}, "n_features must be an integer"),
        ({"name": "rbf", "n_features": True}, "n_features must be an integer"),
        ({"name": "cosine", "ard": True}, "'cosine' kernel does not have"),
        ({"name": "polynomial2", "ard": True}, "'polynomial2' kernel does not have"),
        ({"name": "rbf", "center": torch.zeros(3)}, "center applies to kernels on the unit sphere"),
        ({"name": "cosine", "center": torch.zeros(2)}, r"center must have shape \(3,\), got \(2,\)"),
        ({"name": "rbf", "lengthscale": 0.0}, "lengthscale must be a positive finite number"),
        ({"name": "rbf", "outputscale": -1.0}, "outputscale must be a positive finite number"),
        ({"name": "rbf", "constant_weight": math.nan}, "constant_weight must be a positive finite number"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_kernel(**({"n_features": 3} | arguments))


def test_the_polynomial_kernel_is_gpytorchs_on_scaled_inputs() -> None:
    x = _rows(5, 4)
    ours, theirs = ScaledPolynomialKernel(3, 4).double(), gk.PolynomialKernel(3).double()
    assert torch.equal(ours.offset, theirs.offset)
    torch.testing.assert_close(evaluate(ours, x), evaluate(theirs, x / 2), rtol=1e-13, atol=1e-13)

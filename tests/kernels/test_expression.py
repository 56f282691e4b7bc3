"""Expressions as values: built, checked, changed, read from data, and the formulas that GPyTorch lacks."""

import dataclasses
import doctest
import importlib
from typing import Any

import gpytorch.kernels as gk
import pytest
import torch

from sureshot.kernels import (
    RBF,
    Brownian,
    Columns,
    Constant,
    Expression,
    GammaExponential,
    GPyTorchKernel,
    Laplacian,
    Linear,
    Matern,
    Periodic,
    Polynomial,
    Sum,
    describe,
    evaluate,
    kernel_from_json,
    make_kernel,
    preset_kernel,
)

X = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Z = torch.randn(4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("module", ["expression", "compositions", "leaves", "presets", "shared_rows"])
def test_the_examples_in_the_documentation(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"sureshot.kernels.{module}"))
    assert result.attempted > 0
    assert result.failed == 0


def test_an_expression_cannot_be_changed() -> None:
    kernel = RBF(0.7)
    with pytest.raises(dataclasses.FrozenInstanceError):
        kernel.lengthscale = torch.ones(1)  # type: ignore[misc]
    assert kernel.replace(lengthscale=2.0).lengthscale.tolist() == [2.0]
    assert kernel.lengthscale.tolist() == [0.7]


def test_sums_and_products_are_flat() -> None:
    a, b, c = RBF(), Linear(), Constant(0.5)
    assert len((a + b + c).kernels) == len((a + (b + 0.5)).kernels) == 3
    assert a + b + c == a + (b + 0.5)
    assert a * b * c == a * (b * c)
    assert 2.0 * a == a * 2.0
    assert a != b
    assert a + b != a * b
    assert a != "RBF(1)"
    assert str((a + b) * (b + 1.0)) == "(RBF(1) + Linear(1)) x (Linear(1) + 1)"


def test_formulas_that_gpytorch_lacks_or_writes_otherwise() -> None:
    distance = torch.cdist(X, Z)
    torch.testing.assert_close(GammaExponential(1.3, 0.7)(X, Z), (-((distance / 1.3) ** 0.7)).exp())
    torch.testing.assert_close(GammaExponential(2**0.5 * 1.3, 2.0)(X, Z), RBF(1.3)(X, Z), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(GammaExponential(1.3, 1.0)(X, Z), Matern(0.5, 1.3)(X, Z), rtol=1e-12, atol=1e-12)
    lengthscale = torch.tensor([0.7, 1.1, 3.0], dtype=torch.float64)
    roughs = (-(X.unsqueeze(1) - Z).abs() / lengthscale).exp()
    torch.testing.assert_close(Laplacian(lengthscale)(X, Z), roughs.prod(-1))
    sines = (torch.pi * (X.unsqueeze(1) - Z) / torch.tensor([0.7, 1.1, 3.0])).sin().square().sum(-1)
    torch.testing.assert_close(Periodic(2.5, [0.7, 1.1, 3.0])(X, Z), (-2 * sines / 2.5).exp(), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(Polynomial(3, 0.5, 3)(X, Z), (X @ Z.T / 3 + 0.5) ** 3)
    least = torch.minimum(X.unsqueeze(1).abs(), Z.abs()) * (X.unsqueeze(1) * Z > 0)
    torch.testing.assert_close(Brownian([0.7, 1.1, 3.0])(X, Z), (least * torch.tensor([0.7, 1.1, 3.0])).sum(-1))
    with pytest.raises(RuntimeError, match="out of bounds"):
        GammaExponential(1.0, torch.tensor(2.1, dtype=torch.float64)).to_gpytorch()
    rough = GammaExponential(1.0, 0.01)(torch.cat([X, X]))
    assert rough[0, 6] == 1, "equal rows are at distance zero, whatever the power"


def test_parameters_of_gpytorch_stay_alive() -> None:
    kernel = make_kernel("rbf", 3)
    expression = Expression.from_gpytorch(kernel)
    expression(X).sum().backward()
    assert kernel.raw_outputscale.grad is not None
    assert Expression.from_gpytorch(gk.PolynomialKernel(2.0)).power == 2  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="power must be an integer"):
        evaluate(gk.PolynomialKernel(2.5).double(), X)
    assert describe(kernel) == str(expression) == str(preset_kernel("rbf", 3)) == "1 x (RBF(1.73) + 1)"


def test_other_gpytorch_kernels_come_back_as_they_went() -> None:
    own = gk.SpectralMixtureKernel(num_mixtures=2, ard_num_dims=3).double()
    kernel = GPyTorchKernel(own)
    assert kernel.to_gpytorch() is own
    assert str(2.0 * kernel + 0.5) == "2 x SpectralMixtureKernel + 0.5"
    twin = (2.0 * kernel + 0.5).to_gpytorch()
    torch.testing.assert_close(evaluate(twin, X, Z), 2 * evaluate(own, X, Z) + 0.5)
    assert Expression.from_gpytorch(own) == kernel
    narrow = gk.PiecewisePolynomialKernel(q=2, active_dims=(1,)).double()
    inner = Columns((2, 0), GPyTorchKernel(narrow)).to_gpytorch()
    assert narrow.active_dims.tolist() == [1], "a kernel that was passed in is left as it is"
    torch.testing.assert_close(evaluate(inner, X), evaluate(narrow, X[:, [2, 0]]))
    with pytest.raises(ValueError, match="cannot be written as JSON"):
        kernel.to_json()
    assert Columns((0, 1, 2), kernel).to_gpytorch() is not own
    assert own.active_dims is None
    assert (kernel + 1.0).replace(**{"kernels.1.constant": 2.0}) == kernel + 2.0
    with pytest.raises(ValueError, match="in its module"):
        (kernel + 1.0).replace(**{"kernels.0.raw_mixture_means": 1.0})


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: RBF(-1.0), "RBF's lengthscale must be positive, got -1.0"),
        (lambda: RBF([1.0, 0.0]), "RBF's lengthscale must be positive"),
        (lambda: RBF(float("nan")), "must be finite numbers"),
        (lambda: RBF("1"), "must be finite numbers"),  # type: ignore[arg-type]
        (lambda: RBF([[1.0], [1.0, 2.0]]), "lists of equal lengths"),
        (lambda: GammaExponential(1.0, 2.5), "gamma must be positive and at most 2, got 2.5"),
        (lambda: Matern(1.0), "nu must be 0.5, 1.5 or 2.5"),
        (lambda: Polynomial(0), "power must be an integer from 1"),
        (lambda: Polynomial(2, 0.5, 0), "n_features must be an integer from 1"),
        (lambda: Columns((), RBF()), "columns must not be empty"),
        (lambda: Columns((-1,), RBF()), "columns must be an integer from 0"),
        (lambda: Sum(()), "at least one part"),
        (lambda: RBF().replace(period=2.0), r"has no parameters \['period'\], only \['lengthscale'\]"),
        (lambda: RBF([1.0, 2.0])(X), "made for 2 features.* the inputs have 3"),
        (lambda: Columns((5,), RBF())(X), "looks at feature 5, but the inputs have only 3"),
        (lambda: RBF()(X.float()), "lengthscale is torch.float64 and the inputs are torch.float32"),
        (lambda: GPyTorchKernel("rbf"), "must be a gpytorch.kernels.Kernel, got str"),  # type: ignore[arg-type]
    ],
)
def test_wrong_values_are_named(build: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


LEAF: dict[str, Any] = {"kernel": "RBF"}
NESTED: dict[str, Any] = LEAF
for _ in range(30):
    NESTED = {"kernel": "Scale", "outputscale": 1.0, "base_kernel": NESTED}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ([], 'name of a "kernel"'),
        ({"kernel": 3}, 'name of a "kernel"'),
        ({"kernel": "os.system"}, "unknown kernel 'os.system'"),
        ({"kernel": "GPyTorchKernel", "module": "os"}, "unknown kernel 'GPyTorchKernel'"),
        (NESTED, "nested more than 20 deep"),
        ({"kernel": "Sum", "kernels": [LEAF] * 1000}, "more than 200 parts"),
        ({"kernel": "Sum", "kernels": []}, "at least one part"),
        ({"kernel": "Sum", "kernels": "RBF"}, "kernels must be a list"),
        ({"kernel": "Sum"}, "malformed kernel configuration"),
        ({"kernel": "Scale", "base_kernel": LEAF}, "malformed kernel configuration"),
        ({"kernel": "Scale", "outputscale": 1.0, "base_kernel": "RBF"}, "must be a mapping"),
        (LEAF | {"__class__": "x"}, "unknown entries"),
        (LEAF | {"base_kernel": LEAF}, "unknown entries"),
        (LEAF | {"lengthscale": "1"}, "must be finite numbers"),
        (LEAF | {"lengthscale": None}, "must be finite numbers"),
        (LEAF | {"lengthscale": True}, "must be finite numbers"),
        (LEAF | {"lengthscale": {"0": 1}}, "must be finite numbers"),
        (LEAF | {"lengthscale": [1.0, -2.0]}, "must be positive"),
        (LEAF | {"lengthscale": []}, "must be finite numbers"),
        ({"kernel": "Columns", "columns": 3, "base_kernel": LEAF}, "columns must be a list"),
        ({"kernel": "Columns", "columns": ["0"], "base_kernel": LEAF}, "columns must be an integer"),
        ({"kernel": "Polynomial"}, "malformed kernel configuration"),
        ({"kernel": "Polynomial", "power": 10**9}, "power must be an integer from 1 to 20"),
    ],
)
def test_malformed_json_is_refused(config: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        kernel_from_json(config)
    assert "\n" not in str(caught.value)


def test_single_precision_survives_json() -> None:
    kernel = (0.3 * RBF([0.1, 0.2, 0.7])).to(torch.float32)
    assert kernel_from_json(kernel.to_json(), torch.float32) == kernel

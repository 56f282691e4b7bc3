"""Kernels as data: what cannot be written is refused by name, what was tampered with is not built."""

import copy
import json
from typing import Any

import gpytorch.kernels as gk
import pytest
import torch
from gpytorch.constraints import GreaterThan, Interval, LessThan, Positive
from gpytorch.priors import GammaPrior

from sureshot.kernels import (
    CosineKernel,
    UnitSphereKernel,
    evaluate,
    kernel_config,
    kernel_from_config,
    kernel_state,
    load_kernel_state,
    make_kernel,
)

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize(
    ("config", "built"),
    [
        ({"name": "rbf", "n_features": 4}, make_kernel("rbf", 4)),
        ({"name": "rbf", "n_features": 4, "ard": True, "constant": False}, make_kernel("rbf", 4, True, False)),
        (
            {"name": "cosine", "n_features": 4, "ard": False, "constant": True, "center": True},
            make_kernel("cosine", 4, center=torch.zeros(4, dtype=torch.float64)),
        ),
    ],
)
def test_a_named_configuration_is_the_preset(config: dict, built: gk.Kernel) -> None:
    kernel = kernel_from_config(json.loads(json.dumps(config)))
    assert kernel_config(kernel) == kernel_config(built)
    assert torch.equal(evaluate(kernel, X), evaluate(built, X))


def test_a_named_configuration_takes_a_learned_state() -> None:
    learned = make_kernel("unit_rbf", 4, outputscale=7.0, center=X.mean(0))
    config = {"name": "unit_rbf", "n_features": 4, "center": True}
    assert torch.equal(evaluate(kernel_from_config(config, kernel_state(learned)), X), evaluate(learned, X))


@pytest.mark.parametrize(
    "constraint",
    [
        GreaterThan(1e-4),
        LessThan(5.0),
        Interval(1e-3, 9.0),
        Positive(transform=torch.exp, inv_transform=torch.log),
        GreaterThan(0.1, transform=torch.exp, inv_transform=torch.log),
    ],
    ids=repr,
)
def test_constraints_are_kept(constraint: Interval) -> None:
    kernel = gk.ScaleKernel(gk.RBFKernel(lengthscale_constraint=constraint)).double()
    kernel.base_kernel.lengthscale = 1.3
    config = json.loads(json.dumps(kernel_config(kernel), allow_nan=False))
    again = kernel_from_config(config, kernel_state(kernel))
    assert torch.equal(again.base_kernel.lengthscale, kernel.base_kernel.lengthscale)
    assert type(again.base_kernel.raw_lengthscale_constraint) is type(constraint)
    assert kernel_config(copy.deepcopy(again)) == config


class _OwnKernel(gk.RBFKernel):
    """A subclass may compute anything, so it is not its parent."""


class _Square(Interval):
    """A constraint of the user's own."""


def _shared() -> gk.Kernel:
    part = gk.RBFKernel()
    return part * part


def _ranged() -> gk.Kernel:
    return gk.RBFKernel(ard_num_dims=2, lengthscale_constraint=GreaterThan(torch.tensor([0.1, 0.2])))


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (_OwnKernel(), r"_OwnKernel cannot be saved"),
        (gk.ScaleKernel(gk.SpectralMixtureKernel(num_mixtures=2)), "SpectralMixtureKernel cannot be saved"),
        (gk.RBFKernel(lengthscale_prior=GammaPrior(2.0, 1.0)), "RBFKernel has the prior 'lengthscale_prior'"),
        (gk.RBFKernel(lengthscale_constraint=_Square(0.0, 1.0)), "RBFKernel has a constraint"),
        (gk.RBFKernel(lengthscale_constraint=Positive(torch.abs, torch.abs)), "RBFKernel has a constraint"),
        (_ranged(), "one bound per feature"),
        (_shared(), "uses the same part twice"),
    ],
)
def test_what_cannot_be_saved_is_named(kernel: gk.Kernel, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kernel_config(kernel)


RBF: dict[str, Any] = {"class": "RBFKernel"}
NESTED: dict[str, Any] = RBF
for _ in range(30):
    NESTED = {"class": "ScaleKernel", "base_kernel": NESTED}
GREATER = {"class": "GreaterThan", "transform": "softplus", "lower_bound": 0.1}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ([], "must be a mapping, got list"),
        ({}, 'name of a "class"'),
        ({"class": ["RBFKernel"]}, 'name of a "class"'),
        ({"class": "os.system"}, "unknown kernel class 'os.system'"),
        ({"class": "Kernel"}, "unknown kernel class 'Kernel'"),
        ({"class": "SpectralMixtureKernel"}, "unknown kernel class"),
        (NESTED, "nested more than"),
        ({"class": "AdditiveKernel", "kernels": [RBF] * 1000}, "more than 200 parts"),
        ({"class": "AdditiveKernel", "kernels": []}, "at least one part"),
        ({"class": "AdditiveKernel", "kernels": "RBFKernel"}, "kernels must be a list"),
        ({"class": "AdditiveKernel"}, r"missing entries \['kernels'\]"),
        ({"class": "ScaleKernel"}, r"missing entries \['base_kernel'\]"),
        ({"class": "ScaleKernel", "base_kernel": "RBFKernel"}, "must be a mapping"),
        ({"class": "MaternKernel"}, r"missing entries \['nu'\]"),
        ({"class": "MaternKernel", "nu": 7}, "nu must be 0.5, 1.5 or 2.5"),
        ({"class": "PolynomialKernel", "power": -1}, "power must be an integer from 1"),
        ({"class": "PolynomialKernel", "power": 1.5}, "power must be an integer"),
        (RBF | {"ard_num_dims": 10**12}, "ard_num_dims must be an integer from 1 to 1000000"),
        (RBF | {"ard_num_dims": 10**6, "batch_shape": [10**6]}, "more than 1000000 numbers"),
        (RBF | {"batch_shape": [0]}, "batch_shape must be an integer"),
        (RBF | {"active_dims": []}, "active_dims must not be empty"),
        (RBF | {"active_dims": [-1]}, "active_dims must be an integer from 0"),
        (RBF | {"active_dims": {"0": 1}}, "active_dims must be a list"),
        (RBF | {"center": 3}, "RBFKernel has no center"),
        (RBF | {"nu": 0.5}, r"unknown entries \['nu'\]"),
        (RBF | {"__init__": "x"}, "unknown entries"),
        (RBF | {"frozen": ["raw_period"]}, "no parameter 'raw_period' to freeze"),
        (RBF | {"frozen": "raw_lengthscale"}, "frozen must be a list"),
        (RBF | {"constraints": {"raw_alpha": GREATER}}, "no parameter 'raw_alpha' to constrain"),
        (RBF | {"constraints": [GREATER]}, "constraints must be a mapping"),
        (RBF | {"constraints": {"raw_lengthscale": 3}}, "constraint must be a mapping"),
        (RBF | {"constraints": {"raw_lengthscale": GREATER | {"class": "os"}}}, "unknown constraint 'os'"),
        (RBF | {"constraints": {"raw_lengthscale": GREATER | {"transform": "eval"}}}, "unknown transform 'eval'"),
        (RBF | {"constraints": {"raw_lengthscale": GREATER | {"upper_bound": 1}}}, "needs the bounds"),
        (RBF | {"constraints": {"raw_lengthscale": GREATER | {"lower_bound": "0"}}}, "must be a finite number"),
        (
            RBF
            | {"constraints": {"raw_lengthscale": GREATER | {"class": "Interval", "lower_bound": 2, "upper_bound": 1}}},
            "lower bound must be below",
        ),
        ({"class": "ConstantKernel", "ard_num_dims": 2}, "ConstantKernel has no ard_num_dims"),
        ({"class": "ScaledPolynomialKernel", "n_features": 3, "base_kernel": RBF}, "PolynomialKernel"),
        ({"name": "rbf"}, "n_features must be an integer"),
        ({"name": "rbf", "n_features": 10**12}, "n_features must be an integer"),
        ({"name": "system", "n_features": 3}, "unknown kernel 'system'"),
        ({"name": ["rbf"], "n_features": 3}, "name must be a string"),
        ({"name": "rbf", "n_features": 3, "ard": 1}, "'ard' must be true or false"),
        ({"name": "rbf", "n_features": 3, "center": True}, "center applies to"),
        ({"name": "rbf", "n_features": 3, "class": "RBFKernel"}, "unknown entries"),
    ],
)
def test_malformed_configurations_are_refused(config: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kernel_from_config(config)


def test_a_state_must_fit() -> None:
    kernel = make_kernel("rbf", 4)
    state = kernel_state(kernel)
    before = evaluate(kernel, X)
    first = sorted(state)[0]
    for spoilt, message in (
        ({}, "the kernel needs the tensors"),
        (state | {"more": torch.zeros(1)}, "the kernel needs the tensors"),
        (state | {first: torch.zeros(7)}, "must have shape"),
        (state | {first: torch.full_like(state[first], torch.nan)}, "finite floating-point"),
        (state | {first: torch.zeros_like(state[first]).long()}, "finite floating-point"),
        (state | {first: state[first].float()}, "must share one dtype"),
    ):
        with pytest.raises(ValueError, match=message):
            load_kernel_state(kernel, spoilt)
        assert torch.equal(evaluate(kernel, X), before)


def test_a_state_is_a_copy() -> None:
    kernel = make_kernel("rbf", 4)
    state = kernel_state(kernel)
    kernel.outputscale = 9.0
    load_kernel_state(kernel, state)
    assert kernel.outputscale.item() == pytest.approx(1.0)
    assert not any(value.requires_grad for value in state.values())


def test_kernels_without_parameters_have_an_empty_state() -> None:
    kernel = UnitSphereKernel(CosineKernel())
    assert kernel_state(kernel) == {}
    assert torch.equal(evaluate(kernel_from_config(kernel_config(kernel), {}), X), evaluate(kernel, X))

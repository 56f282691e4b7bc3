"""Kernels by name, with starting values that suit inputs of any width.

A preset is ``outputscale * (base + constant)``. The constant, an intercept shared by all rows, matters:
without it the latent function is pulled to the prior mean as a whole, worth about a point of accuracy at five
examples per class. Every base has a diagonal near 1 in its natural unit, so that output scales mean the same
for all of them:

=================================  ==========================================================  ============
name                               base                                                      inputs
=================================  ==========================================================  ============
cosine                             ``<x, x'> / (|x| |x'|)``                                  embeddings
linear                             ``<x, x'> / D``                                           standardised
rbf, matern12, matern32, matern52  stationary; length-scale starts at sqrt(D)                standardised
laplacian                          ``exp(-sum_d |x_d - x'_d| / l)``; starts at 2 D/sqrt(pi)    standardised
polynomial1, polynomial2           ``(<x, x'> / D + offset)^power``                          standardised
additive_matern32                  the mean over columns of kernels of one; starts at 1          standardised
interactions_matern32              a product over columns of kernels of one; starts at 1         standardised
unit_rbf, unit_matern32            stationary on unit-length rows; length-scale starts at 1      embeddings
=================================  ==========================================================  ============

Two standardised rows are ``sqrt(2 D)`` apart on average, so at a length-scale of sqrt(D) the kernel of a typical pair
is the same for any D; the sum of their absolute differences is ``2 D / sqrt(pi)``.

To add a preset, add it to `PRESETS`, with a leaf of `sureshot.kernels.leaves`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import gpytorch.kernels
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from sureshot.kernels.compositions import Additive, Interactions, Scale, UnitSphere
from sureshot.kernels.expression import Expression
from sureshot.kernels.leaf import Leaf
from sureshot.kernels.leaves import RBF, Constant, Cosine, Laplacian, Linear, Matern, Polynomial


@dataclass(frozen=True)
class Preset:
    """A leaf by name: its settings, and whether it is taken on the unit sphere."""

    leaf: type[Leaf]
    settings: Mapping[str, Any] = field(default_factory=dict)
    unit_sphere: bool = False
    by_column: type[Additive | Interactions] | None = None  # what is made of it where it sees single columns


PRESETS: dict[str, Preset] = {
    "cosine": Preset(Cosine),
    "linear": Preset(Linear),
    "rbf": Preset(RBF),
    "matern12": Preset(Matern, {"nu": 0.5}),
    "matern32": Preset(Matern, {"nu": 1.5}),
    "matern52": Preset(Matern, {"nu": 2.5}),
    "laplacian": Preset(Laplacian),
    "polynomial1": Preset(Polynomial, {"power": 1}),
    "polynomial2": Preset(Polynomial, {"power": 2}),
    "additive_matern32": Preset(Matern, {"nu": 1.5}, by_column=Additive),
    "interactions_matern32": Preset(Matern, {"nu": 1.5}, by_column=Interactions),
    "unit_rbf": Preset(RBF, unit_sphere=True),
    "unit_matern32": Preset(Matern, {"nu": 1.5}, unit_sphere=True),
}
KERNEL_NAMES: tuple[str, ...] = tuple(PRESETS)
UNIT_SPHERE_NAMES = tuple(name for name, preset in PRESETS.items() if preset.unit_sphere or preset.leaf is Cosine)
LENGTHSCALE_NAMES = tuple(name for name, preset in PRESETS.items() if "lengthscale" in preset.leaf.roles)


def natural_lengthscale(name: str, n_features: int) -> float:
    """The length-scale a preset starts at: that of its leaf, but 1 on the unit sphere and for single columns."""
    role = PRESETS[name].leaf.roles.get("lengthscale")
    if role is None or role.natural is None or name in UNIT_SPHERE_NAMES or PRESETS[name].by_column:
        return 1.0
    return role.natural(n_features)


def preset_kernel(
    name: str,
    n_features: int,
    ard: bool = False,  # a length-scale (linear: a variance) for each feature; not for cosine and polynomial kernels
    constant: bool = True,  # an intercept; polynomial kernels have one already, their offset, and get no other
    lengthscale: float | None = None,  # initial, in the units of the inputs; by default `natural_lengthscale`
    outputscale: float = 1.0,  # initial factor of the whole kernel
    constant_weight: float = 1.0,  # initial variance of the intercept relative to the base's (polynomial: the offset)
    center: Tensor | None = None,  # (D,), subtracted before rows are normalised, on the unit sphere
    batch_shape: tuple[int, ...] = (),  # leading dimensions of every parameter
    dtype: torch.dtype = torch.float64,
    device: torch.device | str | None = None,
) -> Expression:
    """The preset `name` as an expression, ``outputscale x (base + constant)``.

    >>> print(preset_kernel("matern32", 4, constant_weight=0.5))
    1 x (Matern(1.5, 2) + 0.5)

    A ValueError names an option that the named kernel lacks.
    """
    if name not in KERNEL_NAMES:
        raise ValueError(f"unknown kernel {name!r}: expected one of {', '.join(KERNEL_NAMES)}.")
    if isinstance(n_features, bool) or not isinstance(n_features, int) or n_features < 1:
        raise ValueError(f"n_features must be an integer of at least 1, got {n_features!r}.")
    leaf, given = PRESETS[name].leaf, dict(PRESETS[name].settings)
    if ard and (PRESETS[name].by_column or not any(role.kind == "columns" for role in leaf.roles.values())):
        raise ValueError(
            f"ard=True gives each feature its own length-scale, which the {name!r} kernel does not have: "
            'use ard=False, or "linear", "rbf", "laplacian" or a Matern kernel.'
        )
    if center is not None and name not in UNIT_SPHERE_NAMES:
        raise ValueError(
            f"center applies to kernels on the unit sphere ({', '.join(UNIT_SPHERE_NAMES)}), not to {name!r}: "
            "standardise the inputs instead."
        )
    if center is not None and center.shape != (n_features,):
        raise ValueError(f"center must have shape ({n_features},), got {tuple(center.shape)}.")
    for argument, value in (
        ("lengthscale", lengthscale),
        ("outputscale", outputscale),
        ("constant_weight", constant_weight),
    ):
        if value is not None and not (isinstance(value, Real) and 0 < value < math.inf):
            raise ValueError(f"{argument} must be a positive finite number, got {value!r}.")
    if lengthscale is not None and name not in LENGTHSCALE_NAMES:
        raise ValueError(f"the kernel {name!r} has no length-scale: leave lengthscale out")
    if name in LENGTHSCALE_NAMES:
        given["lengthscale"] = natural_lengthscale(name, n_features) if lengthscale is None else lengthscale
    if leaf is Cosine:
        given["center"] = center
    if leaf is Polynomial:
        given |= {"offset": constant_weight, "n_features": n_features}
    base: Expression = leaf.natural(n_features, ard, batch_shape, **given)
    if PRESETS[name].unit_sphere:
        base = UnitSphere(base, center)
    if by_column := PRESETS[name].by_column:
        base = by_column(base)
    if constant and leaf is not Polynomial:
        base = base + Constant(torch.full(batch_shape, constant_weight, dtype=torch.float64))
    kernel = Scale(torch.full(batch_shape, outputscale, dtype=torch.float64), base)
    return kernel.to(dtype=dtype, device=device)


def make_kernel(name: str, n_features: int, ard: bool = False, constant: bool = True, **options: Any) -> Kernel:
    """The preset `name` as a GPyTorch kernel, ``ScaleKernel(base + ConstantKernel)``; see `preset_kernel`."""
    kernel = preset_kernel(name, n_features, ard, constant, **options).to_gpytorch()
    for module in kernel.modules():
        # One variance for all features only repeats the output scale: learning both is ill-posed.
        if isinstance(module, gpytorch.kernels.LinearKernel):
            module.raw_variance.requires_grad_(ard)
    return kernel

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
polynomial1, polynomial2           ``(<x, x'> / D + offset)^power``                          standardised
unit_rbf, unit_matern32            stationary on unit-length rows; length-scale starts at 1      embeddings
=================================  ==========================================================  ============

Why sqrt(D): two standardised rows are ``sqrt(2 D)`` apart on average, so at a length-scale of sqrt(D) the
kernel of a typical pair is the same for any D (exp(-1) for the RBF) instead of vanishing as D grows.

To add a preset, add its name to `KERNEL_NAMES`, its base to `_base_kernel`, and the name to the contract
test.
"""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import gpytorch.kernels
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from sureshot.kernels.unit_sphere import CosineKernel, UnitSphereKernel

KernelName = Literal[
    "cosine",
    "linear",
    "rbf",
    "matern12",
    "matern32",
    "matern52",
    "polynomial1",
    "polynomial2",
    "unit_rbf",
    "unit_matern32",
]
KERNEL_NAMES: tuple[str, ...] = get_args(KernelName)

_SMOOTHNESS = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}
_UNIT_SPHERE = ("cosine", "unit_rbf", "unit_matern32")


class ScaledPolynomialKernel(Kernel):
    """``(<x, x'> / D + offset)^power``: a polynomial kernel whose values do not grow with D.

    Parameters
    ----------
    power : int
        Degree, at least 1.
    n_features : int
        D, the number of features that the inner product is divided by.
    **kwargs
        Those of `gpytorch.kernels.PolynomialKernel`, such as ``offset_constraint``.
    """

    def __init__(self, power: int, n_features: int, **kwargs: Any) -> None:
        super().__init__()
        self.n_features = n_features
        self.base_kernel = gpytorch.kernels.PolynomialKernel(power=power, **kwargs)

    @property
    def offset(self) -> Tensor:
        """The offset (..., 1), positive."""
        return self.base_kernel.offset

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Kernel matrix (..., N, M), or with `diag` the values (..., N) of paired rows."""
        root = math.sqrt(self.n_features)
        return self.base_kernel.forward(x1 / root, x2 / root, diag=diag, **params)


def natural_lengthscale(name: str, n_features: int) -> float:
    """The length-scale a stationary preset starts at: 1 on the unit sphere, else sqrt(D)."""
    return 1.0 if name in _UNIT_SPHERE else math.sqrt(n_features)


def make_kernel(
    name: str,
    n_features: int,
    ard: bool = False,
    constant: bool = True,
    lengthscale: float | None = None,
    outputscale: float = 1.0,
    constant_weight: float = 1.0,
    center: Tensor | None = None,
    batch_shape: tuple[int, ...] = (),
    dtype: torch.dtype = torch.float64,
    device: torch.device | str | None = None,
) -> Kernel:
    """The preset `name` as a GPyTorch kernel, ``ScaleKernel(base + ConstantKernel)``.

    Parameters
    ----------
    name : str
        One of `KERNEL_NAMES`.
    n_features : int
        D, at least 1.
    ard : bool
        One length-scale (linear: one variance) for each feature. Not for cosine and polynomial kernels.
    constant : bool
        Add an intercept. Polynomial kernels have one already, their offset, and get no other.
    lengthscale : float, optional
        Initial length-scale, in the units of the inputs; default `natural_lengthscale`.
    outputscale : float
        Initial output scale, the factor of the whole kernel.
    constant_weight : float
        Initial intercept variance relative to the base (polynomial: the offset). 1 by default, as the base's
        diagonal.
    center : Tensor (D,), optional
        Subtracted before rows are normalised; only for kernels on the unit sphere.
    batch_shape : tuple of int
        Leading dimensions of every parameter, for kernels that are evaluated in batches; none by default.
    dtype, device
        Of the parameters. float64 by default, as the estimators use.

    Raises
    ------
    ValueError
        For an unknown name, or an option that the named kernel lacks.
    """
    if name not in KERNEL_NAMES:
        raise ValueError(f"unknown kernel {name!r}: expected one of {', '.join(KERNEL_NAMES)}.")
    if isinstance(n_features, bool) or not isinstance(n_features, int) or n_features < 1:
        raise ValueError(f"n_features must be an integer of at least 1, got {n_features!r}.")
    if ard and (name == "cosine" or name.startswith("polynomial")):
        raise ValueError(
            f"ard=True gives each feature its own length-scale, which the {name!r} kernel does not have: "
            'use ard=False, or "linear", "rbf" or a Matern kernel.'
        )
    if center is not None and name not in _UNIT_SPHERE:
        raise ValueError(
            f"center applies to kernels on the unit sphere ({', '.join(_UNIT_SPHERE)}), not to {name!r}: "
            "standardise the inputs instead."
        )
    if center is not None and center.shape != (n_features,):
        raise ValueError(f"center must have shape ({n_features},), got {tuple(center.shape)}.")
    for argument, value in (
        ("lengthscale", lengthscale),
        ("outputscale", outputscale),
        ("constant_weight", constant_weight),
    ):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise ValueError(f"{argument} must be a positive finite number, got {value!r}.")

    batch = torch.Size(batch_shape)
    base = _base_kernel(name, n_features, n_features if ard else None, center, batch)
    intercept = None
    if constant and not name.startswith("polynomial"):
        intercept = gpytorch.kernels.ConstantKernel(batch_shape=batch)
        base = gpytorch.kernels.AdditiveKernel(base, intercept)
    kernel = gpytorch.kernels.ScaleKernel(base, batch_shape=batch).to(dtype=dtype, device=device)

    # Values are set after the conversion and as tensors: GPyTorch would round Python floats to float32.
    def exactly(value: float) -> Tensor:
        return torch.tensor(value, dtype=dtype, device=device)

    kernel.outputscale = exactly(outputscale)
    if intercept is not None:
        intercept.constant = exactly(constant_weight).expand(*batch, 1)
    start = natural_lengthscale(name, n_features) if lengthscale is None else lengthscale
    for module in kernel.modules():
        if isinstance(module, gpytorch.kernels.LinearKernel):
            module.variance = exactly(1 / n_features)
            # One variance for all features only repeats the output scale: learning both is ill-posed.
            module.raw_variance.requires_grad_(ard)
        elif isinstance(module, gpytorch.kernels.PolynomialKernel):
            module.offset = exactly(constant_weight)
        elif isinstance(module, gpytorch.kernels.RBFKernel | gpytorch.kernels.MaternKernel):
            module.lengthscale = exactly(start)
    return kernel


def _base_kernel(
    name: str, n_features: int, ard_num_dims: int | None, center: Tensor | None, batch_shape: torch.Size
) -> Kernel:
    """The base of a preset, with GPyTorch's default parameter values."""
    options: dict[str, Any] = {"ard_num_dims": ard_num_dims, "batch_shape": batch_shape}
    match name:
        case "cosine":
            return CosineKernel(center)
        case "linear":
            return gpytorch.kernels.LinearKernel(**options)
        case "rbf":
            return gpytorch.kernels.RBFKernel(**options)
        case "matern12" | "matern32" | "matern52":
            return gpytorch.kernels.MaternKernel(nu=_SMOOTHNESS[name], **options)
        case "polynomial1" | "polynomial2":
            return ScaledPolynomialKernel(int(name[-1]), n_features, batch_shape=batch_shape)
        case "unit_rbf":
            return UnitSphereKernel(gpytorch.kernels.RBFKernel(**options), center)
        case _:
            return UnitSphereKernel(gpytorch.kernels.MaternKernel(nu=1.5, **options), center)

"""Any GPyTorch kernel as a plain tensor.

GPyTorch evaluates kernels lazily, which suits its own structured solvers; the algebra here needs plain
matrices, exactly symmetric and with an exact diagonal. Lazy evaluation also changes the kernel object for a
moment (it switches ``active_dims`` off and on), so two threads predicting with one model could disturb each
other. `evaluate` therefore walks through the common compositions itself and calls ``forward`` of the leaves, except
those of the distance between rows, whose matrices it computes from `squared_distances`.
"""

from __future__ import annotations

import threading
from typing import Any

import gpytorch.kernels as gk
import torch
from gpytorch.kernels import Kernel
from linear_operator import to_dense
from torch import Tensor

from sureshot.kernels.distances import squared_distances
from sureshot.kernels.presets import ScaledPolynomialKernel
from sureshot.kernels.unit_sphere import CosineKernel, UnitSphereKernel, unit_rows

# Leaves: their forward neither evaluates lazily nor changes the kernel.
LEAVES = (
    gk.ConstantKernel,
    gk.LinearKernel,
    gk.PeriodicKernel,
    gk.PolynomialKernel,
    CosineKernel,
    ScaledPolynomialKernel,
)
STATIONARY = (gk.MaternKernel, gk.RBFKernel, gk.RQKernel)
_lazy_evaluation = threading.Lock()


def evaluate(
    kernel: Kernel,
    x1: Tensor,  # (..., N, D)
    x2: Tensor | None = None,  # (..., M, D)
    diag: bool = False,
) -> Tensor:
    """The kernel between rows as a dense tensor: (..., N, M), or with `diag` (..., N).

    Batch dimensions of the inputs and of the kernel's parameters broadcast. Differentiable in both.

    Parameters
    ----------
    kernel : gpytorch.kernels.Kernel
        Any, compositions included.
    x1 : Tensor (..., N, D)
        Pass the training rows here and the queries as `x2`: kernels may take the mean of `x1` as their origin (ours
        and GPyTorch's stationary ones do), so that a query's values do not depend on the queries beside it.
    x2 : Tensor (..., M, D), optional
        Without it the kernel of `x1` with itself, exactly symmetric, its diagonal free of rounding.
    diag : bool
        Only the values of paired rows, ``k(x1[i], x2[i])``.

    Raises
    ------
    ValueError
        When widths or dtypes do not match, or a row has no direction on the unit sphere.
    """
    _check(kernel, x1, x2, diag)
    if diag:
        return _apply(kernel, x1, x1 if x2 is None else x2, True)
    if x2 is not None:
        return _apply(kernel, x1, x2, False)
    gram = _apply(kernel, x1, x1, False)
    gram = (gram + gram.mT).mul_(0.5)
    gram.diagonal(dim1=-2, dim2=-1).copy_(_apply(kernel, x1, x1, True))
    return gram


def _check(kernel: Kernel, x1: Tensor, x2: Tensor | None, diag: bool) -> None:
    if not isinstance(kernel, Kernel):
        raise ValueError(f"kernel must be a gpytorch.kernels.Kernel, got {type(kernel).__name__}.")
    for name, x in (("x1", x1), ("x2", x2)):
        if x is not None and (x.ndim < 2 or not x.is_floating_point()):
            raise ValueError(
                f"{name} must be a floating-point tensor (..., rows, features), "
                f"got {x.dtype} of shape {tuple(x.shape)}."
            )
    if x2 is not None and x1.shape[-1] != x2.shape[-1]:
        raise ValueError(f"x1 has {x1.shape[-1]} features and x2 has {x2.shape[-1]}: they must agree.")
    if x2 is not None and diag and x1.shape[-2] != x2.shape[-2]:
        raise ValueError(f"diag=True pairs row i with row i: x1 has {x1.shape[-2]} rows and x2 has {x2.shape[-2]}.")
    for name, value in kernel.named_parameters():
        if value.dtype != x1.dtype or (x2 is not None and value.dtype != x2.dtype):
            raise ValueError(
                f"the kernel's {name} is {value.dtype} and the inputs are {x1.dtype}"
                + ("" if x2 is None or x2.dtype == x1.dtype else f" and {x2.dtype}")
                + f": convert one of them, for example with kernel.to({x1.dtype})."
            )


def select_active(kernel: Kernel, x: Tensor) -> Tensor:
    """The features of `x` (..., N, D) that `kernel` looks at."""
    if kernel.active_dims is not None:
        if int(kernel.active_dims.max()) >= x.shape[-1]:
            raise ValueError(
                f"{type(kernel).__name__} looks at feature {int(kernel.active_dims.max())}, "
                f"but the inputs have only {x.shape[-1]} features."
            )
        x = x.index_select(-1, kernel.active_dims)
    if kernel.ard_num_dims is not None and kernel.ard_num_dims != x.shape[-1]:
        raise ValueError(
            f"{type(kernel).__name__} was made for {kernel.ard_num_dims} features (ard_num_dims), "
            f"the inputs have {x.shape[-1]}."
        )
    return x


def _apply(kernel: Kernel, x1: Tensor, x2: Tensor, diag: bool) -> Tensor:
    """``kernel(x1, x2)``; `x2` is the same object as `x1` when they are the same rows."""
    same = x2 is x1
    selected = select_active(kernel, x1)
    return _forward(kernel, selected, selected if same else select_active(kernel, x2), diag)


def _forward(kernel: Kernel, x1: Tensor, x2: Tensor, diag: bool) -> Tensor:
    """``kernel.forward(x1, x2)``, on inputs whose active features are selected already.

    Types are compared exactly: a subclass may override ``forward``.
    """
    kind = type(kernel)
    if kind is gk.ScaleKernel:
        scale = kernel.outputscale.unsqueeze(-1)
        # As in GPyTorch, whose scale kernel has taken over the active dimensions of its base.
        return _forward(kernel.base_kernel, x1, x2, diag) * (scale if diag else scale.unsqueeze(-1))
    if kind is gk.AdditiveKernel:
        terms = [_apply(part, x1, x2, diag) for part in kernel.kernels]
        return sum(terms[1:], start=terms[0])
    if kind is gk.ProductKernel:
        product = _apply(kernel.kernels[0], x1, x2, diag)
        for part in kernel.kernels[1:]:
            product = product * _apply(part, x1, x2, diag)
        return product
    if kind is UnitSphereKernel:
        u1 = unit_rows(x1, kernel.center)
        u2 = u1 if x2 is x1 else unit_rows(x2, kernel.center)
        return _apply(kernel.base_kernel, u1, u2, diag)
    if kind in STATIONARY:
        return _of_distance(kernel, x1, x2, diag)
    if kind in LEAVES:
        return _dense(kernel.forward(x1, x2, diag=diag), x1, diag)
    with _lazy_evaluation:
        return _dense(kernel.forward(x1, x2, diag=diag), x1, diag)


def _of_distance(kernel: Kernel, x1: Tensor, x2: Tensor, diag: bool) -> Tensor:
    """GPyTorch's formulas of its stationary kernels, (..., N, M) or with `diag` (..., N)."""
    first = x1 / kernel.lengthscale
    second = first if x2 is x1 else x2 / kernel.lengthscale
    if not diag:
        squared = squared_distances(first, second)
    elif x2 is x1:
        squared = torch.zeros_like(first[..., 0])
    else:
        squared = (first - second).square().sum(-1)
    if type(kernel) is gk.RBFKernel:
        return (-0.5 * squared).exp()
    if type(kernel) is gk.RQKernel:
        alpha = kernel.alpha if diag else kernel.alpha.unsqueeze(-1)
        return (1 + squared / (2 * alpha)).pow(-alpha)
    # Below the smallest normal number the gradient of the root would not be finite.
    scaled = (2 * kernel.nu * squared.clamp_min(torch.finfo(squared.dtype).tiny)).sqrt()
    decay = (-scaled).exp()
    if kernel.nu == 0.5:
        return decay
    return (1 + scaled if kernel.nu == 1.5 else 1 + scaled + scaled.square() / 3) * decay


def _dense(values: Any, x1: Tensor, diag: bool) -> Tensor:
    """A tensor; the diagonal too where a kernel class ignored `diag` and returned the matrix."""
    dense = to_dense(values)
    n = x1.shape[-2]
    if diag and dense.ndim >= x1.ndim and dense.shape[-2:] == (n, n):
        return dense.diagonal(dim1=-2, dim2=-1)
    return dense

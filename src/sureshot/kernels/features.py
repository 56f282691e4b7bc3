"""Explicit features ``Phi`` with ``K = Phi Phi'`` for kernels of known, finite rank.

A linear, cosine or polynomial kernel on D features has rank R = D + 1 at most (with its intercept; for
degree 2 ``(D + 1)(D + 2) / 2``). With N > R rows everything can be computed in O(N R^2) from the features
instead of O(N^3) from the matrix, exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import gpytorch.kernels as gk
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from sureshot.kernels.dense import select_active
from sureshot.kernels.presets import ScaledPolynomialKernel
from sureshot.kernels.unit_sphere import CosineKernel, UnitSphereKernel, unit_rows


@dataclass(frozen=True)
class FeatureMap:
    """The features of a kernel, as a function of the rows.

    Reads the kernel's parameters on every call, so it stays right, and differentiable, while they are
    learned.

    Attributes
    ----------
    kernel : gpytorch.kernels.Kernel
    rank : int or None
        R, the number of features it gives; None when the width of the inputs was not stated.
    """

    kernel: Kernel
    rank: int | None

    def __call__(self, x: Tensor) -> Tensor:
        """Features (..., N, R) of rows (..., N, D), with ``Phi(x) Phi(x')' = K(x, x')``."""
        return _apply(self.kernel, x)


def feature_map(kernel: Kernel, n_features: int | None = None, max_rank: int = 4097) -> FeatureMap | None:
    """The features of `kernel`, or None when it has none that pay.

    Parameters
    ----------
    kernel : gpytorch.kernels.Kernel
        Features exist for linear, cosine, constant and polynomial kernels (degrees 1 and 2), and for their
        scalings and sums, also on the unit sphere.
    n_features : int, optional
        D, the width of the inputs. Default: as the kernel says, where it does (presets of degree 2, ARD, a
        centre).
    max_rank : int
        None is returned above this rank. The default serves a linear kernel with an intercept up to 4096
        features, and degree 2 up to 88.
    """
    width = _stated_width(kernel) if n_features is None else n_features
    if width is not None:
        rank = _rank(kernel, width)
        return None if rank is None or rank > max_rank else FeatureMap(kernel, rank)
    quadratic = any(part.power != 1 for part in kernel.modules() if isinstance(part, gk.PolynomialKernel))
    return None if quadratic or _rank(kernel, 1) is None else FeatureMap(kernel, None)


def _stated_width(kernel: Kernel) -> int | None:
    """The width of the inputs, from the parts that know it and look at all of them."""
    if any(part.active_dims is not None for part in kernel.modules() if isinstance(part, Kernel)):
        return None
    for part in kernel.modules():
        if isinstance(part, ScaledPolynomialKernel):
            return part.n_features
        if isinstance(part, CosineKernel | UnitSphereKernel) and part.center is not None:
            return part.center.shape[-1]
        if isinstance(part, Kernel) and part.ard_num_dims is not None:
            return part.ard_num_dims
    return None


def _rank(kernel: Kernel, width: int) -> int | None:
    """Number of features on inputs of this width; None where no finite features are known."""
    if kernel.active_dims is not None:
        width = len(kernel.active_dims)
    kind = type(kernel)
    if kind in (gk.ScaleKernel, UnitSphereKernel):
        return _rank(kernel.base_kernel, width)
    if kind is gk.AdditiveKernel:
        ranks = [_rank(part, width) for part in kernel.kernels]
        known = [rank for rank in ranks if rank is not None]
        return sum(known) if len(known) == len(ranks) else None
    if kind in (gk.LinearKernel, CosineKernel):
        return width
    if kind is gk.ConstantKernel:
        return 1
    if kind in (gk.PolynomialKernel, ScaledPolynomialKernel):
        power = _polynomial(kernel).power
        return {1: width + 1, 2: (width + 1) * (width + 2) // 2}.get(power)
    return None


def _polynomial(kernel: Kernel) -> Kernel:
    return kernel.base_kernel if type(kernel) is ScaledPolynomialKernel else kernel


def _apply(kernel: Kernel, x: Tensor) -> Tensor:
    """Features of rows, the kernel's active columns selected first."""
    return _forward(kernel, select_active(kernel, x))


def _forward(kernel: Kernel, x: Tensor) -> Tensor:
    kind = type(kernel)
    if kind is gk.ScaleKernel:
        return kernel.outputscale.sqrt()[..., None, None] * _forward(kernel.base_kernel, x)
    if kind is UnitSphereKernel:
        return _apply(kernel.base_kernel, unit_rows(x, kernel.center))
    if kind is gk.AdditiveKernel:
        parts = [_apply(part, x) for part in kernel.kernels]
        batch = torch.broadcast_shapes(*(part.shape[:-1] for part in parts))
        return torch.cat([part.expand(*batch, part.shape[-1]) for part in parts], dim=-1)
    if kind is gk.LinearKernel:
        return x * kernel.variance.sqrt()
    if kind is CosineKernel:
        return unit_rows(x, kernel.center)
    if kind is gk.ConstantKernel:
        return kernel.constant.sqrt().unsqueeze(-1) * x.new_ones(*x.shape[:-1], 1)
    if kind is ScaledPolynomialKernel:
        x = x / math.sqrt(kernel.n_features)
    return _polynomial_features(x, _polynomial(kernel))


def _polynomial_features(x: Tensor, kernel: Kernel) -> Tensor:
    """Monomials of ``(<x, x'> + c)^power``: the extended row (x, sqrt(c)), or its pairwise products."""
    offset = kernel.offset.unsqueeze(-1)  # (..., 1, 1)
    root = offset.sqrt() * x.new_ones(*x.shape[:-1], 1)
    extended = torch.cat([x.expand(*root.shape[:-1], x.shape[-1]), root], dim=-1)  # (..., N, D + 1)
    if kernel.power == 1:
        return extended
    width = extended.shape[-1]
    rows, columns = torch.triu_indices(width, width, device=x.device)
    weight = torch.where(rows == columns, x.new_ones(()), x.new_tensor(math.sqrt(2)))
    return extended[..., rows] * extended[..., columns] * weight

"""The leaves: every formula once, with its parameters, starting values, features and GPyTorch's class of the same.

To add a leaf, write its class here, a `Stationary` one as a function of squared distance, and a case in the contract
test. Files, conversion and printing follow from its fields. Numbers may be given for the tensors.

>>> print(Matern(1.5, [0.5, 2.0]) + Polynomial(2, 0.5))
Matern(1.5, [0.5, 2.0]) + Polynomial(2, 0.5)
>>> Linear.natural(4)
Linear(0.25)
"""

from __future__ import annotations

import math

import gpytorch.kernels as gk
import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from sureshot.kernels import checks
from sureshot.kernels.distances import manhattan_distances, power_of_distance, shared_paths
from sureshot.kernels.expression import Expression, kernel
from sureshot.kernels.fields import columns, format_value, scalar, setting, vector
from sureshot.kernels.gpytorch_kernels import (
    BrownianKernel,
    CenteredLinearKernel,
    CosineKernel,
    GammaExponentialKernel,
    LaplacianKernel,
    ScaledPolynomialKernel,
    set_values,
)
from sureshot.kernels.leaf import Leaf, Stationary, broadcast_over_pairs, inner_products
from sureshot.kernels.shared_rows import SharedRows
from sureshot.kernels.unit_sphere import unit_rows


@kernel({gk.RBFKernel: ()})
class RBF(Stationary):
    """``exp(-d^2 / 2)``, the squared exponential."""

    lengthscale: Tensor = columns(default=1.0, natural=math.sqrt)

    def of_squared_distance(self, squared: Tensor) -> Tensor:
        return (-0.5 * squared).exp()


@kernel({gk.MaternKernel: ("nu",)})
class Matern(Stationary):
    """``exp(-s) p(s)`` with ``s = sqrt(2 nu) d`` and p a polynomial of degree ``nu - 1/2``."""

    nu: float = setting(checks.smoothness)
    lengthscale: Tensor = columns(default=1.0, natural=math.sqrt)

    def of_squared_distance(self, squared: Tensor) -> Tensor:
        # Below the smallest normal number the gradient of the root would not be finite.
        scaled = (2 * self.nu * squared.clamp_min(torch.finfo(squared.dtype).tiny)).sqrt()
        decay = (-scaled).exp()
        if self.nu == 0.5:
            return decay
        return (1 + scaled if self.nu == 1.5 else 1 + scaled + scaled.square() / 3) * decay


@kernel({gk.RQKernel: ()})
class RationalQuadratic(Stationary):
    """``(1 + d^2 / (2 alpha))^-alpha``, a mixture of RBF kernels of all length-scales."""

    lengthscale: Tensor = columns(default=1.0, natural=math.sqrt)
    alpha: Tensor = scalar(default=1.0)

    def of_squared_distance(self, squared: Tensor) -> Tensor:
        alpha = self.alpha.unsqueeze(-1).unsqueeze(-1)
        return (1 + squared / (2 * alpha)).pow(-alpha)


@kernel({GammaExponentialKernel: ()})
class GammaExponential(Stationary):
    """``exp(-d^gamma)`` with gamma at most 2: from rough to the RBF of length-scale ``l / sqrt(2)``."""

    lengthscale: Tensor = columns(default=1.0, natural=math.sqrt)
    gamma: Tensor = scalar(default=1.0, upper=2.0)

    def of_squared_distance(self, squared: Tensor) -> Tensor:
        return (-power_of_distance(squared, self.gamma.unsqueeze(-1).unsqueeze(-1))).exp()

    def on(self, rows: SharedRows) -> Tensor:
        if self.lengthscale.shape[-1] > 1:
            return super().on(rows)
        # An exponential of shared logarithms takes a tenth of the time of a power.
        logs = rows.log_squared.clamp_min(math.log(torch.finfo(rows.x1.dtype).tiny))
        power = (self.gamma[..., None, None] / 2 * (logs - 2 * self.lengthscale.log().unsqueeze(-1))).exp()
        return (-power.masked_fill(rows.squared == 0, 0)).exp()


@kernel({LaplacianKernel: ()})
class Laplacian(Leaf):
    """``exp(-sum_d |x_d - x'_d| / l_d)``, a product over columns of exponentials.

    The natural length-scale is the mean distance of two standardised rows, ``2 / sqrt(pi)`` a column.
    """

    lengthscale: Tensor = columns(default=1.0, natural=lambda width: 2 * width / math.sqrt(math.pi))

    def values(self, x1: Tensor, x2: Tensor, paired: bool) -> Tensor:
        lengthscale, same = self._row(self.lengthscale, x1), x2 is x1
        if paired:
            if same:
                return x1.new_ones(np.broadcast_shapes(x1.shape[:-1], lengthscale.shape[:-1]))
            return (-((x1 - x2) / lengthscale).abs().sum(-1)).exp()
        if lengthscale.shape[-1] == 1:  # its gradient needs no gradient of the distances
            return (manhattan_distances(x1, x2) / -lengthscale).exp()
        first = x1 / lengthscale
        return (-manhattan_distances(first, first if same else x2 / lengthscale)).exp()


@kernel({gk.PeriodicKernel: ()})
class Periodic(Leaf):
    """``exp(-2 sum_d sin^2(pi (x_d - x'_d) / p_d) / l_d)``; as in GPyTorch the length-scale l is not squared.

    A sum over columns, since with the distance of rows in the sine it would not be positive definite. Computed as the
    exponential of a product of cosines and sines, ``-2 sin^2(a - b) = cos(2a) cos(2b) + sin(2a) sin(2b) - 1``, in the
    memory of the matrix.
    """

    lengthscale: Tensor = columns(default=1.0, natural=float)
    period_length: Tensor = columns(default=1.0)
    in_units_of_columns = True

    def values(self, x1: Tensor, x2: Tensor, paired: bool) -> Tensor:
        lengthscale, frequency = self._row(self.lengthscale, x1), 2 * math.pi / self._row(self.period_length, x1)
        if paired:
            return (((x1 - x2) * (frequency / 2)).sin().square() * (-2 / lengthscale)).sum(-1).exp()
        first, second = (torch.cat([angle.cos(), angle.sin()], dim=-1) for angle in (x1 * frequency, x2 * frequency))
        weight = lengthscale.reciprocal().expand(*lengthscale.shape[:-1], x1.shape[-1])
        return ((first * torch.cat([weight, weight], dim=-1)) @ second.mT - weight.sum(-1, keepdim=True)).exp()


@kernel({gk.LinearKernel: ()})
class Linear(Leaf):
    """``sum_d v_d x_d x'_d``."""

    variance: Tensor = columns(default=1.0, natural=lambda width: 1 / width)

    def values(self, x1: Tensor, x2: Tensor, paired: bool) -> Tensor:
        first = self.features(x1)
        return inner_products(first, first if x2 is x1 else self.features(x2), paired)

    def on(self, rows: SharedRows) -> Tensor:
        return super().on(rows) if self.variance.shape[-1] > 1 else self.variance.unsqueeze(-1) * rows.products

    def rank(self, width: int) -> int:
        return width

    def features(self, x: Tensor) -> Tensor:
        return x * self._row(self.variance, x).sqrt()


@kernel({CenteredLinearKernel: ("center",)})
class CenteredLinear(Leaf):
    """``sum_d v_d (x_d - w_d) (x'_d - w_d)`` with a fixed centre w (..., D), where all of its functions are zero."""

    center: Tensor = vector()
    variance: Tensor = columns(default=1.0, natural=lambda width: 1 / width)

    def values(self, x1: Tensor, x2: Tensor, paired: bool) -> Tensor:
        first = self.features(x1)
        return inner_products(first, first if x2 is x1 else self.features(x2), paired)

    def on(self, rows: SharedRows) -> Tensor:
        if self.variance.shape[-1] > 1:
            return super().on(rows)
        first, second = (self.center @ x.mT for x in (rows.x1, rows.x2))
        shift = self.center.square().sum(-1)[..., None, None] - first.unsqueeze(-1) - second.unsqueeze(-2)
        return self.variance.unsqueeze(-1) * (rows.products + shift)

    def rank(self, width: int) -> int:
        return width

    def features(self, x: Tensor) -> Tensor:
        return (x - self.center.unsqueeze(-2)) * self._row(self.variance, x).sqrt()

    def __str__(self) -> str:
        return f"CenteredLinear({format_value(self.variance)})"


@kernel({BrownianKernel: ()})
class Brownian(Leaf):
    """``sum_d v_d (|x_d| + |x'_d| - |x_d - x'_d|) / 2``: latents are sums of random walks from zero, one a column.

    Functions of single columns that may turn anywhere, as sums of trees of one split do, and whose posterior mean is
    flat beyond the rows. For values of one sign it is ``v_d`` times the smaller absolute value.
    """

    variance: Tensor = columns(default=1.0, natural=lambda width: 1 / width)

    def values(self, x1: Tensor, x2: Tensor, paired: bool) -> Tensor:
        variance = self._row(self.variance, x1)
        return shared_paths(x1 * variance, x2 * variance, paired)

    def on(self, rows: SharedRows) -> Tensor:
        return super().on(rows) if self.variance.shape[-1] > 1 else self.variance.unsqueeze(-1) * rows.shared_paths


@kernel({CosineKernel: ("center",)})
class Cosine(Leaf):
    """``<x, x'> / (|x| |x'|)``, linear on the unit sphere, of rows less a fixed centre (D,) where given.

    A row of zeros (or at the centre) has no direction, and zero with every row, itself included.
    """

    center: Tensor | None = vector(default=None)

    def values(self, x1: Tensor, x2: Tensor, paired: bool) -> Tensor:
        first = unit_rows(x1, self.center)
        if x2 is x1:
            return (first != 0).any(-1).to(first.dtype) if paired else first @ first.mT
        return inner_products(first, unit_rows(x2, self.center), paired)

    def rank(self, width: int) -> int:
        return width

    def features(self, x: Tensor) -> Tensor:
        return unit_rows(x, self.center)

    def __str__(self) -> str:
        return "Cosine()" if self.center is None else "Cosine(centred)"


@kernel({gk.ConstantKernel: ()})
class Constant(Leaf):
    """``c``: an intercept that all rows share."""

    constant: Tensor = scalar(default=1.0)

    def values(self, x1: Tensor, x2: Tensor, paired: bool) -> Tensor:
        batch = np.broadcast_shapes(self.constant.shape, x1.shape[:-2], x2.shape[:-2])
        return broadcast_over_pairs(self.constant, paired).expand(
            *batch, x1.shape[-2], *(() if paired else x2.shape[-2:-1])
        )

    def on(self, rows: SharedRows) -> Tensor:
        return self.constant[..., None, None].expand(*self.constant.shape, len(rows.x1), len(rows.x2))

    def rank(self, width: int) -> int:
        return 1

    def features(self, x: Tensor) -> Tensor:
        return broadcast_over_pairs(self.constant.sqrt(), False) * x.new_ones(*x.shape[:-1], 1)

    def __str__(self) -> str:
        return format_value(self.constant) if self.constant.numel() == 1 else super().__str__()


@kernel({gk.PolynomialKernel: ("power",), ScaledPolynomialKernel: ("n_features", "base_kernel")})
class Polynomial(Leaf):
    """``(<x, x'> / D + c)^power``: with the number of features D its values do not grow with it; without, ``/ 1``."""

    power: int = setting(checks.power)
    offset: Tensor = scalar(default=1.0)
    n_features: int | None = setting(checks.width, default=None)

    def values(self, x1: Tensor, x2: Tensor, paired: bool) -> Tensor:
        first = self._scaled(x1)
        products = inner_products(first, first if x2 is x1 else self._scaled(x2), paired)
        return (products + broadcast_over_pairs(self.offset, paired)).pow(self.power)

    @property
    def width(self) -> int | None:
        return self.n_features

    def rank(self, width: int) -> int | None:
        return {1: width + 1, 2: (width + 1) * (width + 2) // 2}.get(self.power)

    def features(self, x: Tensor) -> Tensor | None:
        """The extended row (x, sqrt(c)), or its pairwise products."""
        if self.power > 2:
            return None
        root = broadcast_over_pairs(self.offset.sqrt(), False) * x.new_ones(*x.shape[:-1], 1)
        extended = torch.cat([self._scaled(x).expand(*root.shape[:-1], x.shape[-1]), root], dim=-1)  # (..., N, D + 1)
        if self.power == 1:
            return extended
        rows, others = torch.triu_indices(extended.shape[-1], extended.shape[-1], device=x.device)
        weight = torch.where(rows == others, x.new_ones(()), x.new_tensor(math.sqrt(2)))
        return extended[..., rows] * extended[..., others] * weight

    def _scaled(self, x: Tensor) -> Tensor:
        return x if self.n_features is None else x / math.sqrt(self.n_features)

    def to_gpytorch(self) -> Kernel:
        width, batch = self.n_features, self.offset.shape
        kernel = (
            gk.PolynomialKernel(self.power, batch_shape=batch)
            if width is None
            else ScaledPolynomialKernel(self.power, width, batch_shape=batch)
        )
        set_values(kernel if width is None else kernel.base_kernel, offset=self.offset.unsqueeze(-1))
        return kernel

    @classmethod
    def from_gpytorch_class(cls, kernel: Kernel) -> Expression:
        scaled = type(kernel) is ScaledPolynomialKernel
        base = kernel.base_kernel if scaled else kernel
        power = int(base.power) if base.power == int(base.power) else base.power  # GPyTorch takes 2.0, too
        return cls(power, base.offset.squeeze(-1), kernel.n_features if scaled else None)

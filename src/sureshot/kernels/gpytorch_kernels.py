"""The kernels that GPyTorch lacks, as GPyTorch kernels, so that its models, constraints and modules can hold them.

Its own ``CosineKernel`` is a periodic kernel ``cos(pi |x - x'| / p)``, a different thing under the same name.
"""

from __future__ import annotations

import math
from typing import Any

import gpytorch.kernels
import torch
from gpytorch.constraints import Interval, Positive
from gpytorch.kernels import Kernel
from linear_operator import to_dense
from torch import Tensor

from sureshot.kernels.distances import manhattan_distances, power_of_distance, shared_paths, squared_distances
from sureshot.kernels.unit_sphere import unit_rows


def set_values(kernel: Kernel, **values: Tensor) -> Kernel:
    """Give positive parameters their values and these values' dtype and device; as tensors, floats are rounded."""
    for name, value in values.items():
        raw = getattr(kernel, f"raw_{name}")
        raw.data = raw.data.to(value)
        kernel.constraint_for_parameter_name(f"raw_{name}").to(value)
        setattr(kernel, name, value.detach().expand(raw.shape))
    return kernel


class _OnTheSphere(Kernel):
    """A kernel of whole rows, less a fixed centre (D,) where given, which is a buffer and no parameter.

    Takes what `gpytorch.kernels.Kernel` does. A row of zero length has no direction and stays zero.
    """

    center: Tensor | None

    def __init__(self, center: Tensor | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.register_buffer("center", center)

    def directions(self, x1: Tensor, x2: Tensor, params: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Both sets of rows at unit length, one object where they are one."""
        if params.get("last_dim_is_batch"):
            raise ValueError(
                f"{type(self).__name__} compares whole rows and cannot treat features as a batch "
                "(last_dim_is_batch=True)."
            )
        first = unit_rows(x1, self.center)
        return first, first if x2 is x1 else unit_rows(x2, self.center)


class CosineKernel(_OnTheSphere):
    """Cosine similarity ``<x, x'> / (|x| |x'|)``, of rank D, with ones on the diagonal; zero for rows of zeros."""

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Kernel matrix (..., N, M), or with `diag` the values (..., N) of paired rows."""
        u1, u2 = self.directions(x1, x2, params)
        if not diag:
            return u1 @ u2.mT
        return (u1 != 0).any(-1).to(u1.dtype) if u2 is u1 else (u1 * u2).sum(-1)


class CenteredLinearKernel(gpytorch.kernels.LinearKernel):
    """The linear kernel of rows less a fixed centre (..., D), a buffer; as `gpytorch.kernels.LinearKernel` else."""

    center: Tensor

    def __init__(self, center: Tensor, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.register_buffer("center", center)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Kernel matrix (..., N, M), or with `diag` the values (..., N) of paired rows."""
        center = self.center.unsqueeze(-2)
        return super().forward(x1 - center, x2 - center, diag=diag, **params)


class UnitSphereKernel(_OnTheSphere):
    """Any kernel, evaluated on rows normalised to unit length.

    The squared distance of two unit vectors is ``2 (1 - cosine)``, between 0 and 4, whatever the number of
    features: for a stationary `base_kernel` the natural length-scale is 1.
    """

    def __init__(self, base_kernel: Kernel, center: Tensor | None = None, **kwargs: Any) -> None:
        super().__init__(center, **kwargs)
        self.base_kernel = base_kernel

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Any:
        """Kernel matrix (..., N, M), or with `diag` the values (..., N) of paired rows."""
        return self.base_kernel(*self.directions(x1, x2, params), diag=diag)


class FirstOrderAdditiveKernel(Kernel):
    """``sum_d k(x_d, x'_d) / D`` of a `base_kernel` of one column."""

    def __init__(self, base_kernel: Kernel, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.base_kernel = base_kernel

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Kernel matrix (..., N, M), or with `diag` the values (..., N) of paired rows."""
        columns = zip(x1.split(1, -1), x2.split(1, -1), strict=True)
        return torch.stack([to_dense(self.base_kernel(a, b, diag=diag)) for a, b in columns]).mean(0)


class SpectralMixtureKernel(gpytorch.kernels.SpectralMixtureKernel):
    """``sum_q w_q prod_d cos(2 pi m_qd t_d) exp(-2 pi^2 t_d^2 s_qd^2)``; as GPyTorch's of one column.

    Of several columns that one is a product of mixtures of single columns.
    """

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Kernel matrix (..., N, M), or with `diag` the values (..., N) of paired rows."""
        first, second = x1.unsqueeze(-3), x2.unsqueeze(-3)
        difference = first - second if diag else first.unsqueeze(-2) - second.unsqueeze(-3)  # (..., 1, N, [M,] D)
        means, scales, weights = self.mixture_means, self.mixture_scales, self.mixture_weights[..., None]
        if not diag:
            means, scales, weights = means.unsqueeze(-2), scales.unsqueeze(-2), weights[..., None]
        waves = (2 * math.pi * difference * means).cos().prod(-1)
        decay = (-2 * (math.pi * difference * scales).square()).sum(-1).exp()
        return (weights * waves * decay).sum(-2 if diag else -3)


class InteractionsKernel(Kernel):
    """``exp(order (sum_d k(x_d, x'_d) / D - 1))`` of a `base_kernel` of one column."""

    def __init__(self, base_kernel: Kernel, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.additive = FirstOrderAdditiveKernel(base_kernel)
        self.register_parameter("raw_order", torch.nn.Parameter(torch.zeros(*self.batch_shape, 1)))
        self.register_constraint("raw_order", Positive())

    @property
    def base_kernel(self) -> Kernel:
        """The kernel of a column."""
        return self.additive.base_kernel

    @property
    def order(self) -> Tensor:
        """How many columns interact in the mean (..., 1)."""
        return self.raw_order_constraint.transform(self.raw_order)

    @order.setter
    def order(self, value: Tensor) -> None:
        value = torch.as_tensor(value).to(self.raw_order)
        self.initialize(raw_order=self.raw_order_constraint.inverse_transform(value))

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Kernel matrix (..., N, M), or with `diag` the values (..., N) of paired rows."""
        order = self.order if diag else self.order.unsqueeze(-1)
        return ((self.additive.forward(x1, x2, diag=diag) - 1) * order).exp()


class ScaledPolynomialKernel(Kernel):
    """``(<x, x'> / D + offset)^power``: a polynomial kernel whose values do not grow with D.

    Takes what `gpytorch.kernels.PolynomialKernel` does, such as ``offset_constraint``.
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


class GammaExponentialKernel(Kernel):
    """``exp(-(|x - x'| / lengthscale)^gamma)``, gamma between 0 and 2; takes what `gpytorch.kernels.Kernel` does."""

    has_lengthscale = True

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.register_parameter("raw_gamma", torch.nn.Parameter(torch.zeros(*self.batch_shape, 1)))
        self.register_constraint("raw_gamma", Interval(0.0, 2.0))

    @property
    def gamma(self) -> Tensor:
        """The exponent (..., 1)."""
        return self.raw_gamma_constraint.transform(self.raw_gamma)

    @gamma.setter
    def gamma(self, value: Tensor) -> None:
        value = torch.as_tensor(value).to(self.raw_gamma)
        below = 2 * (1 - torch.finfo(value.dtype).eps)  # the raw value of 2 itself is infinite
        self.initialize(raw_gamma=self.raw_gamma_constraint.inverse_transform(value.where(value != 2, below)))

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Kernel matrix (..., N, M), or with `diag` the values (..., N) of paired rows."""
        first = x1 / self.lengthscale
        second = first if x2 is x1 else x2 / self.lengthscale
        squared = (first - second).square().sum(-1) if diag else squared_distances(first, second)
        # GPyTorch's distances are 1e-15 at least, and a small power of that is far from zero.
        return (-power_of_distance(squared, self.gamma if diag else self.gamma.unsqueeze(-1))).exp()


class LaplacianKernel(Kernel):
    """``exp(-sum_d |x_d - x'_d| / lengthscale_d)``; takes what `gpytorch.kernels.Kernel` does."""

    has_lengthscale = True

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Kernel matrix (..., N, M), or with `diag` the values (..., N) of paired rows."""
        first = x1 / self.lengthscale
        second = first if x2 is x1 else x2 / self.lengthscale
        return (-((first - second).abs().sum(-1) if diag else manhattan_distances(first, second))).exp()


class BrownianKernel(Kernel):
    """``sum_d v_d (|x_d| + |x'_d| - |x_d - x'_d|) / 2``, a random walk from zero along each column.

    Takes what `gpytorch.kernels.Kernel` does; with ``ard_num_dims`` there is a variance for each column.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.register_parameter(
            "raw_variance", torch.nn.Parameter(torch.zeros(*self.batch_shape, 1, self.ard_num_dims or 1))
        )
        self.register_constraint("raw_variance", Positive())

    @property
    def variance(self) -> Tensor:
        """What a walk's variance grows by for each unit of a column, (..., 1, D or 1)."""
        return self.raw_variance_constraint.transform(self.raw_variance)

    @variance.setter
    def variance(self, value: Tensor) -> None:
        self.initialize(raw_variance=self.raw_variance_constraint.inverse_transform(torch.as_tensor(value)))

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Kernel matrix (..., N, M), or with `diag` the values (..., N) of paired rows."""
        return shared_paths(x1 * self.variance, x2 * self.variance, paired=diag)

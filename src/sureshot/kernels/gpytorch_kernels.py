"""The kernels that GPyTorch lacks, as GPyTorch kernels, so that its models, constraints and modules can hold them.

Its own ``CosineKernel`` is a periodic kernel ``cos(pi |x - x'| / p)``, a different thing under the same name.
"""

from __future__ import annotations

from typing import Any

import gpytorch.kernels
import torch
from gpytorch.constraints import Interval, Positive
from gpytorch.kernels import Kernel
from linear_operator import to_dense
from torch import Tensor


def set_values(kernel: Kernel, **values: Tensor) -> Kernel:
    """Give positive parameters their values and these values' dtype and device; as tensors, floats are rounded."""
    for name, value in values.items():
        raw = getattr(kernel, f"raw_{name}")
        raw.data = raw.data.to(value)
        kernel.constraint_for_parameter_name(f"raw_{name}").to(value)
        setattr(kernel, name, value.detach().expand(raw.shape))
    return kernel


class _Twin(Kernel):
    """A kernel whose formula is that of its expression."""

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Kernel matrix (..., N, M), or with `diag` the values (..., N) of paired rows."""
        from sureshot.kernels.expression import GPYTORCH_CLASSES  # which needs this module

        if params.get("last_dim_is_batch"):
            raise ValueError(
                f"{type(self).__name__} compares whole rows and cannot treat features as a batch "
                "(last_dim_is_batch=True)."
            )
        kind = next(GPYTORCH_CLASSES[one] for one in type(self).__mro__ if one in GPYTORCH_CLASSES)
        return kind.from_gpytorch_class(self).values(x1, x2, diag)


class _Parameter:
    """A parameter of a GPyTorch kernel as users see it, by its raw values and their constraint."""

    def __set_name__(self, owner: type[Kernel], name: str) -> None:
        self.raw = f"raw_{name}"

    def __get__(self, kernel: Kernel, owner: type[Kernel]) -> Tensor:
        return kernel.constraint_for_parameter_name(self.raw).transform(getattr(kernel, self.raw))

    def __set__(self, kernel: Kernel, value: Any) -> None:
        constraint = kernel.constraint_for_parameter_name(self.raw)
        value = torch.as_tensor(value).to(getattr(kernel, self.raw))
        below = constraint.upper_bound * (1 - torch.finfo(value.dtype).eps)  # the raw value of the bound is infinite
        value = value.where(value != constraint.upper_bound, below.to(value))
        kernel.initialize(**{self.raw: constraint.inverse_transform(value)})


class CosineKernel(_Twin):
    """Cosine similarity ``<x, x'> / (|x| |x'|)``, of rank D, with ones on the diagonal; zero for rows of zeros.

    Takes what `gpytorch.kernels.Kernel` does; rows are less a fixed centre (D,) where given, which is a buffer.
    """

    center: Tensor | None

    def __init__(self, center: Tensor | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.register_buffer("center", center)


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


class UnitSphereKernel(_Twin):
    """Any kernel, evaluated on rows normalised to unit length, less a fixed centre (D,) where given, a buffer.

    The squared distance of two unit vectors is ``2 (1 - cosine)``, between 0 and 4, whatever the number of
    features: for a stationary `base_kernel` the natural length-scale is 1.
    """

    center: Tensor | None

    def __init__(self, base_kernel: Kernel, center: Tensor | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.register_buffer("center", center)
        self.base_kernel = base_kernel


class FirstOrderAdditiveKernel(Kernel):
    """``sum_d k(x_d, x'_d) / D`` of a `base_kernel` of one column."""

    def __init__(self, base_kernel: Kernel, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.base_kernel = base_kernel

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Kernel matrix (..., N, M), or with `diag` the values (..., N) of paired rows."""
        columns = zip(x1.split(1, -1), x2.split(1, -1), strict=True)
        return torch.stack([to_dense(self.base_kernel(a, b, diag=diag)) for a, b in columns]).mean(0)


class SpectralMixtureKernel(_Twin, gpytorch.kernels.SpectralMixtureKernel):
    """``sum_q w_q prod_d cos(2 pi m_qd t_d) exp(-2 pi^2 t_d^2 s_qd^2)``; as GPyTorch's of one column.

    Of several columns that one is a product of mixtures of single columns.
    """


class InteractionsKernel(Kernel):
    """``exp(order (sum_d k(x_d, x'_d) / D - 1))`` of a `base_kernel` of one column."""

    order = _Parameter()  # how many columns interact in the mean (..., 1)

    def __init__(self, base_kernel: Kernel, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.additive = FirstOrderAdditiveKernel(base_kernel)
        self.register_parameter("raw_order", torch.nn.Parameter(torch.zeros(*self.batch_shape, 1)))
        self.register_constraint("raw_order", Positive())

    @property
    def base_kernel(self) -> Kernel:
        """The kernel of a column."""
        return self.additive.base_kernel

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Kernel matrix (..., N, M), or with `diag` the values (..., N) of paired rows."""
        order = self.order if diag else self.order.unsqueeze(-1)
        return ((self.additive.forward(x1, x2, diag=diag) - 1) * order).exp()


class ScaledPolynomialKernel(_Twin):
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


class GammaExponentialKernel(_Twin):
    """``exp(-(|x - x'| / lengthscale)^gamma)``, gamma between 0 and 2; takes what `gpytorch.kernels.Kernel` does."""

    has_lengthscale = True
    gamma = _Parameter()  # (..., 1)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.register_parameter("raw_gamma", torch.nn.Parameter(torch.zeros(*self.batch_shape, 1)))
        self.register_constraint("raw_gamma", Interval(0.0, 2.0))


class LaplacianKernel(_Twin):
    """``exp(-sum_d |x_d - x'_d| / lengthscale_d)``; takes what `gpytorch.kernels.Kernel` does."""

    has_lengthscale = True


class BrownianKernel(_Twin):
    """``sum_d v_d (|x_d| + |x'_d| - |x_d - x'_d|) / 2``, a random walk from zero along each column.

    Takes what `gpytorch.kernels.Kernel` does; with ``ard_num_dims`` there is a variance for each column.
    """

    variance = _Parameter()  # what a walk's variance grows by for each unit of a column, (..., 1, D or 1)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.register_parameter(
            "raw_variance", torch.nn.Parameter(torch.zeros(*self.batch_shape, 1, self.ard_num_dims or 1))
        )
        self.register_constraint("raw_variance", Positive())

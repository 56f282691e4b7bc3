"""What kernels are made of other kernels by: sums, products, scales, columns chosen or each by itself, the unit sphere.

>>> from sureshot.kernels import RBF, Cosine, Linear
>>> print(Columns((0, 2), RBF(0.5)) + 0.5 * (UnitSphere(RBF() + Linear()) * Cosine()))
RBF(0.5)[0, 2] + 0.5 x UnitSphere(RBF(1) + Linear(1)) x Cosine()
"""

from __future__ import annotations

from functools import reduce
from operator import add, mul

import gpytorch.kernels as gk
import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from sureshot.kernels import checks
from sureshot.kernels.expression import Expression, kernel
from sureshot.kernels.fields import part, parts, scalar, setting, vector
from sureshot.kernels.gpytorch_kernels import FirstOrderAdditiveKernel, InteractionsKernel, UnitSphereKernel
from sureshot.kernels.leaf import Stationary
from sureshot.kernels.shared_rows import SharedRows
from sureshot.kernels.unit_sphere import unit_rows

_ENTRIES = 2**15  # of the matrix that a column is added to at a time: it stays in a core's cache


@kernel({gk.AdditiveKernel: ("kernels",)})
class Sum(Expression):
    """``k_1(x, x') + k_2(x, x') + ...``."""

    kernels: tuple[Expression, ...] = parts()

    def values(self, x1: Tensor, x2: Tensor, paired: bool) -> Tensor:
        return reduce(add, (term.values(x1, x2, paired) for term in self.kernels))

    def on(self, rows: SharedRows) -> Tensor:
        return reduce(add, (term.on(rows) for term in self.kernels))

    def rank(self, width: int) -> int | None:
        known = [rank for term in self.kernels if (rank := term.rank(width)) is not None]
        return sum(known) if len(known) == len(self.kernels) else None

    def features(self, x: Tensor) -> Tensor | None:
        known = [features for term in self.kernels if (features := term.features(x)) is not None]
        if len(known) < len(self.kernels):
            return None
        batch = np.broadcast_shapes(*(features.shape[:-1] for features in known))
        return torch.cat([features.expand(*batch, features.shape[-1]) for features in known], dim=-1)

    def __str__(self) -> str:
        return " + ".join(map(str, self.kernels))


@kernel({gk.ProductKernel: ("kernels",)})
class Product(Expression):
    """``k_1(x, x') k_2(x, x') ...``."""

    kernels: tuple[Expression, ...] = parts()

    def values(self, x1: Tensor, x2: Tensor, paired: bool) -> Tensor:
        return reduce(mul, (factor.values(x1, x2, paired) for factor in self.kernels))

    def on(self, rows: SharedRows) -> Tensor:
        return reduce(mul, (factor.on(rows) for factor in self.kernels))

    def __str__(self) -> str:
        return " x ".join(map(_factor, self.kernels))


@kernel({gk.ScaleKernel: ("base_kernel",)})
class Scale(Expression):
    """``s k(x, x')``, with the output scale s (...)."""

    outputscale: Tensor = scalar(trailing=0)
    base_kernel: Expression = part()

    def values(self, x1: Tensor, x2: Tensor, paired: bool) -> Tensor:
        scale = self.outputscale.unsqueeze(-1)
        return self.base_kernel.values(x1, x2, paired) * (scale if paired else scale.unsqueeze(-1))

    def on(self, rows: SharedRows) -> Tensor:
        return self.base_kernel.on(rows) * self.outputscale[..., None, None]

    def rank(self, width: int) -> int | None:
        return self.base_kernel.rank(width)

    def features(self, x: Tensor) -> Tensor | None:
        features = self.base_kernel.features(x)
        return None if features is None else self.outputscale.sqrt()[..., None, None] * features

    def __str__(self) -> str:
        one = self.outputscale.numel() == 1
        return f"{f'{self.outputscale.item():.3g}' if one else 'scales'} x {_factor(self.base_kernel)}"


@kernel({})
class Columns(Expression):
    """A kernel of some of the columns of a row; GPyTorch has active dimensions in the place of a class."""

    columns: tuple[int, ...] = setting(checks.columns)
    base_kernel: Expression = part()

    def values(self, x1: Tensor, x2: Tensor, paired: bool) -> Tensor:
        first = self._of(x1)
        return self.base_kernel.values(first, first if x2 is x1 else self._of(x2), paired)

    def on(self, rows: SharedRows) -> Tensor:
        return self.base_kernel.on(rows.of(self.columns))

    @property
    def width(self) -> None:
        """Unknown: the columns left out may be any number."""
        return None

    def rank(self, width: int) -> int | None:
        return self.base_kernel.rank(len(self.columns))

    def features(self, x: Tensor) -> Tensor | None:
        return self.base_kernel.features(self._of(x))

    def to_gpytorch(self) -> Kernel:
        kernel = self.base_kernel.to_gpytorch()
        if kernel.active_dims is not None or not self.base_kernel.gpytorch_classes:
            kernel = gk.AdditiveKernel(kernel)  # has active dimensions of its own, whatever those of its term
        device = next((value.device for value in kernel.parameters()), None)
        kernel.active_dims = torch.tensor(self.columns, device=device)
        return kernel

    def _of(self, x: Tensor) -> Tensor:
        if max(self.columns) >= x.shape[-1]:
            raise ValueError(
                f"{self} looks at feature {max(self.columns)}, but the inputs have only {x.shape[-1]} features."
            )
        return x.index_select(-1, torch.tensor(self.columns, device=x.device))

    def __str__(self) -> str:
        compound = isinstance(self.base_kernel, Sum | Product | Scale)
        return f"{f'({self.base_kernel})' if compound else self.base_kernel}{list(self.columns)}"


@kernel({FirstOrderAdditiveKernel: ("base_kernel",)})
class Additive(Expression):
    """``sum_d k(x_d, x'_d) / D``, a stationary kernel with one length-scale of each column by itself.

    Latents are sums of functions of single columns, so an extreme cell spoils the term of its own column only, and
    columns of noise add little (Duvenaud, Nickisch & Rasmussen 2011, first order). Takes D times as long as its base.
    """

    base_kernel: Expression = part()

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_by_column(self)

    def values(self, x1: Tensor, x2: Tensor, paired: bool) -> Tensor:
        assert isinstance(self.base_kernel, Stationary)
        lengthscale = self.base_kernel.lengthscale.unsqueeze(-2)
        first = x1 / lengthscale
        second = first if x2 is x1 else x2 / lengthscale
        if paired:
            return self._of_differences(first - second).mean(-1)
        blocks = first.split(max(1, _ENTRIES // max(1, second.shape[-2])), -2)
        return torch.cat([self._total(block, second) for block in blocks], -2) / x1.shape[-1]

    def _total(self, x1: Tensor, x2: Tensor) -> Tensor:
        columns = zip(x1.unbind(-1), x2.unbind(-1), strict=True)
        return reduce(add, (self._of_differences(a.unsqueeze(-1) - b.unsqueeze(-2)) for a, b in columns))

    def _of_differences(self, differences: Tensor) -> Tensor:
        assert isinstance(self.base_kernel, Stationary)
        largest = torch.finfo(differences.dtype).max ** 0.5
        return self.base_kernel.of_squared_distance(differences.square().clamp_max(largest))


@kernel({InteractionsKernel: ("base_kernel",)})
class Interactions(Expression):
    """``exp(order (a(x, x') - 1))`` of the `Additive` kernel ``a``: latents of columns that interact.

    A product over columns, and a mixture of products of any number of them, which is Poisson with mean `order`: near
    zero it is additive but for a constant. As there, an extreme cell spoils the part of its own column only; what few
    columns say together is learnt as well (Duvenaud, Nickisch & Rasmussen 2011, all orders).
    """

    base_kernel: Expression = part()
    order: Tensor = scalar(default=3.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_by_column(self)

    def values(self, x1: Tensor, x2: Tensor, paired: bool) -> Tensor:
        order = self.order.unsqueeze(-1) if paired else self.order[..., None, None]
        return ((Additive(self.base_kernel).values(x1, x2, paired) - 1) * order).exp()


def _check_by_column(expression: Additive | Interactions) -> None:
    base = expression.base_kernel
    if not isinstance(base, Stationary) or base.lengthscale.shape[-1] > 1:
        raise ValueError(
            f"{type(expression).__name__} takes a stationary leaf with one length-scale, as Matern(1.5) is; got {base}."
        )


@kernel({UnitSphereKernel: ("base_kernel", "center")})
class UnitSphere(Expression):
    """A kernel of the directions of rows, less a fixed centre (D,) where given."""

    base_kernel: Expression = part()
    center: Tensor | None = vector(default=None)

    def values(self, x1: Tensor, x2: Tensor, paired: bool) -> Tensor:
        first = unit_rows(x1, self.center)
        return self.base_kernel.values(first, first if x2 is x1 else unit_rows(x2, self.center), paired)

    def rank(self, width: int) -> int | None:
        return self.base_kernel.rank(width)

    def features(self, x: Tensor) -> Tensor | None:
        return self.base_kernel.features(unit_rows(x, self.center))

    def __str__(self) -> str:
        return f"UnitSphere({self.base_kernel}{'' if self.center is None else ', centred'})"


def _factor(expression: Expression) -> str:
    return f"({expression})" if isinstance(expression, Sum) else str(expression)

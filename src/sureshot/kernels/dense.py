"""Any kernel as a plain tensor: an expression, or a GPyTorch kernel, whose expression is made on the way.

GPyTorch evaluates kernels lazily, which suits its own structured solvers; the algebra here needs plain matrices,
exactly symmetric and with an exact diagonal. Lazy evaluation also changes the kernel object for a moment (it switches
``active_dims`` off and on), so two threads predicting with one model could disturb each other; only a kernel of a class
that has no expression is evaluated by its own ``forward``, one thread at a time.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import torch
from gpytorch.kernels import Kernel
from linear_operator import to_dense
from torch import Tensor

from sureshot.kernels.expression import Expression, kernel
from sureshot.kernels.fields import setting

_lazy_evaluation = threading.Lock()


def evaluate(
    kernel: Kernel | Expression,
    x1: Tensor,  # (..., N, D)
    x2: Tensor | None = None,  # (..., M, D)
    diag: bool = False,
) -> Tensor:
    """The kernel between rows as a dense tensor: (..., N, M), or with `diag` the values of paired rows (..., N).

    Batch dimensions of the inputs and of the kernel's parameters broadcast. Differentiable in both. Without `x2` the
    kernel of `x1` with itself, exactly symmetric, its diagonal free of rounding. Pass the training rows as `x1` and the
    queries as `x2`: kernels may take the mean of `x1` as their origin, so that a query's values do not depend on the
    queries beside it.
    """
    expression = as_expression(kernel)
    return expression.diagonal(x1, x2) if diag else expression(x1, x2)


def as_expression(kernel: Kernel | Expression) -> Expression:
    """The expression of any kernel, with its parameters as they are now."""
    if isinstance(kernel, Expression):
        return kernel
    if isinstance(kernel, Kernel):
        return Expression.from_gpytorch(kernel)
    raise ValueError(f"kernel must be an Expression or a gpytorch.kernels.Kernel, got {type(kernel).__name__}.")


@torch.no_grad()
def own_kernel(kernel: Kernel | Expression) -> Expression:
    """A kernel in double precision as an expression of its own, which later changes of the given one leave alone."""
    given = copy.deepcopy(kernel)
    return as_expression(given.double() if isinstance(given, Kernel) else given.to(torch.float64))


def describe(kernel: Kernel | Expression) -> str:
    """Any kernel as mathematics, with its values, such as ``2.3 x (RBF(0.7) + 0.1)``."""
    return str(as_expression(kernel))


def _gpytorch(value: Any, name: str) -> Kernel:
    if not isinstance(value, Kernel):
        raise ValueError(f"the {name} must be a gpytorch.kernels.Kernel, got {type(value).__name__}.")
    return value


@kernel({})
class GPyTorchKernel(Expression):
    """A GPyTorch kernel of any other class, evaluated by itself; its raw parameters stay in the object."""

    module: Kernel = setting(_gpytorch)
    in_files = False

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return tuple(self.module.batch_shape)

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The module's own: raw, and to be changed there."""
        return dict(self.module.named_parameters())

    def map(self, function: Callable[[str, Tensor], Any], prefix: str = "") -> GPyTorchKernel:
        if any(function(prefix + name, value) is not value for name, value in self.parameters.items()):
            raise ValueError(f"{self} keeps its parameters in its module: change or convert them there.")
        return self

    def to_gpytorch(self) -> Kernel:
        return self.module

    def to_json(self) -> dict[str, Any]:
        raise ValueError(f"kernels of class {self} cannot be written as JSON, only those composed of our own leaves.")

    def __str__(self) -> str:
        return type(self.module).__name__

    def values(self, x1: Tensor, x2: Tensor, paired: bool) -> Tensor:
        first = self._selected(x1)
        second = first if x2 is x1 else self._selected(x2)
        with _lazy_evaluation:
            dense: Tensor = to_dense(self.module.forward(first, second, diag=paired))
        n = first.shape[-2]
        if paired and dense.ndim >= first.ndim and dense.shape[-2:] == (n, n):
            return dense.diagonal(dim1=-2, dim2=-1)  # many classes ignore `diag`
        return dense

    def _selected(self, x: Tensor) -> Tensor:
        chosen, width = self.module.active_dims, self.module.ard_num_dims
        if chosen is not None:
            if int(chosen.max()) >= x.shape[-1]:
                raise ValueError(
                    f"{self} looks at feature {int(chosen.max())}, but the inputs have only {x.shape[-1]} features."
                )
            x = x.index_select(-1, chosen)
        if width is not None and width != x.shape[-1]:
            raise ValueError(f"{self} was made for {width} features (ard_num_dims), the inputs have {x.shape[-1]}.")
        return x

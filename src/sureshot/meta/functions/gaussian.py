"""Functions of one input drawn from Gaussian processes, with noise; the true kernel stays with each task.

=================== ==================================================
family              kernel, of variance 1
=================== ==================================================
``rbf``             ``RBF(lengthscale)``
``matern``          ``Matern(5/2, lengthscale)``
``periodic``        ``Periodic(1, period)``
``weakly_periodic`` ``RBF(decay) Periodic(1, period)``
``mixture``         one of these for each task
=================== ==================================================

Length-scale, period and decay are drawn log-uniformly for every task; a range of one number fixes them. The origin of
a task (`Tasks.origin`) has its kernel's number in `KERNELS` and these three.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from sureshot.kernels import RBF, Expression, Matern, Periodic
from sureshot.meta.functions.source import FunctionRows, FunctionSource, checked_range

Family = Literal["rbf", "matern", "periodic", "weakly_periodic", "mixture"]


def _repeating(period: Tensor) -> Periodic:
    return Periodic(torch.ones_like(period), period)


KERNELS: dict[str, Callable[[Tensor, Tensor, Tensor], Expression]] = {
    "rbf": lambda lengthscale, period, decay: RBF(lengthscale),
    "matern": lambda lengthscale, period, decay: Matern(2.5, lengthscale),
    "periodic": lambda lengthscale, period, decay: _repeating(period),
    "weakly_periodic": lambda lengthscale, period, decay: RBF(decay) * _repeating(period),
}
"""By name, of length-scales, periods and decays (T, 1)."""


def true_covariance(
    origin: Tensor,  # (T, 4) float64
    x1: Tensor,  # (T, N, 1)
    x2: Tensor | None = None,  # (T, M, 1)
) -> Tensor:
    """The kernel of each task, (T, N, M)."""
    kind, *parameters = origin.split(1, dim=-1)
    found = x1.new_zeros(len(x1), x1.shape[1], (x1 if x2 is None else x2).shape[1])
    for number in kind.unique().tolist():
        chosen = kind.squeeze(-1) == number
        kernel = list(KERNELS.values())[int(number)](*(part[chosen] for part in parameters))
        found[chosen] = kernel(x1[chosen], None if x2 is None else x2[chosen])
    return found


class GaussianFunctions(FunctionSource):
    """See the module."""

    input_width, target_width, reaches_beyond = 1, 1, True

    def __init__(
        self,
        family: Family = "rbf",
        lengthscale: tuple[float, ...] = (0.25, 1.0),
        period: tuple[float, ...] = (0.5, 2.0),
        decay: tuple[float, ...] = (1.0, 4.0),
        inputs: tuple[float, ...] = (-2.0, 2.0),  # their range; beyond is as wide a range above
        noise: float = 0.05,  # standard deviation
    ) -> None:
        given = {"lengthscale": lengthscale, "period": period, "decay": decay}
        self._ranges = [checked_range(name, values, 0.0) for name, values in given.items()]
        self.inputs, self.noise = checked_range("inputs", inputs), noise
        if not 0 < noise < math.inf:
            raise ValueError(f"noise must be a positive standard deviation, got {noise}")
        self._kinds = list(range(len(KERNELS))) if family == "mixture" else [list(KERNELS).index(family)]
        self.identity = f"{family} {self._ranges} {self.inputs} {noise}"

    def rows(self, n_tasks: int, n_rows: int, generator: torch.Generator, beyond: bool) -> FunctionRows:
        kinds = torch.tensor(self._kinds, dtype=torch.float64)
        origin = [kinds[torch.randint(len(kinds), (n_tasks, 1), generator=generator)]]
        for low, high in self._ranges:
            share = torch.rand(n_tasks, 1, generator=generator, dtype=torch.float64)
            origin.append((math.log(low) + share * math.log(high / low)).exp())
        drawn = torch.cat(origin, -1)
        x = uniform_inputs((n_tasks, n_rows), self.inputs, generator, beyond)
        covariance = true_covariance(drawn, x)
        covariance.diagonal(dim1=-2, dim2=-1).add_(self.noise**2)
        normal = torch.randn(n_tasks, n_rows, 1, generator=generator, dtype=torch.float64)
        y = torch.linalg.cholesky(covariance) @ normal
        return FunctionRows(x, y, torch.full((n_tasks, 1), n_rows), drawn)


def uniform_inputs(
    shape: tuple[int, int], bounds: tuple[float, float], generator: torch.Generator, beyond: bool
) -> Tensor:
    """Inputs (T, N, 1) from a range, or from one as wide above it; exact in float32, as tasks have them."""
    low, high = bounds
    x = low + (high - low) * torch.rand(*shape, 1, generator=generator, dtype=torch.float64)
    return (x + (high - low) * beyond).float().double()

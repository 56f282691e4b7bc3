"""Functions of one input drawn from Gaussian processes, with noise; the true kernel stays with each task.

A family is one of `KERNELS`, or ``mixture``: one of them for each task. Length-scale, period and decay are drawn
log-uniformly for every task; a range of one number fixes them. The origin of a task (`Tasks.origin`) has the number of
its kernel and these three.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from sureshot.kernels import RBF, Expression, Matern, Periodic
from sureshot.meta.functions.source import FunctionRows, FunctionSource, checked_range, uniform_inputs

Family = Literal["rbf", "matern", "periodic", "weakly_periodic", "mixture"]

KERNELS: dict[str, Callable[[Tensor, Tensor, Tensor], Expression]] = {
    "rbf": lambda lengthscale, period, decay: RBF(lengthscale),
    "matern": lambda lengthscale, period, decay: Matern(2.5, lengthscale),
    "periodic": lambda lengthscale, period, decay: Periodic(torch.ones_like(period), period),
    "weakly_periodic": lambda lengthscale, period, decay: RBF(decay) * Periodic(torch.ones_like(period), period),
}
"""Of variance 1, by length-scales, periods and decays (T, 1)."""


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

    input_width, target_width = 1, 1
    inputs: tuple[float, float]

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
        self._ranges = [checked_range(name, values) for name, values in given.items()]
        self.inputs, self.noise = checked_range("inputs", inputs, positive=False), noise
        if not 0 < noise < math.inf:
            raise ValueError(f"noise must be a positive standard deviation, got {noise}")
        self._kinds = list(range(len(KERNELS))) if family == "mixture" else [list(KERNELS).index(family)]
        self.identity = f"draws of Gaussian processes, {family}, {self._ranges} on {self.inputs}, noise {noise:g}"

    def rows(self, n_tasks: int, n_rows: int, generator: torch.Generator, beyond: bool) -> FunctionRows:
        kinds = torch.tensor(self._kinds, dtype=torch.float64)
        parts = [kinds[torch.randint(len(kinds), (n_tasks, 1), generator=generator)]]
        for low, high in self._ranges:
            share = torch.rand(n_tasks, 1, generator=generator, dtype=torch.float64)
            parts.append((math.log(low) + share * math.log(high / low)).exp())
        origin, x = torch.cat(parts, -1), uniform_inputs(n_tasks, n_rows, self.inputs, generator, beyond)
        covariance = true_covariance(origin, x)
        covariance.diagonal(dim1=-2, dim2=-1).add_(self.noise**2)
        normal = torch.randn(n_tasks, n_rows, 1, generator=generator, dtype=torch.float64)
        y = torch.linalg.cholesky(covariance) @ normal
        return FunctionRows(x, y, torch.full((n_tasks, 1), n_rows), origin)

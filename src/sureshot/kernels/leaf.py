"""What leaves have in common: natural starting values, and formulas of distances and of inner products."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from sureshot.kernels.distances import squared_distances
from sureshot.kernels.expression import Expression
from sureshot.kernels.shared_rows import SharedRows


class Leaf(Expression):
    """A kernel without parts."""

    @classmethod
    def natural(cls, width: int, per_column: bool = False, batch: tuple[int, ...] = (), **given: Any) -> Self:
        """The leaf where learning should start on standardised rows of this width, with `given` values where stated."""
        for name, role in cls.roles.items():
            if role.is_parameter:
                start = given.get(name, 1.0 if role.natural is None else role.natural(width))
                sizes = (width if per_column else 1,) if role.kind == "columns" else ()
                given[name] = torch.full((*batch, *sizes), start, dtype=torch.float64)
        return cls(**given)

    def _row(self, parameter: Tensor, x: Tensor) -> Tensor:
        """A parameter of columns (..., 1, D or 1), to be multiplied with rows (..., N, D)."""
        if parameter.shape[-1] not in (1, x.shape[-1]):
            raise ValueError(
                f"{type(self).__name__} was made for {parameter.shape[-1]} features (one parameter for each), "
                f"the inputs have {x.shape[-1]}."
            )
        return parameter.unsqueeze(-2)


class Stationary(Leaf):
    """A kernel of the distance between rows in units of the length-scale, 1 where it is zero."""

    lengthscale: Tensor

    @abstractmethod
    def of_squared_distance(self, squared: Tensor) -> Tensor:
        """The kernel at squared distances (..., N, M)."""

    def values(self, x1: Tensor, x2: Tensor, paired: bool) -> Tensor:
        lengthscale = self._row(self.lengthscale, x1)
        if not paired:
            first = x1 / lengthscale
            return self.of_squared_distance(squared_distances(first, first if x2 is x1 else x2 / lengthscale))
        if x2 is x1:
            squared = x1.new_zeros(np.broadcast_shapes(x1.shape[:-1], lengthscale.shape[:-1]))
        else:
            squared = ((x1 - x2) / lengthscale).square().sum(-1)
        return self.of_squared_distance(squared.unsqueeze(-1)).squeeze(-1)

    def on(self, rows: SharedRows) -> Tensor:
        if self.lengthscale.shape[-1] > 1:
            return super().on(rows)
        return self.of_squared_distance(rows.squared / self.lengthscale.square().unsqueeze(-1))


def inner_products(first: Tensor, second: Tensor, paired: bool) -> Tensor:
    """Of all pairs of rows (..., N, M), or of paired rows (..., N)."""
    return (first * second).sum(-1) if paired else first @ second.mT


def broadcast_over_pairs(parameter: Tensor, paired: bool) -> Tensor:
    """A scalar (...) as it meets the values of pairs, (..., 1, 1), or of paired rows, (..., 1)."""
    return parameter.unsqueeze(-1) if paired else parameter.unsqueeze(-1).unsqueeze(-1)

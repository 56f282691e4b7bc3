"""Explicit features ``Phi`` with ``K = Phi Phi'`` for kernels of known, finite rank.

A linear, cosine or polynomial kernel on D columns has rank R = D + 1 at most (with its intercept; for degree 2
``(D + 1)(D + 2) / 2``). With N > R rows everything can be computed in O(N R^2) from the features instead of O(N^3)
from the matrix, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.approximations.base import Finite
from sureshot.approximations.exact import ROUNDING
from sureshot.gaussian.prior import Queries
from sureshot.kernels.expression import Expression

MOST_FEATURES = 4097
"""Of a linear kernel with an intercept up to 4096 columns, of degree 2 up to 88; beyond, features do not pay."""


@dataclass(frozen=True)
class Explicit(Finite):
    """By the features of a kernel that has a `finite_rank`, which are values already."""

    basis: Tensor | None = None  # (R_full, R), of the directions that rows have; None for all

    @classmethod
    def of(cls, kernel: Expression, x: Tensor) -> Explicit:
        """Exact for rows (N, D), turned into the directions that they have where those are fewer."""
        full = cls(kernel).features(x)
        if full.shape[1] <= len(full):
            return cls(kernel)
        _, singular, right = torch.linalg.svd(full, full_matrices=False)
        shares = singular.square() / singular.square().sum()
        return cls(kernel, right[shares > ROUNDING * torch.finfo(full.dtype).eps].mT.contiguous())

    def values(self, x: Tensor) -> Queries:
        full = self.kernel.features(x)
        assert full is not None
        features = full if self.basis is None else full @ self.basis
        return Queries(features.contiguous(), full.square().sum(-1))


def finite_rank(
    kernel: Expression,
    width: int,  # D, of the rows
) -> int | None:
    """How many features a kernel has, None without any that pay.

    Features exist for linear, cosine, constant and polynomial kernels (degrees 1 and 2), and for their scalings and
    sums, also on the unit sphere.
    """
    rank = kernel.rank(width)
    return None if rank is None or rank > MOST_FEATURES else rank

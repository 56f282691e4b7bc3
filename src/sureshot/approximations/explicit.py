"""Explicit features ``Phi`` with ``K = Phi Phi'`` for kernels of known, finite rank.

A linear, cosine or polynomial kernel on D columns has rank R = D + 1 at most (with its intercept; for degree 2
``(D + 1)(D + 2) / 2``). With N > R rows everything can be computed in O(N R^2) from the features instead of O(N^3)
from the matrix, exactly.
"""

from __future__ import annotations

from sureshot.kernels.expression import Expression

MOST_FEATURES = 4097
"""Of a linear kernel with an intercept up to 4096 columns, of degree 2 up to 88; beyond, features do not pay."""


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

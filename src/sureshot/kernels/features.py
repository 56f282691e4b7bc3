"""Explicit features ``Phi`` with ``K = Phi Phi'`` for kernels of known, finite rank.

A linear, cosine or polynomial kernel on D features has rank R = D + 1 at most (with its intercept; for
degree 2 ``(D + 1)(D + 2) / 2``). With N > R rows everything can be computed in O(N R^2) from the features
instead of O(N^3) from the matrix, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpytorch.kernels import Kernel
from torch import Tensor

from sureshot.kernels.dense import as_expression
from sureshot.kernels.expression import Expression


@dataclass(frozen=True)
class ExplicitFeatures:
    """The features of a kernel, as a function of the rows.

    Reads the kernel's parameters on every call, so it stays right, and differentiable, while they are learned.
    """

    kernel: Kernel | Expression
    rank: int | None  # R, the number of features; None when the width of the inputs was not stated

    def __call__(self, x: Tensor) -> Tensor:
        """Features (..., N, R) of rows (..., N, D), with ``Phi(x) Phi(x')' = K(x, x')``."""
        features = as_expression(self.kernel).features(x)
        assert features is not None
        return features


def feature_map(
    kernel: Kernel | Expression,
    n_features: int | None = None,  # D; by default as the kernel says, where it does (degree 2, ARD, a centre)
    max_rank: int = 4097,  # a linear kernel with an intercept up to 4096 features, degree 2 up to 88
) -> ExplicitFeatures | None:
    """The features of `kernel`, or None when it has none that pay.

    Features exist for linear, cosine, constant and polynomial kernels (degrees 1 and 2), and for their scalings and
    sums, also on the unit sphere.
    """
    expression = as_expression(kernel)
    width = expression.width if n_features is None else n_features
    if width is not None:
        rank = expression.rank(width)
        return None if rank is None or rank > max_rank else ExplicitFeatures(kernel, rank)
    first, second, third = (expression.rank(width) for width in (1, 2, 3))
    if first is None or second is None or third is None or third - second != second - first:
        return None  # of no finite rank, or of one that grows faster than the unknown width
    return ExplicitFeatures(kernel, None)

"""The kernel itself: its matrix, and the roots of such a matrix.

What tells a kernel matrix from rounding, here and in `inducing`, is one variance: 256 units in the last place of the
trace (6e-14 of it in float64). If no entry is wrong by more than a share c of ``sqrt(k_ii k_jj)``, no eigenvalue is by
more than c times the trace. Entries are wrong by some units; a Cholesky factor of M inputs adds ``M + 1`` if all its
roundings add up (Higham 2002, theorem 10.3), about the root of that as they do.

Directions below are dropped where eigenvalues are at hand. In batches, and where gradients flow, every input gets as
much variance of its own. A single matrix without such directions is used as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from sureshot.approximations.base import Approximation
from sureshot.gaussian.gram import GramPrior
from sureshot.gaussian.prior import Queries

ROUNDING = 2**8
"""Units in the last place of the trace."""


@dataclass(frozen=True)
class Exact(Approximation):
    """The kernel at all rows."""

    rows: Tensor  # (..., C or 1, N, D), which queries are compared with

    def prior(self, x: Tensor, mean: Tensor) -> GramPrior:
        """Queries are compared with these rows."""
        return GramPrior(self.kernel(x), mean, Exact(self.kernel, x).queries)

    def queries(self, x: Tensor) -> Queries:
        return Queries(self.kernel(self.rows, x), self.kernel.diagonal(x))


def rounding(gram: Tensor) -> Tensor:
    """The variance (...) below which directions of kernel matrices (..., M, M) are rounding."""
    return ROUNDING * torch.finfo(gram.dtype).eps * gram.detach().diagonal(dim1=-2, dim2=-1).sum(-1)


def lifted(gram: Tensor) -> Tensor:
    """Kernel matrices (..., M, M) that have Cholesky factors: every input with the variance of rounding on top."""
    return gram + torch.diag_embed(rounding(gram).unsqueeze(-1).expand(gram.shape[:-1]))


class Roots(NamedTuple):
    """Two factors of a kernel matrix of M inputs, ``K = F F'`` and ``P = K^-1 F``, without directions of rounding."""

    inverse: Tensor  # P (M, R); ``k P`` are the features of a row whose kernel values are k
    features: Tensor  # F (M, R), those of the inputs themselves

    @classmethod
    def of(cls, gram: Tensor, orthogonal: bool = False) -> Roots:
        """Of a kernel matrix (M, M); with `orthogonal` features, which take ten times as long."""
        least = rounding(gram)
        unit = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
        if gram.requires_grad:
            factor = torch.linalg.cholesky(lifted(gram))
            return cls(torch.linalg.solve_triangular(factor, unit, upper=False).mT, factor)
        if not orthogonal:
            factor, failed = torch.linalg.cholesky_ex(gram)
            # Squared, what the inputs before it leave of each input's variance.
            if not bool(failed) and bool((factor.diagonal().square() > least).all()):
                inverse = torch.linalg.solve_triangular(factor, unit, upper=False).mT
                return cls(inverse.contiguous(), factor.contiguous())
        eigenvalues, basis = torch.linalg.eigh(gram)
        kept = eigenvalues > least
        root = eigenvalues[kept].sqrt()
        return cls((basis[:, kept] / root).contiguous(), (basis[:, kept] * root).contiguous())

    def scaled(self, scale: float) -> Roots:
        """Those of a matrix that is `scale` times as large."""
        return Roots(self.inverse / scale**0.5, self.features * scale**0.5)

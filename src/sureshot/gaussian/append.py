"""A Cholesky factor of more rows from that of fewer, without factorising anything again.

Reference: Golub & Van Loan 2013, section 6.5.
"""

from __future__ import annotations

import torch
from torch import Tensor


def append_to_factor(
    factor: Tensor,  # (N, N), lower Cholesky factor of a matrix A
    cross: Tensor,  # (N, M)
    corner: Tensor,  # (M, M)
) -> Tensor:
    """The factor of ``[[A, cross], [cross', corner]]``, (N + M, N + M), in O(N^2 M)."""
    own = torch.linalg.solve_triangular(factor, cross, upper=False)  # L^-1 cross
    last = torch.linalg.cholesky(corner - own.mT @ own)
    above = torch.cat([factor, torch.zeros_like(cross)], -1)
    return torch.cat([above, torch.cat([own.mT, last], -1)], -2)

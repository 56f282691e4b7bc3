"""Products, factors and roots of matrices with leading batch dimensions."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sureshot.computing.blocks import IN_CACHE, blocks


def times_vector(matrix: Tensor, vector: Tensor) -> Tensor:
    """Matrices (..., M, N) times vectors (..., N), giving (..., M).

    Where the two broadcast, one matrix meets many vectors in a single product; ``@`` would copy it for each of them.
    """
    return torch.einsum("...mn,...n->...m", matrix, vector)


def solve_vectors(triangle: Tensor, vectors: Tensor, upper: bool) -> Tensor:
    """``T^-1 v`` for triangles (..., C or 1, N, N) and vectors (..., C, N); those of one triangle are its columns."""
    if triangle.shape[-3:-2] == (1,):
        columns = torch.linalg.solve_triangular(triangle.squeeze(-3), vectors.mT, upper=upper)
        return columns.mT
    return torch.linalg.solve_triangular(triangle, vectors.unsqueeze(-1), upper=upper).squeeze(-1)


def weighted_factor(gram: Tensor, root: Tensor) -> Tensor:
    """Lower Cholesky factor of ``B = I + W^1/2 K W^1/2`` (..., N, N), given K and the diagonal (..., N) of W^1/2."""
    return factor_plus_identity(root.unsqueeze(-1) * gram * root.unsqueeze(-2))


def factor_plus_identity(matrix: Tensor) -> Tensor:
    """Lower Cholesky factor of ``I + matrix`` (..., N, N); overwrites the argument, so give it a temporary."""
    matrix.diagonal(dim1=-2, dim2=-1).add_(1)
    return torch.linalg.cholesky(matrix)


def weighted_factors(
    gram: Tensor,  # (M, N, N)
    root: Tensor,  # (M, N)
    out: Tensor | None = None,  # (M, N, N), not `gram`
) -> Tensor:
    """As `weighted_factor`, for many large matrices: a few at a time in a core's cache, and no memory but the result.

    NaN where a matrix has no factor, because it overflows.
    """
    found = torch.empty_like(gram) if out is None else out
    for part in blocks(len(found), gram.shape[-1] ** 2, IN_CACHE):
        one = torch.mul(gram[part], root[part].unsqueeze(-1), out=found[part]).mul_(root[part].unsqueeze(-2))
        one.diagonal(dim1=-2, dim2=-1).add_(1)
        _factored(one)
    return found


def factors(
    gram: Tensor,  # (M, N, N)
    out: Tensor | None = None,  # (M, N, N)
) -> Tensor:
    """Lower Cholesky factors, in the same way."""
    found = torch.empty_like(gram) if out is None else out
    for part in blocks(len(found), gram.shape[-1] ** 2, IN_CACHE):
        _factored(found[part].copy_(gram[part]))
    return found


def _factored(matrices: Tensor) -> None:
    """Put the factors in the place of matrices (M, N, N)."""
    info = torch.empty(len(matrices), dtype=torch.int32, device=matrices.device)
    torch.linalg.cholesky_ex(matrices.mT, upper=True, out=(matrices.mT, info))
    if bool((info > 0).any()):
        matrices[info > 0] = math.nan


def grown_triangle(
    triangle: Tensor,  # (..., N, N), lower
    below: Tensor,  # (..., B, N)
    corner: Tensor,  # (..., B, B), lower
) -> Tensor:
    """A lower triangle (..., N + B, N + B) with more rows."""
    n, size = triangle.shape[-1], triangle.shape[-1] + corner.shape[-1]
    found = triangle.new_zeros(*triangle.shape[:-2], size, size)
    found[..., :n, :n], found[..., n:, :n], found[..., n:, n:] = triangle, below, corner
    return found


def append_to_factor(
    factor: Tensor,  # (..., N, N), lower Cholesky factor of a matrix A
    cross: Tensor,  # (..., N, M)
    corner: Tensor,  # (..., M, M)
) -> Tensor:
    """The factor of ``[[A, cross], [cross', corner]]``, (..., N + M, N + M), in O(N^2 M).

    Golub & Van Loan 2013, section 6.5.
    """
    own = torch.linalg.solve_triangular(factor, cross, upper=False)  # L^-1 cross
    return grown_triangle(factor, own.mT, torch.linalg.cholesky(corner - own.mT @ own))


def trace_of_inverse(factor: Tensor) -> Tensor:
    """``tr((L L')^-1)`` (...) from Cholesky factors (..., N, N): the sum of the squares of ``L^-1``."""
    eye = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    return torch.linalg.solve_triangular(factor, eye.expand_as(factor), upper=False).square().sum((-2, -1))


def symmetric_root(gram: Tensor) -> Tensor:
    """A float64 factor F (..., N, N) with ``F F' = gram``, also when the matrix is singular; no jitter.

    Eigenvalues that are negative by no more than the rounding of the matrix's own dtype count as zero.
    """
    wide = gram.to(torch.float64)
    values, vectors = torch.linalg.eigh(0.5 * (wide + wide.mT))
    tolerance = torch.finfo(gram.dtype).eps ** 0.5 * values[..., -1:].abs() + torch.finfo(gram.dtype).tiny
    if bool((values < -tolerance).any()):
        raise ValueError(
            "the kernel matrix is not positive semi-definite: its smallest eigenvalue is "
            f"{float(values.min()):.3g}. Check a custom kernel for asymmetry or negative eigenvalues."
        )
    return vectors * values.clamp_min(0).sqrt().unsqueeze(-2)

"""Many small Gaussian-process regressions at once: of each query on the K labelled rows that are nearest to it.

With ``A = K_NN + diag(noise)`` of a query's neighbours, ``w = A^-1 k`` and ``D = A^-1 T``, its latents have

    mean = w' T,   variance = k** - k' w,

and with adjoints g of the mean and e of what is explained, ``k' w``, the gradients in closed form are, for ``b = D g``,

    dk = b + 2 e w,   dA = -w (b + e w)'.

Targets that share a kernel share the factor. Nothing else is kept for the gradient than w and D, and no factor is
differentiated. If the neighbours of a row are all other rows, this is exact leave-one-out regression.

References: Rasmussen & Williams 2006, section 2.2; Vecchia 1988 and Datta et al. 2016, on nearest neighbours.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class LocalProblem(NamedTuple):
    """What B queries and their neighbours have to do with each other."""

    gram: Tensor  # (B, K, K), kernel matrices of the neighbours
    cross: Tensor  # (B, K), kernel between the query and its neighbours
    noise: Tensor  # (B, K), variances


class LocalRegression(NamedTuple):
    """Of B queries."""

    mean: Tensor  # (B, P)
    explained: Tensor  # (B,), of the prior variance
    weights: Tensor  # (B, K), by which the targets of the neighbours make the mean; without a gradient


def local_regression(
    problem: LocalProblem,
    targets: Tensor,  # (B, K, P), less their prior means
) -> LocalRegression:
    """Differentiable once, in all but the targets.

    Problems that have no Cholesky factor are solved in double precision with a little more noise.
    """
    return LocalRegression(*_LocalRegression.apply(*problem, targets))


def local_regression_without(
    problem: LocalProblem,
    targets: Tensor,  # (B, K, P), less their prior means
    query: Tensor,  # (M,) int64, of B
    neighbour: Tensor,  # (M,) int64, of K
    share: Tensor,  # (M,), of its weight that leaves
) -> tuple[Tensor, Tensor]:
    """Means (M, P) of queries without one neighbour each, and what is explained (M,); no other comes in its place.

    A neighbour that keeps a part of its weight has more noise, which changes one number of a matrix whose inverse is
    known (Sherman & Morrison).
    """
    gram, cross, noise = problem
    inverse = torch.linalg.inv(gram + torch.diag_embed(noise))
    weights, dual = (inverse @ cross.unsqueeze(-1)).squeeze(-1), inverse @ targets
    weight, own = weights[query, neighbour], inverse[query, neighbour, neighbour]
    fall = weight / (own + (1 - share) / (share * noise[query, neighbour]))
    mean = (weights.unsqueeze(-2) @ targets).squeeze(-2)[query] - fall.unsqueeze(-1) * dual[query, neighbour]
    return mean, (cross * weights).sum(-1)[query] - fall * weight


class _LocalRegression(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gram: Tensor, cross: Tensor, noise: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        sides = torch.cat([cross.unsqueeze(-1), targets], -1)
        weights, dual = _solved(gram, noise, sides).tensor_split([1], dim=-1)
        weights = weights.squeeze(-1)
        ctx.save_for_backward(weights, dual)
        ctx.mark_non_differentiable(weights)
        return (weights.unsqueeze(-2) @ targets).squeeze(-2), (cross * weights).sum(-1), weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_mean: Tensor, of_explained: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        weights, dual = ctx.saved_tensors
        along = (dual @ of_mean.unsqueeze(-1)).squeeze(-1)
        own = of_explained.unsqueeze(-1) * weights
        of_gram = -weights.unsqueeze(-1) * (along + own).unsqueeze(-2)
        return of_gram, along + 2 * own, -weights * (along + own), None


def _solved(gram: Tensor, noise: Tensor, sides: Tensor) -> Tensor:
    """``A^-1 s`` (B, K, S); where rounding leaves no Cholesky factor, with as much more noise as is needed."""
    factor, failed = torch.linalg.cholesky_ex(gram + torch.diag_embed(noise))
    found = torch.cholesky_solve(sides, factor)
    again, more = failed > 0, gram.shape[-1] * torch.finfo(gram.dtype).eps
    while more < 1 and bool(again.any()):
        wide, few = (part[again].double() for part in (gram, noise))
        factor, failed = torch.linalg.cholesky_ex(wide + torch.diag_embed(few + more))
        found[again] = torch.cholesky_solve(sides[again].double(), factor).to(found)
        again[again.clone()] = failed > 0
        more *= 10
    return found

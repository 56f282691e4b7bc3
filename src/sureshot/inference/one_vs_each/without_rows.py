"""One-vs-each posteriors at queries without each of the labelled rows, from the states that chains ended with.

Given the Polya-Gamma variables the posterior is Gaussian, so a row leaves in closed form; it is in C - 1 differences,
which leave together. With ``B = I + W^1/2 S W^1/2`` of all differences, ``z = B^-1 W^1/2 U`` for the covariances U of a
query's latents with them, ``u`` such that the means are ``U' W^1/2 u``, and the row's block ``G = (B^-1)_rr``:

    mean - z_r' G^-1 u_r,   covariance + z_r' G^-1 z_r.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sureshot.inference.one_vs_each.gibbs import OneVsEachGibbsResult, query_moments


@torch.no_grad()
def moments_without(
    result: OneVsEachGibbsResult,  # of one task
    cross: Tensor,  # (N, Q), kernel values of the rows with queries
    diagonal: Tensor,  # (Q,), of queries with themselves
    place: Tensor,  # (E,) int64, rows that leave, each alone
    share: Tensor,  # (E,), of its precisions
) -> tuple[Tensor, Tensor]:
    """Each chain's Gaussian at queries without each of some rows: (S, C, Q, E) and (S, Q, E, C, C)."""
    parts = [_of_chain(result, omega, cross, diagonal, place, share) for omega in result.last.split(1, dim=1)]
    means, covariances = (torch.stack(part) for part in zip(*parts, strict=True))
    return means, covariances


def _of_chain(
    result: OneVsEachGibbsResult, omega: Tensor, cross: Tensor, diagonal: Tensor, place: Tensor, share: Tensor
) -> tuple[Tensor, Tensor]:
    prior = result.prior
    pairs, (n, n_queries) = prior.pairs, cross.shape
    n_classes = pairs.point.shape[1]
    identity = torch.eye(n_classes, dtype=omega.dtype, device=omega.device)
    own = pairs.own.new_zeros(n).scatter(0, pairs.point.flatten(), pairs.own.flatten())
    sign = identity[own].unsqueeze(1) - identity  # (N, C, C), of the latents in the differences from each class

    factor = prior.condition(omega)
    mean, covariance = query_moments(prior, omega, cross[None], diagonal[None])
    of_rows = query_moments(prior, omega, prior.gram, prior.gram.diagonal(dim1=-2, dim2=-1))[1][0, 0]  # (N, C, C)
    root = pairs.to_classes(factor.root, n)[0, 0].mT  # (N, C), zero at the own class
    pull = pairs.to_classes(prior.weights(omega, factor), n)[0, 0].mT / torch.where(root > 0, root, 1)
    shared = root.unsqueeze(-1) * (sign @ of_rows @ sign.mT) * root.unsqueeze(-2)  # I - G
    left = torch.linalg.inv(identity - share[:, None, None] * shared[place])  # (E, C, C)

    columns = cross[pairs.point[0]].unsqueeze(-1) * sign[pairs.point[0], torch.arange(n_classes)[:, None]].unsqueeze(-2)
    scaled = factor.root * columns.flatten(2).movedim(-1, 0)  # (1, Q C, C, R)
    solved = pairs.to_classes(factor.solve(scaled), n)[0].unflatten(0, (n_queries, n_classes))
    out = solved[..., place].permute(0, 3, 2, 1)  # (Q, E, C, C), differences and latents
    weighted = share[:, None, None] * left
    change = torch.einsum("qepl,eps,es->lqe", out, weighted, pull[place])
    return mean[0, 0].unsqueeze(-1) - change, covariance[0, 0].unsqueeze(1) + out.mT @ weighted @ out

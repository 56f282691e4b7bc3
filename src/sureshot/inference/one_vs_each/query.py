"""Latents at queries given Polya-Gamma variables, differentiable in the kernel and the prior means.

Predictive-likelihood training conditions on a support set and scores queries, so the gradient runs through the
posterior's moments at fixed Polya-Gamma variables. With ``Gamma = A' G A`` (see `precision`), ``k`` the
cross kernel of a query and ``k**`` its prior variance,

``mean_c = a_c + k' alpha_c``,   ``covariance[c, d] = k** [c = d] - k' Gamma_cd k``,

and, because ``Gamma = L - L (I x K) Gamma`` for the precision L that the labels add,

``d Gamma = - Gamma (I x dK) Gamma``,   ``d alpha = - Gamma (I x dK) alpha - Gamma da``.

So the backward pass needs ``H = Gamma (I x k)`` and nothing else. It is computed again there, for a block of tasks
and chains at a time, instead of being kept: its size is that of the prediction times the support.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sureshot.computing.blocks import AT_ONCE
from sureshot.inference.one_vs_each.gibbs import query_moments
from sureshot.inference.one_vs_each.precision import PairPrecision, to_latent_rows
from sureshot.inference.one_vs_each.structure import PairPrior

_LARGEST_BLOCK = AT_ONCE // 2  # several arrays of this size are held at once


def differentiable_query(
    gram: Tensor,  # (T, N, N)
    class_mean: Tensor,  # (T, C)
    cross: Tensor,  # (T, N, Q), kernel between data and queries
    prior_variance: Tensor,  # (T, Q), the kernel's diagonal at the queries
    prior: PairPrior,  # prepared from the same kernel matrix and means
    omega: Tensor,  # (T, S, C, R), constants, as `OneVsEachGibbsResult.last` holds them
) -> tuple[Tensor, Tensor]:
    """Each chain's mean (T, S, C, Q) and covariance (T, S, Q, C, C) of the latents at queries.

    Differentiable once, in the first four arguments.
    """
    return _Query.apply(gram, class_mean, cross, prior_variance, prior, omega)


class _Query(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        gram: Tensor,
        class_mean: Tensor,
        cross: Tensor,
        prior_variance: Tensor,
        prior: PairPrior,
        omega: Tensor,
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(cross, omega)
        ctx.prior = prior
        return query_moments(prior, omega, cross, prior_variance)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_mean: Tensor, d_covariance: Tensor) -> tuple[Tensor | None, ...]:
        cross, omega = ctx.saved_tensors
        d_prior_variance = d_covariance.diagonal(dim1=-2, dim2=-1).sum((1, -1))
        return *_backward(ctx.prior.star(), omega, cross, d_mean, d_covariance), d_prior_variance, None, None


def _backward(
    prior: PairPrior, omega: Tensor, cross: Tensor, d_mean: Tensor, d_covariance: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients in the kernel matrix, the prior means and the cross kernel."""
    tasks, n_chains, n_classes, n_rows = omega.shape
    n, n_queries = cross.shape[-2:]
    pairs = prior.pairs
    d_gram, d_class_mean, d_cross = (torch.zeros_like(like) for like in (prior.gram, prior.class_mean, cross))
    identity = torch.eye(n_classes, dtype=omega.dtype, device=omega.device)
    other = torch.arange(n_classes, device=omega.device).view(-1, 1).expand(n_classes, n_rows)
    sign = (identity[pairs.own] - identity[other]).unsqueeze(-2)  # (T, C, R, 1, C)
    task = torch.arange(tasks, device=omega.device).view(-1, 1, 1)
    near = cross[task, pairs.point]  # (T, C, R, Q)
    chains = max(1, _LARGEST_BLOCK // (tasks * n_classes * n * max(n_queries, n) * n_classes))
    queries = max(1, _LARGEST_BLOCK // (tasks * n_classes * n * n_classes))
    for s in range(0, n_chains, chains):
        part = omega[:, s : s + chains]
        precision = PairPrecision.of_prior(prior, part)
        pull = 0.5 * pairs.count.unsqueeze(1) - part * prior.mean.unsqueeze(1)
        beta = pull - precision.apply(prior.apply(pull).unsqueeze(-1)).squeeze(-1)
        alpha = pairs.to_latents(beta, n)  # (T, S, C, N)
        m = d_mean[:, s : s + chains]
        along = m @ cross.mT.unsqueeze(1)  # (T, S, C, N)
        response = precision.apply((pairs.differences(along) * (pairs.count > 0).unsqueeze(1)).unsqueeze(-1))
        moved = pairs.to_latents(response.squeeze(-1), n)
        d_class_mean += m.sum((1, 3)) - moved.sum((1, 3))
        mixed = alpha.flatten(1, 2).mT @ moved.flatten(1, 2)
        d_gram -= 0.5 * (mixed + mixed.mT)
        d_cross += alpha.flatten(1, 2).mT @ m.flatten(1, 2)
        for q in range(0, n_queries, queries):
            columns = (near[..., q : q + queries].unsqueeze(-1) * sign).flatten(-2).unsqueeze(1)
            # The sign of H matters once.
            h = to_latent_rows(precision.apply(columns), pairs, n).unflatten(-1, (-1, n_classes))
            v = d_covariance[:, s : s + chains, q : q + queries]
            v = 0.5 * (v + v.mT)
            hv = torch.einsum("tnscqd,tsqde->tnscqe", h, v)
            d_gram += hv.flatten(2) @ h.flatten(2).mT
            d_cross[..., q : q + queries] += 2 * torch.einsum("tnscqc->tnq", hv)
    return d_gram, d_class_mean, d_cross

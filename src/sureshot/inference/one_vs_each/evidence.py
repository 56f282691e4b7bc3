"""The evidence of one-vs-each labels given Polya-Gamma variables, and its gradient without a graph.

With the latents integrated out, ``psi ~ N(abar, S)`` and ``t = count / 2 - W abar``,

``log p(Y | omega) = -M log 2 + sum(count abar - omega abar^2) / 2 + t'(S - S G S) t / 2 - log|B| / 2``.

The gradient in closed form needs nothing but what the value needs: with ``beta = t - G S t`` and
``A`` the map from latents to differences, ``alpha = A' beta``,

``dK = sum over classes of (alpha_c alpha_c' - [A' G A]_cc) / 2``,   ``da_c = sum over data of alpha_c``.

So value and gradient are computed together, a block of chains at a time, and all that waits for the backward pass is
one N x N matrix for each task. The sum over chains and classes of ``[A' Z Z' A]_cc`` is a single product of an
N x (S C N) matrix with itself. In float32 both are good to 1e-4 up to a kernel variance of 100.

References: Snell & Zemel 2021, equation 14 and appendix B; the gradient is that of a Gaussian evidence (Rasmussen &
Williams 2006, 5.4.1) carried from the differences back to K.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sureshot.computing.blocks import AT_ONCE
from sureshot.inference.one_vs_each.precision import PairPrecision, labels_of, to_latent_rows
from sureshot.inference.one_vs_each.structure import PairPrior

_LARGEST_BLOCK = AT_ONCE // 2  # several arrays of this size are held at once


def mean_collapsed_log_evidence(
    gram: Tensor,  # (T, N, N), shared by the classes; its gradient is symmetric
    class_mean: Tensor,  # (T, C)
    prior: PairPrior,  # prepared from the same kernel and means with the "star" factorisation
    omega: Tensor,  # (T, S, C, R), constants, as `OneVsEachGibbsResult.last` holds them
) -> Tensor:
    """Average over the chains of ``log p(Y | omega)``, (T,), in nats.

    With omega drawn from its posterior the gradient is an unbiased estimate of that of the log evidence (Fisher's
    identity). Differentiable once, in the first two arguments.
    """
    value: Tensor = _MeanEvidence.apply(gram, class_mean, prior, omega)
    return value


class _MeanEvidence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gram: Tensor, class_mean: Tensor, prior: PairPrior, omega: Tensor) -> Tensor:
        wanted = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        value, d_gram, d_mean = _value_and_gradient(prior, omega, wanted)
        ctx.save_for_backward(d_gram, d_mean)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor, None, None]:
        d_gram, d_mean = ctx.saved_tensors
        return upstream[:, None, None] * d_gram, upstream[:, None] * d_mean, None, None


def _value_and_gradient(prior: PairPrior, omega: Tensor, wanted: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Value (T,), and its derivatives in the kernel matrix (T, N, N) and the prior means (T, C), if wanted."""
    tasks, n_chains, n_classes, _ = omega.shape
    n = prior.gram.shape[-1]
    value = omega.new_zeros(tasks)
    d_gram = torch.zeros_like(prior.gram) if wanted else omega.new_zeros(0)
    d_mean = torch.zeros_like(prior.class_mean) if wanted else omega.new_zeros(0)
    blocks = omega.new_zeros(*prior.pairs.point.shape, omega.shape[-1])  # sum over chains of F
    per_chain = tasks * n_classes * n * n
    for part in omega.split(max(1, _LARGEST_BLOCK // per_chain), 1):
        precision = PairPrecision.of_prior(prior, part)
        pull = 0.5 * prior.pairs.count.unsqueeze(1) - part * prior.mean.unsqueeze(1)
        beta, quadratic = _solve(prior, precision, part, pull)
        value += 0.5 * (quadratic.sum((1, 2, 3)) - precision.log_det.sum(1))
        value -= 0.5 * (part * prior.mean.square().unsqueeze(1)).sum((1, 2, 3))
        if wanted:
            alpha = prior.pairs.to_latents(beta, n)
            d_mean += alpha.sum((1, 3))
            blocks += precision.blocks.sum(1)
            weights, rows = alpha.flatten(1, 2), to_latent_rows(precision.shared, prior.pairs, n).flatten(2)
            d_gram += weights.mT @ weights + rows @ rows.mT
    value = value / n_chains + (prior.pairs.count * (0.5 * prior.mean - math.log(2))).sum((1, 2))
    if wanted:
        d_gram = (0.5 / n_chains) * (d_gram - _within_classes(blocks, prior))
        d_mean /= n_chains
    return value, d_gram, d_mean


def _solve(prior: PairPrior, precision: PairPrecision, omega: Tensor, pull: Tensor) -> tuple[Tensor, Tensor]:
    """``beta = (I + W S)^-1 pull``, and the terms of ``pull' S beta``; each (T, S, C, R).

    ``pull - G S pull`` cancels digits, so what it leaves of the equation is solved once more, unless so much is left
    (float32, kernel variances of thousands) that this would not help. The quadratic form is then written as the
    maximum of a function of beta, in which an error of beta counts squared.
    """

    def approximate(values: Tensor) -> Tensor:
        return values - precision.apply(prior.apply(values).unsqueeze(-1)).squeeze(-1)

    beta = approximate(pull)
    left = pull - beta - omega * prior.apply(beta)
    size, limit = (part.square().sum((2, 3), keepdim=True) for part in (left, 0.1 * pull))
    beta = beta + torch.where(size < limit, approximate(left), 0)
    moved = prior.apply(beta)
    return beta, torch.where(size < limit, 2 * pull - beta - omega * moved, pull) * moved


def _within_classes(blocks: Tensor, prior: PairPrior) -> Tensor:
    """Sum over classes of ``[A' blockdiag(F) A]_cc``, (T, N, N), from blocks (T, C, R, R).

    A pair of data meets in class c either as two of other classes, or, both being of class c, in all other classes.
    """
    pairs, n = prior.pairs, prior.gram.shape[-1]
    position = pairs.point.unsqueeze(-1) * n + pairs.point.unsqueeze(-2)
    spread = blocks.new_zeros(len(blocks), n * n).scatter_add_(-1, position.flatten(1), blocks.flatten(1))
    labels = labels_of(pairs, n)
    same = labels.unsqueeze(-1) == labels.unsqueeze(-2)
    return spread.view(-1, n, n) * (1 + same.to(blocks.dtype))

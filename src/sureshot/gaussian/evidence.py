"""Log evidence of Gaussian sites with its gradient in closed form: what meta-learning spends its time on.

Of the log of the integral of ``N(f; a, K)`` times the sites ``exp(b f - w f^2 / 2)``, which `GramPrior.condition` gives
by automatic differentiation, the gradient is written down: with ``B = I + W^1/2 K W^1/2``, ``G = W^1/2 B^-1 W^1/2``
and ``alpha = K^-1 (m - a)``

    d log Z / dK = (alpha alpha' - G) / 2,   d/da = alpha,   d/dw = -(m^2 + diag Sigma) / 2,   d/db = m,

so that one factor and one inverse, without a graph, are all that a training step needs. Many matrices usually
share one kernel matrix (the classes of a task, the chains of a sampler): they are worked through in blocks that
stay in a core's cache, and the shared matrix meets all their vectors in one product.

At a fixed point of mean field, or under Fisher's identity, sites are constants, and the gradient in K and a is the
whole gradient of the objective.

References: Rasmussen & Williams 2006, sections 3.4 and 5.5.1.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sureshot.computing.blocks import IN_CACHE, blocks


def site_log_evidence(
    gram: Tensor,  # (..., N, N), positive semi-definite, may be singular
    mean: Tensor | float,  # a, broadcastable to (..., N)
    precision: Tensor,  # (..., N), w >= 0; with a shift of zero 0 means no observation, exactly
    shift: Tensor,  # (..., N), b
) -> Tensor:
    """``log of the integral of N(f; a, K) exp(b'f - f'W f / 2)`` for each vector of sites, (...), in nats.

    Differentiable once in all four arguments. Leading dimensions of size 1 are shared: gram (T, 1, N, N) and precision
    (chains, T, C, N) cost T matrices K and chains x T x C factors. Where ``I + W^1/2 K W^1/2`` has no Cholesky factor
    (NaN in the arguments, or a K with negative eigenvalues) it raises `torch.linalg.LinAlgError`.
    """
    n = precision.shape[-1]
    if gram.shape[-2:] != (n, n) or shift.shape[-1] != n:
        raise ValueError(
            f"gram must be (..., {n}, {n}) and shift (..., {n}) to match precision {tuple(precision.shape)}, got "
            f"{tuple(gram.shape)} and {tuple(shift.shape)}"
        )
    prior_mean = torch.as_tensor(mean, dtype=gram.dtype, device=gram.device)
    sizes = (gram.shape[:-2], precision.shape[:-1], shift.shape[:-1], prior_mean.shape[:-1])
    batch = np.broadcast_shapes(*sizes)
    a, w, b = (part.expand(*batch, n) for part in (prior_mean, precision, shift))
    value: Tensor = _SiteLogEvidence.apply(gram, a, w, b)
    return value


class _Layout(NamedTuple):
    """How batch dimensions are sorted: first those along which K varies, then those that share one K."""

    order: list[int]  # of the batch dimensions
    own: int  # how many matrices K
    shared: int  # how many vectors of sites for each
    batch: torch.Size

    def gather(self, vectors: Tensor) -> Tensor:
        """(..., N) as (own, shared, N)."""
        return vectors.permute(*self.order, len(self.order)).reshape(self.own, self.shared, vectors.shape[-1])

    def scatter(self, vectors: Tensor) -> Tensor:
        """(own, shared, N) as (..., N)."""
        sorted_sizes = [self.batch[i] for i in self.order]
        back = [self.order.index(i) for i in range(len(self.order))]
        return vectors.reshape(*sorted_sizes, vectors.shape[-1]).permute(*back, len(back))


def _layout(gram: Tensor, batch: torch.Size) -> _Layout:
    sizes = (1,) * (len(batch) - gram.dim() + 2) + tuple(gram.shape[:-2])
    own = [i for i, size in enumerate(sizes) if size > 1]
    shared = [i for i, size in enumerate(sizes) if size == 1]
    count = math.prod(batch[i] for i in own)
    return _Layout(own + shared, count, math.prod(batch[i] for i in shared), batch)


class _SiteLogEvidence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gram: Tensor, mean: Tensor, precision: Tensor, shift: Tensor) -> Tensor:
        layout = _layout(gram, precision.shape[:-1])
        n = precision.shape[-1]
        K = gram.reshape(layout.own, n, n)
        a, w, b = (layout.gather(part) for part in (mean, precision, shift))
        root = w.sqrt()
        centred = b - w * a
        target = (root * (centred @ K)).unsqueeze(-1)  # W^1/2 K r; K is symmetric
        solved = torch.empty_like(target)
        inverse = K.new_empty(layout.own, layout.shared, n, n)
        log_det = K.new_empty(layout.own, layout.shared)
        for block in _blocks(layout, n):
            factor = _factor(K, root[:, block])
            log_det[:, block] = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
            inverse[:, block] = torch.cholesky_inverse(factor)
            # Not by the inverse, whose product with a large vector K r would lose digits that the factor keeps.
            solved[:, block] = torch.cholesky_solve(target[:, block], factor)
        alpha = centred - root * solved.squeeze(-1)
        moved = alpha @ K  # m - a
        value = (a * b - 0.5 * a**2 * w + 0.5 * centred * moved).sum(-1) - 0.5 * log_det
        ctx.layout = layout
        ctx.save_for_backward(gram, root, a + moved, alpha, inverse)
        return layout.scatter(value.unsqueeze(-1)).squeeze(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        gram, root, moments, alpha, inverse = ctx.saved_tensors
        layout: _Layout = ctx.layout
        n = root.shape[-1]
        upstream = layout.gather(grad.unsqueeze(-1))  # (own, shared, 1)
        d_gram = d_mean = d_precision = d_shift = None
        if ctx.needs_input_grad[0]:
            d_gram = ((upstream * alpha).mT @ alpha).mul_(0.5)
            scaled = -0.5 * upstream * root
            for block in _blocks(layout, n):
                part = inverse[:, block] * scaled[:, block].unsqueeze(-1)
                d_gram += part.mul_(root[:, block].unsqueeze(-2)).sum(1)
            d_gram = d_gram.reshape(gram.shape)
        if ctx.needs_input_grad[1]:
            d_mean = layout.scatter(upstream * alpha)
        if ctx.needs_input_grad[2]:
            second = moments.square() + _variance(gram.reshape(layout.own, n, n), root, inverse)
            d_precision = layout.scatter(-0.5 * upstream * second)
        if ctx.needs_input_grad[3]:
            d_shift = layout.scatter(upstream * moments)
        return d_gram, d_mean, d_precision, d_shift


def _blocks(layout: _Layout, n: int) -> list[slice]:
    return blocks(layout.shared, layout.own * n * n, IN_CACHE)


def _factor(K: Tensor, root: Tensor) -> Tensor:
    """Lower Cholesky factor of ``I + W^1/2 K W^1/2``, (own, shared, N, N)."""
    matrix = K.unsqueeze(1) * root.unsqueeze(-1)
    matrix.mul_(root.unsqueeze(-2)).diagonal(dim1=-2, dim2=-1).add_(1)
    return torch.linalg.cholesky(matrix)


def _variance(K: Tensor, root: Tensor, inverse: Tensor) -> Tensor:
    """``diag Sigma``, (own, shared, N): the form of the two that loses fewer digits at each datum."""
    scaled = inverse * root.unsqueeze(-1) * root.unsqueeze(-2)  # G, symmetric
    product = (scaled.flatten(1, 2) @ K).unflatten(1, scaled.shape[1:3])
    prior = K.diagonal(dim1=-2, dim2=-1).unsqueeze(1)
    by_kernel = prior - (product * K.unsqueeze(1)).sum(-2)  # K - K G K
    w = root.square()
    informative = w * prior > 1
    by_sites = (1 - inverse.diagonal(dim1=-2, dim2=-1)) / w.where(informative, torch.ones_like(w))
    return by_sites.where(informative, by_kernel).clamp_min(0)

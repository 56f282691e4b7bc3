"""Numbers without some of their rows, in closed form, from what particles keep.

With the targets' covariance ``S = L L'`` and ``a = S^-1 t``, rows G have, given all others,

    mean = t_G - (S^-1_GG)^-1 a_G,   covariance = (S^-1_GG)^-1,

and a query whose covariances with the rows are k has ``k' S^-1``'s columns of G times ``(S^-1_GG)^-1 a_G`` less of a
mean than given all. Particles that have never seen rows have other weights: theirs divided by the density of these.

Reference: Rasmussen & Williams 2006, section 5.4.2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple, cast

import torch
from torch import Tensor

from sureshot.gaussian.algebra import times_vector
from sureshot.kernels.shared_rows import SharedRows
from sureshot.structure.numbers import Numbers
from sureshot.structure.smc import SmcState

Sets = Iterable[tuple[Tensor, Tensor]]
"""Of sets of rows those that are of one size, by their numbers (S,), and their rows (S, R), some at a time."""


class NumbersLeftOut(NamedTuple):
    """Of E sets of rows, the first row of each given all rows but the set."""

    mean: Tensor  # (M, E)
    variance: Tensor  # (M, E), noise included
    weights: Tensor  # (M, E), of the particles


def left_out(state: SmcState, sets: Sets, n_sets: int) -> NumbersLeftOut:
    """See above; what overflows is N(0, 1), which says nothing."""
    mean, variance = (state.x.new_zeros(len(state.particles), n_sets) for _ in range(2))
    log_weights = state.log_weights.unsqueeze(-1).repeat(1, n_sets)
    for k in range(len(mean)):  # large: one at a time
        one = cast(Numbers, state.latent).chosen(slice(k, k + 1))
        half, pull = _inverse(one)
        for those, rows in sets:
            block, change = _of_sets(half, pull, rows)
            mean[k, those] = one.target[0, rows[:, 0]] - change[:, 0]
            variance[k, those] = block[:, 0, 0]
            quadratic = (pull[rows] * change).sum(-1)
            log_weights[k, those] += 0.5 * (block.logdet() + quadratic + rows.shape[1] * math.log(2 * math.pi))
    known = mean.isfinite() & (variance > 0)
    weights = torch.where(known & log_weights.isfinite(), log_weights, -math.inf).softmax(0)
    return NumbersLeftOut(torch.where(known, mean, 0.0), torch.where(known, variance, 1.0), weights)


def pulls(
    state: SmcState,
    x: Tensor,  # (Q, D)
    sets: Sets,
    n_sets: int,
) -> Tensor:
    """What the particles' mean falls by without each set (Q, E), their kernels and weights kept."""
    found = x.new_zeros(len(x), n_sets)
    for k, weight in enumerate(state.log_weights.exp().tolist()):
        half, pull = _inverse(cast(Numbers, state.latent).chosen(slice(k, k + 1)))
        cross = state.particles.chosen([k]).grams(state.prior, SharedRows(state.x, x))[0]
        solved = half.mT @ (half @ cross)  # (N, Q)
        for those, rows in sets:
            found[:, those] += weight * torch.einsum("srq,sr->qs", solved[rows], _of_sets(half, pull, rows)[1])
    return found


def _inverse(one: Numbers) -> tuple[Tensor, Tensor]:
    """``L^-1`` (N, N) and ``S^-1 t`` (N,) of a single particle."""
    factor = one.factor[0]
    half = torch.linalg.solve_triangular(factor, torch.eye(len(factor), dtype=factor.dtype), upper=False)
    return half, times_vector(half.mT, one.whitened[0])


def _of_sets(half: Tensor, pull: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """``(S^-1_GG)^-1`` (S, R, R), and this times ``a_G`` (S, R)."""
    grouped = half[:, rows]  # (N, S, R)
    block = torch.linalg.inv(torch.einsum("nsr,nst->srt", grouped, grouped))
    return block, times_vector(block, pull[rows])

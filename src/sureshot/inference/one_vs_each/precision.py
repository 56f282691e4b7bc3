"""What the labels say about the differences of latents, as explicit matrices: the gradient's raw material.

Given Polya-Gamma variables the one-vs-each labels enter everything through one positive semi-definite matrix,

``G = W^1/2 B^-1 W^1/2 = (W^-1 + S)^-1``  (see `structure` for W, B and S):

it weighs residuals into posterior means and into the evidence, gives posterior covariances, and *is* the derivative
of ``log|B|``. With the star structure ``S = V V' + blockdiag(Q_c)``

``G = blockdiag(F_c) - Z Z'``,   ``F_c = W_c^1/2 (I + W_c^1/2 Q_c W_c^1/2)^-1 W_c^1/2``,   ``Z = F V C^-T``,

C C' the Cholesky factorisation of ``I + V'F V`` (N x N). Every part is bounded by W, whatever the kernel, so
a nearly singular kernel matrix does no harm in float32: the inverse of K's own blocks is hidden in V and Q, which
`PairPrior` prepares in float64.

References: Snell & Zemel 2021, Bayesian few-shot classification with one-vs-each Polya-Gamma augmented Gaussian
processes, appendix B (the star); the Woodbury identity.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.inference.one_vs_each.structure import PairPrior, Pairs, StarFactor


@dataclass(frozen=True)
class PairPrecision:
    """``G = blockdiag(blocks) - shared shared'`` for T tasks and S chains."""

    blocks: Tensor  # (T, S, C, R, R), F
    shared: Tensor  # (T, S, C, R, N), Z
    log_det: Tensor  # (T, S), ``log |B|``

    @classmethod
    def of_prior(cls, prior: PairPrior, omega: Tensor) -> PairPrecision:
        """From a prior with the star factorisation and precisions omega (T, S, C, R)."""
        factor = prior.condition(omega)
        if not isinstance(factor, StarFactor):
            raise ValueError("the prior must be prepared with the 'star' factorisation, got the dense one")
        inverse = factor.inverse * factor.root.unsqueeze(-2)
        shared = (factor.loading @ factor.centre.mT).view(*omega.shape, -1)
        return cls(inverse.mT @ inverse, inverse.mT @ shared, factor.log_det())

    def apply(self, columns: Tensor) -> Tensor:
        """``G U`` for columns U (T, S or 1, C, R, D), giving (T, S, C, R, D)."""
        own = self.blocks @ columns
        flat = self.shared.flatten(2, 3)
        return own - (flat @ (flat.mT @ columns.flatten(2, 3))).view_as(own)


def to_latent_rows(values: Tensor, pairs: Pairs, n: int) -> Tensor:
    """``-A' values`` for whole rows (T, S, C, R, D), ordered by datum: (T, N, S, C, D).

    Rows of weight zero must hold 0. The order suits a product over everything but the data.
    """
    tasks, chains, n_classes, n_rows, width = values.shape
    device = values.device
    position = torch.zeros(tasks, n_classes, n, dtype=torch.int64, device=device)
    position.scatter_(-1, pairs.point, torch.arange(n_rows, device=device).expand_as(pairs.point))
    first = torch.arange(tasks * chains * n_classes, device=device).view(tasks, 1, chains, n_classes) * n_rows
    index = first + position.mT.unsqueeze(2)  # (T, N, S, C)
    gathered = values.reshape(-1, width).index_select(0, index.flatten()).view(tasks, n, chains, n_classes, width)
    task = torch.arange(tasks, device=device).view(-1, 1, 1)
    datum = torch.arange(n, device=device).view(-1, 1)
    chain = torch.arange(chains, device=device)
    own = labels_of(pairs, n).unsqueeze(-1)  # a datum is not compared with its own class: what was gathered goes
    gathered[task, datum, chain, own] = 0
    total = gathered.sum(3)
    gathered[task, datum, chain, own] = -total
    return gathered


def labels_of(pairs: Pairs, n: int) -> Tensor:
    """The labels (T, N) that the pairs were laid out for."""
    labels = torch.empty(len(pairs.point), n, dtype=torch.int64, device=pairs.point.device)
    return labels.scatter_(-1, pairs.point.flatten(1), pairs.own.flatten(1))

"""The softmax mode without each of the labelled rows, by one step of Newton's method with the full curvature.

A row of weight s and probabilities p adds ``W = s (diag(p) - p p') / T^2`` to the curvature and ``e = s (y - p) / T``
to the gradient. Where ``V`` (C, C) is the inverse curvature at the row, of all rows, and ``V_q`` that between a query
and the row, the query's latents move by ``- V_q (I - W V)^-1 e`` if the row leaves.

With ``D_c = s p_c / T^2`` the inverse curvature is ``(I + Phi' D_c Phi)^-1 = A_c^-1`` of each class, and what their
coupling adds: with ``a_c = Phi A_c^-1 Phi' D_c`` and ``M = sum_c D_c - D_c a_c``, between classes c and d ``a_c M^-1
a_d'`` (Rasmussen & Williams 2006, algorithm 3.4). The coupling doubles the curvature of two classes; of many it is
little.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.gaussian.recomputed import SoftmaxWeightPosterior, weight_precision_factor
from sureshot.likelihoods.auxiliary import one_hot


def entries_of_step(n_rows: int, rank: int, n_classes: int) -> int:
    """Entries of the largest array that a `SoftmaxStep` holds."""
    return n_classes * n_rows * max(n_rows, rank)


@dataclass(frozen=True)
class SoftmaxStep:
    """What all queries need."""

    features: Tensor  # (N, R)
    pull: Tensor  # (C, N), e
    probability: Tensor  # (C, N), p
    scale: Tensor  # (N,), s / T^2
    inverses: Tensor  # (C, R, R), A_c^-1
    weighted: Tensor  # (C, R, N), A_c^-1 Phi' D_c
    root: Tensor  # (N, N), lower Cholesky factor of M
    own: Tensor  # (C, N, N), with L its rows ``L^-1 a_c'``
    variance: Tensor  # (N, C, C), V

    @classmethod
    def of(cls, posterior: SoftmaxWeightPosterior, y: Tensor) -> SoftmaxStep | None:
        """At the mode; None where scales are so large that rounding leaves no coupling that is one."""
        features, temperature, weight = posterior.features, posterior.temperature, posterior.row_weight
        p = torch.softmax(posterior.training_mean[0] / temperature, 0)
        pull, scale = weight * (one_hot(y, len(p), p.dtype) - p) / temperature, weight / temperature**2
        precision = scale * p
        inverses = torch.stack([torch.cholesky_inverse(weight_precision_factor(features, own)) for own in precision])
        weighted = inverses @ features.mT * precision.unsqueeze(1)
        between = features @ weighted  # (C, N, N), a_c
        total = torch.diag(scale) - (precision.unsqueeze(-1) * between).sum(0)
        root, failed = torch.linalg.cholesky_ex((total + total.mT) / 2)
        if bool(failed):
            return None
        own = torch.linalg.solve_triangular(root, between.mT, upper=False)
        variance = torch.einsum("cnk,dnk->kcd", own, own)
        variance = variance + torch.diag_embed(((features @ inverses) * features).sum(-1).mT)
        return cls(features, pull, p, scale, inverses, weighted, root, own, variance)

    def moves(self, queries: Tensor, place: Tensor, share: Tensor) -> Tensor:
        """By how much the latents of queries (Q, R) move without each of some rows (E,), of which a share leaves."""
        p, scale = self.probability[:, place].mT, (share * self.scale[place])[:, None, None]  # (E, C)
        curvature = scale * (torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2))
        kept = torch.eye(p.shape[1], dtype=p.dtype, device=p.device) - curvature @ self.variance[place]
        pull = torch.linalg.solve(kept, (share * self.pull[:, place]).mT).mT  # (C, E)
        alone = queries @ self.inverses @ self.features[place].mT * pull.unsqueeze(1)
        coupled = torch.linalg.solve_triangular(self.root, (queries @ self.weighted).mT, upper=False)  # (C, N, Q)
        return -alone - coupled.mT @ (self.own[:, :, place] * pull.unsqueeze(1)).sum(0)

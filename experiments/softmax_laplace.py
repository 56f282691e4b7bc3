"""Laplace's method for the softmax with its full curvature over the classes, batched, for small problems.

`GPClassifier` keeps the diagonal of the curvature only (`sureshot.inference.laplace`).

Reference: Rasmussen & Williams 2006, section 3.5, algorithms 3.3 and 3.4.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.gaussian.algebra import weighted_factor
from sureshot.gaussian.posterior import LatentMoments, Posterior
from sureshot.likelihoods.auxiliary import one_hot


@dataclass(frozen=True)
class ExactSoftmaxLaplace(Posterior):
    """The Laplace posterior of all classes together, under a prior mean of zero."""

    mean: Tensor  # (..., C, N), the mode
    log_evidence: Tensor  # (...)
    residual: Tensor  # (..., C, N), ``y - p`` at the mode, which is ``K^-1 (f - a)``
    blocks: Tensor  # (..., C, N, N), ``E_c = p_c^1/2 B_c^-1 p_c^1/2``
    total_factor: Tensor  # (..., N, N), Cholesky factor of ``sum_c E_c``

    def query(self, cross: Tensor, prior_variance: Tensor) -> LatentMoments:
        """See `Posterior.query`; one kernel for all classes, (..., 1, N, Q) and (..., 1, Q)."""
        projected = self.blocks @ cross  # (..., C, N, Q), E_c k*
        diagonal = prior_variance - (cross * projected).sum(-2)  # (..., C, Q)
        by_query = projected.movedim(-1, -3).mT  # (..., Q, N, C)
        whitened = torch.linalg.solve_triangular(self.total_factor.unsqueeze(-3), by_query, upper=False)
        return LatentMoments(self.query_mean(cross), torch.diag_embed(diagonal.mT) + whitened.mT @ whitened)

    def query_mean(self, cross: Tensor) -> Tensor:
        return self.residual @ cross.squeeze(-3)


def softmax_laplace_exact(
    gram: Tensor,  # (..., N, N), shared by the classes
    y: Tensor,  # (..., N)
    n_classes: int,
    max_steps: int = 100,
    tolerance: float = 1e-9,  # change of the latents at which to stop
) -> ExactSoftmaxLaplace:
    """Laplace's method for the softmax likelihood with its full curvature, batched.

    Damped Newton: the step is halved for the members of the batch whose log joint would fall.
    """
    labels = one_hot(y, n_classes, gram.dtype)  # (..., C, N)
    shared = gram.unsqueeze(-3)

    def multiply(vectors: Tensor) -> Tensor:
        return vectors @ gram  # gram is symmetric

    def log_joint(alpha: Tensor) -> Tensor:
        latent = multiply(alpha)
        log_p = torch.log_softmax(latent, dim=-2)
        return (labels * log_p).sum((-2, -1)) - 0.5 * (alpha * latent).sum((-2, -1))

    def curvature(alpha: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        p = torch.softmax(multiply(alpha), dim=-2)
        root = p.sqrt()
        factor = weighted_factor(shared, root)
        half = torch.linalg.solve_triangular(factor, torch.diag_embed(root), upper=False)
        blocks = half.mT @ half
        total = torch.linalg.cholesky(blocks.sum(-3))
        log_dets = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum((-2, -1))
        return p, blocks, total, log_dets

    alpha = torch.zeros_like(labels)
    value = log_joint(alpha)
    for _ in range(max_steps):
        p, blocks, total, _ = curvature(alpha)
        g = multiply(alpha)
        b = p * g - p * (p * g).sum(-2, keepdim=True) + labels - p
        c = (blocks @ multiply(b).unsqueeze(-1)).squeeze(-1)
        common = torch.cholesky_solve(c.sum(-2).unsqueeze(-1), total)
        target = b - c + (blocks @ common.unsqueeze(-3)).squeeze(-1)
        step = torch.ones_like(value)
        for _ in range(30):
            candidate = alpha + step[..., None, None] * (target - alpha)
            new_value = log_joint(candidate)
            worse = new_value < value - 1e-12 * value.abs()
            if not bool(worse.any()):
                break
            step = torch.where(worse, step / 2, step)
        change = multiply(candidate - alpha).abs().max()
        alpha, value = candidate, new_value
        if change < tolerance:
            break
    p, blocks, total, log_dets = curvature(alpha)
    # The determinant of the full system is prod_c |B_c| times |sum_c E_c| (sum_c p_c = 1).
    log_total = 2 * total.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    evidence = value - 0.5 * (log_dets + log_total)
    return ExactSoftmaxLaplace(
        mean=multiply(alpha),
        log_evidence=evidence,
        residual=labels - p,
        blocks=blocks,
        total_factor=total,
    )

"""Mean field of one-vs-each with its classes coupled, by the reduction of `pairwise` to a binary logistic model.

Reference: Snell & Zemel 2021, appendix B.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.pairwise import pairs_to_classes, pairwise_differences, pairwise_gram
from sureshot.gaussian.gram import GramPrior
from sureshot.gaussian.posterior import LatentMoments, Posterior
from sureshot.inference.mean_field import fit_mean_field
from sureshot.likelihoods.logistic import Logistic


@dataclass(frozen=True)
class JointPosterior(Posterior):
    """One-vs-each posterior with the covariance between classes, under a prior mean of zero."""

    mean: Tensor  # (..., C, N), at the training inputs
    alpha: Tensor  # (..., C, N), ``K^-1 m_c``
    bound: Tensor  # (...), evidence bound in nats
    converged: Tensor  # (...) bool
    half: Tensor  # (..., M, C, N), ``L_B^-1 W^1/2 A``, which removes from the prior what the data explain

    def query(self, cross: Tensor, prior_variance: Tensor) -> LatentMoments:
        """See `Posterior.query`; one kernel for all classes, (..., 1, N, Q) and (..., 1, Q)."""
        n_classes = self.alpha.shape[-2]
        explained = (self.half @ cross).movedim(-1, -3)  # (..., Q, M, C)
        eye = torch.eye(n_classes, dtype=cross.dtype, device=cross.device)
        prior = prior_variance.squeeze(-2)[..., None, None] * eye
        return LatentMoments(self.query_mean(cross), prior - explained.mT @ explained)

    def query_mean(self, cross: Tensor) -> Tensor:
        """See `Posterior.query_mean`."""
        return self.alpha @ cross.squeeze(-3)


def fit_joint_one_vs_each(
    Kxx: Tensor,  # (..., N, N), kernel matrix shared by the classes
    y: Tensor,  # (..., N) int64
    n_classes: int,
    max_steps: int = 200,  # this and the following as in `fit_mean_field`
    tolerance: float = 1e-5,
) -> JointPosterior:
    """Mean field for one-vs-each that keeps the covariance between the classes.

    A binary logistic fit to the ``M = N (C - 1)`` differences of latents (see `pairwise`), so it costs
    ``O(M^3)`` time and ``O(M^2)`` memory; its bound is at least the factorised one.
    """
    prior = GramPrior(pairwise_gram(Kxx, y, n_classes).unsqueeze(-3), Kxx.new_zeros(()))
    won = torch.ones_like(y).repeat_interleave(n_classes - 1, -1)  # the label wins every pair
    fit = fit_mean_field(prior, Logistic(), won, None, 2, max_steps, tolerance)
    posterior = prior.condition(fit.sites)
    alpha = pairs_to_classes(posterior.alpha.squeeze(-2), y, n_classes)  # (..., C, N)
    whitened = posterior.whitened(torch.eye(won.shape[-1]).to(Kxx)).squeeze(-3)
    half = whitened.unflatten(-1, (y.shape[-1], n_classes - 1))  # (..., M, N, C - 1)
    coefficients = pairwise_differences(y, n_classes, Kxx.dtype)  # (..., N, C - 1, C)
    return JointPosterior(
        mean=alpha @ Kxx,
        alpha=alpha,
        bound=fit.bound,
        converged=fit.converged,
        half=torch.einsum("...mnd,...ndc->...mcn", half, coefficients),
    )

"""The evidence bound of mean field, and what not to learn from it.

**The output-scale trap.** Mean field treats latents and Polya-Gamma variables as independent, and the price of that
grows with the output scale of the kernel: the gradient of the bound points to *smaller* scales where the evidence grows
with the scale. One Gibbs step from a *prior* draw is biased in the same way. Use the bound to predict and to compare
lengthscales at a fixed scale; learn the scale by Fisher's identity (20 or so sweeps from a posterior start), by
Laplace, or by leave-one-out.

Reference: Snell & Zemel 2021 (one-vs-each by Polya-Gamma).
"""

from __future__ import annotations

from torch import Tensor

from sureshot.gaussian.posterior import SitePosterior
from sureshot.gaussian.prior import Prior
from sureshot.likelihoods.sites import MeanFieldLikelihood


def evidence_bound(
    posterior: SitePosterior,  # over latents (..., C, N)
    likelihood: MeanFieldLikelihood,
    y: Tensor,  # (..., N) int64
    weight: Tensor | None = None,  # (..., N), a datum of weight 2 counts twice
) -> Tensor:
    """Lower bound on ``log p(y)`` by a Gaussian posterior, shape (...), in nats.

    The auxiliary variables are at their optimum for this posterior, so it is the tightest bound of its
    family. Do not learn the output scale of a kernel from it (see the module's notes).
    """
    return likelihood.local_bound(posterior.mean, posterior.variance, y, weight) - posterior.kl()


def check_rows(prior: Prior, y: Tensor) -> None:
    """Refuse targets (..., N) of another number than the rows that the prior is over (`ValueError`)."""
    if prior.variance.shape[-1] != y.shape[-1]:
        raise ValueError(f"y must hold one target for each of the {prior.variance.shape[-1]} rows, got {y.shape[-1]}")

"""What to maximise when the kernel is learnt, in one place, and which of it can be trusted.

Every objective is a function of a prior and of Gaussian sites, differentiable in the kernel matrix (or
features) and the prior mean that the prior holds.

**The output-scale trap.** Mean field treats latents and Polya-Gamma variables as independent, and the price
of that grows with the output scale of the kernel: at moderate scales the gradient of the bound points to
*smaller* scales where the evidence grows with the scale. One Gibbs step from a *prior* draw (the published
default of one-vs-each training) is biased in the same way. On one binary problem of this library's tests the
log evidence is -5.31, -3.84, -3.32 at scales 1, 16, 256 and the bound -5.40, -4.67, -5.22. So use the bound
to predict and to compare lengthscales at a fixed scale; learn the scale by Fisher's identity (20 or so
sweeps from a posterior start), by Laplace, or by leave-one-out.

References: Snell & Zemel 2021 (one-vs-each by Polya-Gamma); Ke et al. 2023 (predictive likelihood);
Rasmussen & Williams 2006, 5.4.2 (leave-one-out).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sureshot.gaussian.posterior import SitePosterior
from sureshot.gaussian.prior import Prior
from sureshot.gaussian.sites import Sites
from sureshot.likelihoods.base import Likelihood, PredictiveRule
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


def leave_one_out_log_likelihood(
    posterior: SitePosterior, likelihood: Likelihood, y: Tensor, weight: Tensor | None = None
) -> Tensor:
    """Sum over data of ``log p(y_n | the others)`` from mean-field or Laplace sites, shape (...), in nats.

    Approximate: the sites of the other data have seen y_n, so it is optimistic (by 0.2 nats on a toy problem
    of a few data), but it ranks scales and kernels correctly. A datum of weight 2 is left out as a whole and
    its term counts twice.
    """
    mean, variance = posterior.leave_one_out()
    scores = _log_probability(likelihood.integral(mean, variance), y)
    return (scores if weight is None else weight * scores).sum(-1)


def gibbs_leave_one_out(
    prior: Prior,
    sites: Sites,  # posterior draws, (draws, ..., C, N)
    likelihood: Likelihood,
    y: Tensor,  # (..., N) int64
) -> Tensor:
    """Exact ``log p(y_n | the others)`` from posterior draws of the auxiliary variables, (..., N).

    Averaging ``p(y_n | cavity)`` over posterior draws would be wrong, since the draws have seen y_n. Exact is
    ``1 / p(y_n | y_-n) = E[1 / p(y_n | y_-n, omega_-n)]`` over draws of omega given all labels. It needs a
    normalised likelihood whose sites are diagonal (logistic, logistic-softmax, Gaussian labels).
    """
    mean, variance = prior.condition(sites).leave_one_out()
    scores = _log_probability(likelihood.integral(mean, variance), y)
    return math.log(scores.shape[0]) - torch.logsumexp(-scores, 0)


def predictive_log_likelihood(
    posterior: SitePosterior,  # given the support
    likelihood: Likelihood,
    cross: Tensor,  # this and the next as for `Posterior.query`
    prior_variance: Tensor,
    y: Tensor,  # (..., Q) int64, of the queries
    rule: PredictiveRule = "integral",
) -> Tensor:
    """Sum over queries of ``log p(y* | x*, support)``, shape (...), in nats: what meta-learning wants."""
    mean, variance = posterior.query(cross, prior_variance)
    return _log_probability(likelihood.predict(mean, variance, rule), y).sum(-1)


def fisher_surrogate(
    prior: Prior,  # its kernel matrix, features or mean carry the gradient
    sites: Sites,  # posterior draws, (draws, ..., C, N)
) -> Tensor:
    """A value whose *gradient* is a Monte-Carlo estimate of the gradient of ``log p(y)``, shape (...).

    Fisher's identity: ``grad log p(y) = E[grad log p(y | omega)]`` with omega drawn from its posterior given
    y. The sites are constants here; the value itself is not an estimate of the evidence. It is unbiased only
    for draws from the *posterior*: a draw that starts from a prior sample and takes one step learns the
    output scale in the wrong direction. Subtract a second surrogate, with draws given the support alone,
    from one with draws given support and query to get an unbiased gradient of the predictive likelihood.
    """
    constant = Sites(sites.precision.detach(), sites.shift.detach())
    return prior.condition(constant).log_evidence().mean(0)


def check_rows(prior: Prior, y: Tensor) -> None:
    """Refuse targets (..., N) of another number than the rows that the prior is over (`ValueError`)."""
    if prior.variance.shape[-1] != y.shape[-1]:
        raise ValueError(f"y must hold one target for each of the {prior.variance.shape[-1]} rows, got {y.shape[-1]}")


def _log_probability(probabilities: Tensor, y: Tensor) -> Tensor:
    """Log of the probability of each label, (..., N), from (..., classes, N)."""
    labels = y.expand(*probabilities.shape[:-2], y.shape[-1])
    chosen = probabilities.gather(-2, labels.unsqueeze(-2)).squeeze(-2)
    return chosen.clamp_min(torch.finfo(chosen.dtype).tiny).log()

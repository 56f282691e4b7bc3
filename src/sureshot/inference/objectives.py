"""What to maximise when the kernel is learnt, in one place, and which of it can be trusted.

Every objective is a function of a prior and of Gaussian sites, differentiable in the kernel matrix (or
features) and the prior mean that the prior holds.

==============================  ==========================================================================
`evidence_bound`                mean field; **wrong sign for the output scale** (below)
`leave_one_out_log_likelihood`  mean field cavities; approximate, but ranks scales and kernels correctly
`predictive_log_likelihood`     condition on a support set, score a query set: what meta-learning wants
`fisher_surrogate`              Monte-Carlo gradient of the exact evidence from posterior Polya-Gamma draws
`gibbs_leave_one_out`           exact leave-one-out predictive likelihood from posterior draws
==============================  ==========================================================================

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

from sureshot.gaussian.gram import GramPrior
from sureshot.gaussian.latent import LatentPosterior, LatentPrior
from sureshot.gaussian.sites import Sites
from sureshot.likelihoods.base import Likelihood, MeanFieldLikelihood, PredictiveRule
from sureshot.likelihoods.pairwise import other_classes, pairwise_gram, pairwise_mean

# Pairs of a datum and another class up to which one matrix over all pairs is as fast and keeps more digits.
_LARGEST_DENSE = 64


def evidence_bound(
    posterior: LatentPosterior, likelihood: MeanFieldLikelihood, y: Tensor, weight: Tensor | None = None
) -> Tensor:
    """Lower bound on ``log p(y)`` by a Gaussian posterior, shape (...), in nats.

    The auxiliary variables are at their optimum for this posterior, so it is the tightest bound of its
    family. Do not learn the output scale of a kernel from it: its gradient in the scale has the wrong sign
    at moderate scales (see the module's notes).

    Parameters
    ----------
    posterior : LatentPosterior
        Over latents (..., C, N).
    likelihood : MeanFieldLikelihood
    y : Tensor (..., N) int64
    weight : Tensor (..., N), optional
        One by default; a datum of weight 2 counts twice.
    """
    return likelihood.local_bound(posterior.mean, posterior.variance, y, weight) - posterior.kl()


def leave_one_out_log_likelihood(
    posterior: LatentPosterior, likelihood: Likelihood, y: Tensor, weight: Tensor | None = None
) -> Tensor:
    """Sum over data of ``log p(y_n | the others)`` from mean-field or Laplace sites, shape (...), in nats.

    Approximate: the sites of the other data have seen y_n, so it is optimistic (by 0.2 nats on a toy problem
    of a few data). A datum of weight 2 is left out as a whole and its term counts twice.
    """
    mean, variance = posterior.leave_one_out()
    scores = _log_probability(likelihood.integral(mean, variance), y)
    return (scores if weight is None else weight * scores).sum(-1)


def gibbs_leave_one_out(prior: LatentPrior, sites: Sites, likelihood: Likelihood, y: Tensor) -> Tensor:
    """Exact ``log p(y_n | the others)`` from posterior draws of the auxiliary variables, (..., N).

    Averaging ``p(y_n | cavity)`` over posterior draws would be wrong, since the draws have seen y_n. Exact is
    ``1 / p(y_n | y_-n) = E[1 / p(y_n | y_-n, omega_-n)]`` over draws of omega given all labels. It needs a
    normalised likelihood whose sites are diagonal (logistic, logistic-softmax, Gaussian labels).

    Parameters
    ----------
    prior : LatentPrior
    sites : Sites
        Posterior draws in the leading dimension, (draws, ..., C, N).
    likelihood : Likelihood
    y : Tensor (..., N) int64
    """
    mean, variance = prior.condition(sites).leave_one_out()
    labels = y.expand(*mean.shape[:-2], y.shape[-1])
    scores = _log_probability(likelihood.integral(mean, variance), labels)
    return math.log(scores.shape[0]) - torch.logsumexp(-scores, 0)


def predictive_log_likelihood(
    posterior: LatentPosterior,
    likelihood: Likelihood,
    cross: Tensor,
    prior_variance: Tensor,
    y: Tensor,
    rule: PredictiveRule = "integral",
) -> Tensor:
    """Sum over queries of ``log p(y* | x*, support)``, shape (...), in nats.

    Parameters
    ----------
    posterior : LatentPosterior
        Conditioned on the support.
    cross, prior_variance : Tensor
        As for ``posterior.query``.
    y : Tensor (..., Q) int64
        The queries' labels.
    rule : {"integral", "expected_log", "plug_in"}
    """
    mean, variance = posterior.query(cross, prior_variance)
    return _log_probability(likelihood.predict(mean, variance, rule), y).sum(-1)


def fisher_surrogate(prior: LatentPrior, sites: Sites) -> Tensor:
    """A value whose *gradient* is a Monte-Carlo estimate of the gradient of ``log p(y)``, shape (...).

    Fisher's identity: ``grad log p(y) = E[grad log p(y | omega)]`` with omega drawn from its posterior given
    y. The sites are constants here; the value itself is not an estimate of the evidence. It is unbiased only
    for draws from the *posterior*: a draw that starts from a prior sample and takes one step learns the
    output scale in the wrong direction. Subtract a second surrogate, with draws given the support alone,
    from one with draws given support and query to get an unbiased gradient of the predictive likelihood.

    Parameters
    ----------
    prior : LatentPrior
        Its kernel matrix, features or mean carry the gradient.
    sites : Sites
        Posterior draws in the leading dimension, (draws, ..., C, N).
    """
    constant = Sites(sites.precision.detach(), sites.shift.detach())
    return prior.condition(constant).log_evidence().mean(0)


def collapsed_one_vs_each_log_evidence(
    Kxx: Tensor,
    prior_mean: Tensor,
    y: Tensor,
    n_classes: int,
    omega: Tensor,
    weight: Tensor | None = None,
) -> Tensor:
    """``log p(Y | omega)`` of the one-vs-each model with the latents integrated out, shape (...), in nats.

    With omega drawn from its posterior the gradient of its average over the draws is the gradient of the
    evidence (see `fisher_surrogate`). One-vs-each is a composite likelihood whose sum over all labelings
    grows with the scale, so its "evidence" favours large output scales when kernels are compared.

    Parameters
    ----------
    Kxx : Tensor (..., N, N)
        Kernel matrix shared by the classes.
    prior_mean : Tensor, scalar or (..., C)
    y : Tensor (..., N) int64
    n_classes : int
    omega : Tensor (..., C, N)
        Polya-Gamma variables, chains in leading dimensions; zero at each datum's own class, as
        `OneVsEach.sample_omega` draws them.
    weight : Tensor (..., N), optional
    """
    counts = torch.ones(y.shape, dtype=omega.dtype, device=omega.device) if weight is None else weight
    pairs = y.shape[-1] * (n_classes - 1)
    evidence = _pairwise_evidence if pairs <= _LARGEST_DENSE else _star_evidence
    constant = math.log(2) * (n_classes - 1) * counts.sum(-1)
    return evidence(Kxx, prior_mean, y, n_classes, omega, counts) - constant


def _pairwise_evidence(
    Kxx: Tensor, prior_mean: Tensor, y: Tensor, n_classes: int, omega: Tensor, counts: Tensor
) -> Tensor:
    """Log of the integral of the sites over all pairs, by one M x M matrix; ``O(M^3)``."""
    prior = GramPrior(
        pairwise_gram(Kxx, y, n_classes).unsqueeze(-3), pairwise_mean(prior_mean, y, n_classes).unsqueeze(-2)
    )
    others = other_classes(y, n_classes).expand(*omega.shape[:-2], y.shape[-1], n_classes - 1)
    precision = omega.mT.gather(-1, others).flatten(-2).unsqueeze(-2)  # (..., 1, M)
    shift = 0.5 * counts.repeat_interleave(n_classes - 1, -1).unsqueeze(-2)
    return prior.condition(Sites(precision, shift.expand_as(precision))).log_evidence()


def _star_evidence(Kxx: Tensor, prior_mean: Tensor, y: Tensor, n_classes: int, omega: Tensor, counts: Tensor) -> Tensor:
    """The same value in ``O(C N^3)``, from the classes' own N x N matrices and one 2N x 2N matrix.

    The precision over the classes at datum n is ``diag(omega) + U [[s, -1], [-1, 0]] U'`` with ``U = [e_y,
    omega]`` and ``s = sum(omega)``: diagonal plus a matrix of rank two. The inner matrix is indefinite, so
    it takes LU where Cholesky would fail.
    """
    n = y.shape[-1]
    own = torch.eye(n_classes, dtype=omega.dtype, device=omega.device)[y].mT  # (..., C, N)
    shared = Kxx.unsqueeze(-3)
    posterior = GramPrior(shared, omega.new_zeros(())).condition(Sites(omega, torch.zeros_like(omega)))
    half_gram = posterior.whitened(shared)
    covariance = shared - half_gram.mT @ half_gram  # (..., C, N, N), under the diagonal part alone

    means = prior_mean if prior_mean.dim() == 0 else prior_mean.unsqueeze(-1)
    means = means * torch.ones_like(own)
    against = (own * means).sum(-2, keepdim=True) - means  # a_y - a_c
    pull = 0.5 * counts.unsqueeze(-2) - omega * against
    residual = own * ((1 - own) * pull).sum(-2, keepdim=True) - (1 - own) * pull
    moved = (covariance @ residual.unsqueeze(-1)).squeeze(-1)

    def block(left: Tensor, right: Tensor) -> Tensor:
        return (left.unsqueeze(-1) * covariance * right.unsqueeze(-2)).sum(-3)

    def mix(top: Tensor, bottom: Tensor) -> Tensor:  # multiply by [[s, -1], [-1, 0]] at every datum
        return torch.cat([omega.sum(-2).unsqueeze(-1) * top - bottom, -top], -2)

    crossed = block(own, omega)
    inner = mix(torch.cat([block(own, own), crossed], -1), torch.cat([crossed.mT, block(omega, omega)], -1))
    inner = inner + torch.eye(2 * n, dtype=omega.dtype, device=omega.device)
    top, bottom = (own * moved).sum(-2).unsqueeze(-1), (omega * moved).sum(-2).unsqueeze(-1)
    correction = torch.cat([top, bottom], -2) * torch.linalg.solve(inner, mix(top, bottom))
    quadratic = (residual * moved).sum((-2, -1)) - correction.sum((-2, -1))
    log_det = posterior.log_det.sum(-1) + torch.linalg.slogdet(inner).logabsdet
    linear = 0.5 * (against * counts.unsqueeze(-2) - omega * against**2).sum((-2, -1))
    return linear + 0.5 * (quadratic - log_det)


def _log_probability(probabilities: Tensor, y: Tensor) -> Tensor:
    """Log of the probability of each label, (..., N), from (..., classes, N)."""
    chosen = probabilities.gather(-2, y.unsqueeze(-2)).squeeze(-2)
    return chosen.clamp_min(torch.finfo(chosen.dtype).tiny).log()

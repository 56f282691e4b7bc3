"""The posteriors that the Iris study compares, and their evidence bound under the softmax model.

Every posterior is a Gaussian over the latents, so each can be asked how good an approximation of the *softmax*
posterior it is: ``E_q[log softmax(f)] - KL(q || prior)``, which is at most the softmax model's log evidence (Snell &
Zemel 2021, appendix F.3). Splits are the leading dimension of every tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from experiments.joint_one_vs_each import fit_joint_one_vs_each
from experiments.pairwise import latents_to_pairs, pairwise_differences
from experiments.softmax_laplace import softmax_laplace_exact
from sureshot.gaussian.gram import GramPrior
from sureshot.gaussian.posterior import LatentMoments, Posterior
from sureshot.inference.mean_field import fit_mean_field
from sureshot.likelihoods import GaussianLabels, Likelihood, Logistic, LogisticSoftmax, OneVsEach, Softmax
from sureshot.likelihoods.quadrature import is_full_covariance
from sureshot.likelihoods.sites import ClassSites

N_NODES = 16
"""Gauss-Hermite nodes in each dimension: the expectation is right to 1e-5 nats at prior variance (tested)."""

MAX_STEPS = 2000
"""Of mean field; logistic-softmax with prior mean -5 needs hundreds, everything else under a hundred."""


@dataclass(frozen=True)
class Fit:
    """A Gaussian posterior of the latents with what the study asks of it."""

    likelihood: Likelihood  # turns latents into probabilities
    mean: Tensor  # at the training inputs
    covariance: Tensor  # variances (S, C, N), or covariances over the classes (S, N, C, C)
    kl: Tensor  # divergence from the prior, in nats
    converged: Tensor
    posterior: Posterior

    def query(self, cross: Tensor) -> LatentMoments:
        """Mean (S, C, Q) and covariance, in the same form, from the kernel between data and queries (S, N, Q)."""
        return unit_query(self.posterior, cross)


def unit_query(posterior: Posterior, cross: Tensor) -> LatentMoments:
    """Moments at queries (see `Fit.query`) under a kernel of unit variance that the classes share."""
    return posterior.query(cross.unsqueeze(-3), cross.new_ones(*cross.shape[:-2], 1, cross.shape[-1]))


def squared_exponential(x: Tensor, other: Tensor) -> Tensor:
    """``exp(-d^2 / 2)``: unit variance, unit length-scale on the raw features; (..., N, Q)."""
    return torch.exp(-0.5 * torch.cdist(x, other, compute_mode="donot_use_mm_for_euclid_dist") ** 2)


def independent_classes(
    gram: Tensor, y: Tensor, n_classes: int, likelihood: ClassSites, prior_mean: float = 0.0
) -> Fit:
    """Mean field that factorises over the classes; exact for least squares."""
    prior = GramPrior(gram.unsqueeze(-3), gram.new_tensor(prior_mean))
    found = fit_mean_field(prior, likelihood, y, n_classes=n_classes, max_steps=MAX_STEPS)
    posterior = found.posterior
    return Fit(likelihood, posterior.mean, posterior.variance, posterior.kl(), found.converged, posterior)


def joint_one_vs_each(gram: Tensor, y: Tensor, n_classes: int) -> Fit:
    """Mean field for one-vs-each that keeps the covariance between the classes; see `independent_classes`."""
    posterior = fit_joint_one_vs_each(gram, y, n_classes, max_steps=MAX_STEPS)
    mean, covariance = unit_query(posterior, gram)
    # The bound is the data's terms minus the divergence, so the divergence is their difference.
    pairs = latents_to_pairs(mean, y).unsqueeze(-2)  # (S, 1, M)
    variance = _pair_variance(covariance, y).unsqueeze(-2)
    won = torch.ones(pairs.shape[0], pairs.shape[-1], dtype=torch.int64)
    data_terms = Logistic().local_bound(pairs, variance, won, None)
    return Fit(OneVsEach(), mean, covariance, data_terms - posterior.bound, posterior.converged, posterior)


def _pair_variance(covariance: Tensor, y: Tensor) -> Tensor:
    """Variance of ``f_y - f_c`` for every c != y, (S, M), from (S, N, C, C)."""
    n_classes = covariance.shape[-1]
    variance = covariance.diagonal(dim1=-2, dim2=-1)  # (S, N, C)
    index = y[..., None, None].expand(*y.shape, 1, n_classes)
    with_label = covariance.gather(-2, index).squeeze(-2)  # (S, N, C), covariance of f_y with f_c
    own = variance.gather(-1, y.unsqueeze(-1))
    spread = own + variance - 2 * with_label
    others = torch.arange(n_classes) != y.unsqueeze(-1)
    return spread[others].view(*y.shape[:-1], -1)


def softmax_laplace(gram: Tensor, y: Tensor, n_classes: int) -> Fit:
    """Laplace's approximation of the softmax posterior itself, with its full curvature: the reference."""
    posterior = softmax_laplace_exact(gram, y, n_classes)
    mean, covariance = unit_query(posterior, gram)
    p = torch.softmax(mean, dim=-2).mT  # (S, N, C)
    quadratic = (posterior.residual * mean).sum((-2, -1))
    log_joint = Softmax().log_likelihood(mean, y).sum(-1) - 0.5 * quadratic
    log_det = 2 * (log_joint - posterior.log_evidence)  # log|I + K W|
    # tr(K^-1 Sigma) = C N - tr(W Sigma) with W = diag(p) - p p' at each datum.
    curvature = torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2)
    kl = 0.5 * (log_det + quadratic - (curvature * covariance).sum((-3, -2, -1)))
    return Fit(Softmax(), mean, covariance, kl, torch.ones(kl.shape, dtype=torch.bool), posterior)


MODELS: dict[str, Callable[[Tensor, Tensor, int], Fit]] = {
    "gaussian": lambda gram, y, c: independent_classes(gram, y, c, GaussianLabels(1.0)),
    "logistic-softmax": lambda gram, y, c: independent_classes(gram, y, c, LogisticSoftmax()),
    "one-vs-each": joint_one_vs_each,
    "softmax (Laplace)": softmax_laplace,
    "one-vs-each, factorised": lambda gram, y, c: independent_classes(gram, y, c, OneVsEach()),
    "logistic-softmax, Poisson-gamma": lambda gram, y, c: independent_classes(
        gram, y, c, LogisticSoftmax(augmentation="poisson_gamma")
    ),
    "logistic-softmax, mean -5": lambda gram, y, c: independent_classes(gram, y, c, LogisticSoftmax(), -5.0),
}
"""Every row of the study: from kernel matrices (S, N, N), labels (S, N) and the number of classes to a `Fit`."""


def softmax_bound(fit: Fit, y: Tensor) -> Tensor:
    """Evidence bound of a posterior under the softmax model, (S,), in nats.

    A constant prior mean common to the classes does not matter: the softmax is invariant to it.
    """
    return expected_log_softmax(fit.mean, fit.covariance, y).sum(-1) - fit.kl


def expected_log_softmax(mean: Tensor, covariance: Tensor, y: Tensor, n_nodes: int = N_NODES) -> Tensor:
    """``E[log softmax(f)_y]`` at every datum, (..., N), for Gaussian latents of a few classes.

    ``log softmax(f)_y = -log(1 + sum over c != y of exp(f_c - f_y))`` depends on C - 1 differences only, so a
    product rule of Gauss and Hermite needs ``n_nodes^(C - 1)`` points.
    """
    full = covariance if is_full_covariance(mean, covariance) else torch.diag_embed(covariance.mT)
    differences = pairwise_differences(y, mean.shape[-2], mean.dtype)  # (..., N, C - 1, C)
    centre = (differences @ mean.mT.unsqueeze(-1)).squeeze(-1)  # (..., N, C - 1)
    factor = torch.linalg.cholesky(differences @ full @ differences.mT)
    points, weights = _product_rule(n_nodes, mean.shape[-2] - 1)
    psi = centre.unsqueeze(-2) + points @ factor.mT  # (..., N, P, C - 1)
    return -(torch.logaddexp(torch.zeros_like(psi[..., 0]), (-psi).logsumexp(-1)) @ weights)


def _product_rule(n_nodes: int, dimension: int) -> tuple[Tensor, Tensor]:
    """Points (P, dimension) and weights (P,) for standard normal variables, float64."""
    nodes, weights = map(torch.from_numpy, np.polynomial.hermite_e.hermegauss(n_nodes))
    points = torch.cartesian_prod(*[nodes] * dimension).view(-1, dimension)
    products = torch.cartesian_prod(*[weights / weights.sum()] * dimension).view(-1, dimension).prod(-1)
    return points, products

"""The robust-max likelihood: the label is the class with the largest latent, or with probability epsilon any other.

``p(y | f) = 1 - epsilon`` if ``f_y`` is the largest, else ``epsilon / (C - 1)``. With independent Gaussian latents all
that is asked of it follows from the probability that one latent is the largest, an integral in one dimension::

    P_y = E[ prod over c != y of Phi((f_y - m_c) / s_c) ],    f_y ~ N(m_y, s_y^2),

by twenty Gauss-Hermite nodes, as its users have it: exact to 1e-3 where deviations are alike, and to .04 where one is
eight times another. It has no Gaussian sites, so it is no `sureshot.likelihoods.Likelihood`: it is for variational
inference by gradients.

Reference: Hensman, Matthews, Filippone & Ghahramani 2015, "MCMC for variationally sparse Gaussian processes".
"""

from __future__ import annotations

import torch
from torch import Tensor

from sureshot.likelihoods.quadrature import MAX_NUMBERS, gauss_hermite


def largest_probability(
    mean: Tensor,  # (C, N)
    variance: Tensor,  # (C, N), positive
    y: Tensor,  # (..., N) int64
) -> Tensor:
    """The probability that the latent of class y is the largest, (..., N); see the module for its accuracy."""
    nodes, weights = (part.to(mean) for part in gauss_hermite())
    deviation = variance.sqrt()
    each = torch.arange(mean.shape[-1], device=mean.device)
    f = mean[y, each].unsqueeze(-1) + deviation[y, each].unsqueeze(-1) * nodes  # (..., N, H)
    logs = torch.special.log_ndtr((f.unsqueeze(-1) - mean.mT.unsqueeze(-2)) / deviation.mT.unsqueeze(-2))
    others = torch.ones_like(mean.mT, dtype=torch.bool).expand(*y.shape, -1).scatter(-1, y.unsqueeze(-1), False)
    product = torch.where(others.unsqueeze(-2), logs, 0).sum(-1).exp()
    return product @ weights


def expected_log_robust_max(
    mean: Tensor,  # (C, N)
    variance: Tensor,  # (C, N)
    y: Tensor,  # (N,) int64
    epsilon: float,  # probability of a wrong label
) -> Tensor:
    """``E[log p(y | f)]`` in nats, (N,)."""
    right, wrong = _levels(epsilon, mean)
    largest = largest_probability(mean, variance, y)
    return largest * right.log() + (1 - largest) * wrong.log()


def robust_max_probabilities(
    mean: Tensor,  # (C, Q)
    variance: Tensor,  # (C, Q)
    epsilon: float,
) -> Tensor:
    """``E[p(y | f)]`` of all classes, (C, Q); what quadrature leaves of a sum of one is divided out."""
    right, wrong = _levels(epsilon, mean)
    n_classes, n = mean.shape
    size = max(1, MAX_NUMBERS // (20 * n_classes**2))
    found = []
    for begin in range(0, n, size):
        own = mean[:, begin : begin + size], variance[:, begin : begin + size]
        every = torch.arange(n_classes, device=mean.device).unsqueeze(-1).expand_as(own[0])
        largest = largest_probability(*own, every)
        largest = largest / largest.sum(0)
        found.append(largest * right + (1 - largest) * wrong)
    return torch.cat(found, dim=-1)


def _levels(epsilon: float, mean: Tensor) -> tuple[Tensor, Tensor]:
    """Probabilities of the label of the largest latent (C, N), and of each other label."""
    if not 0 < epsilon < 1:
        raise ValueError(f"epsilon must lie between 0 and 1, got {epsilon}")
    if len(mean) < 2:
        raise ValueError("the robust-max likelihood needs the latents of at least 2 classes, got those of 1")
    return mean.new_tensor(1 - epsilon), mean.new_tensor(epsilon / (len(mean) - 1))

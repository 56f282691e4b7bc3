"""Structure moves that do not hold on to the latents: kernels are compared by estimates of their evidence.

Given Polya-Gamma variables that were drawn under a kernel a move is seldom accepted. Here a kernel's evidence is
estimated by N draws of the latents from Laplace's Gaussian q,

    Z(k) = mean of p(psi_i | k) p(y | psi_i) / q_k(psi_i),

and a proposal is accepted by the ratio of estimates. That is exact however rough they are: the draws belong to the
state. The present latents are one of the N of the present kernel, the others are drawn anew; those of the proposed
kernel are all new; afterwards one of the draws, by their weights, is the latents, and omega is drawn given it.

References: Andrieu, Doucet & Holenstein 2010 (particle Markov chain Monte Carlo); Rasmussen & Williams 2006, sec. 3.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from sureshot.gaussian.algebra import solve_vectors, times_vector, weighted_factors
from sureshot.likelihoods.polya_gamma import sample_polya_gamma
from sureshot.structure.collapsed import Collapsed, nearest_root
from sureshot.structure.particles import Particles
from sureshot.structure.rejuvenation_data import Data

_MOST_STEPS = 60
_TOLERANCE = 1e-9


class Laplace(NamedTuple):
    """Laplace's Gaussians of M kernels: mean ``mode``, precision ``S^-1 + diag(weight)``."""

    covariance: Tensor  # (M, P, P), S
    mode: Tensor  # (M, P)
    dual: Tensor  # (M, P), ``S^-1 mode``
    weight: Tensor  # (M, P)
    factor: Tensor  # (M, P, P), of ``B = I + W^1/2 S W^1/2``

    @classmethod
    def of(
        cls,
        covariance: Tensor,  # (M, P, P)
        start: Tensor,  # (M, P), of Newton's steps; changes nothing but their number
    ) -> Laplace:
        """By Newton's method, steps halved where they would lead down."""
        psi, dual = start, torch.zeros_like(start)
        value = torch.full_like(start[:, 0], -torch.inf)
        for _ in range(_MOST_STEPS):
            weight = torch.sigmoid(psi) * torch.sigmoid(-psi)
            shift = weight * psi + torch.sigmoid(-psi)
            factor = weighted_factors(covariance, weight.sqrt())
            aim = shift - weight.sqrt() * _solved(factor, weight.sqrt() * times_vector(covariance, shift))
            step = torch.ones_like(value)
            for _ in range(_MOST_STEPS):
                tried = dual + step.unsqueeze(-1) * (aim - dual)
                there = times_vector(covariance, tried)
                found = logsigmoid(there).sum(-1) - (tried * there).sum(-1) / 2
                down = found < value - _TOLERANCE * value.abs()
                if not bool(down.any()):
                    break
                step = torch.where(down, step / 2, step)
            change = float((there - psi).abs().max())
            psi, dual, value = there, tried, found
            if change < _TOLERANCE * (1 + float(psi.abs().max())):
                break
        weight = torch.sigmoid(psi) * torch.sigmoid(-psi)
        return cls(covariance, psi, dual, weight, weighted_factors(covariance, weight.sqrt()))

    def draw(self, n_draws: int, generator: torch.Generator) -> Tensor:
        """Latents (M, N, P), by Matheron's rule."""
        root = self.weight.sqrt().unsqueeze(1)
        shape = (2, len(self.mode), n_draws, self.mode.shape[-1])
        noise = torch.randn(shape, generator=generator, dtype=torch.float64)
        prior = noise[0] @ nearest_root(self.covariance).mT
        gap = torch.cholesky_solve((root * prior + noise[1]).mT, self.factor).mT
        return self.mode.unsqueeze(1) + prior - (root * gap) @ self.covariance

    def log_weights(
        self,
        psi: Tensor,  # (M, N, P)
    ) -> Tensor:
        """``log p(psi | k) p(y | psi) / q(psi)`` (M, N); the inverse of S cancels."""
        away = psi - self.mode.unsqueeze(1)
        slope = (psi * self.dual.unsqueeze(1)).sum(-1) - (self.mode * self.dual).sum(-1, keepdim=True) / 2
        curvature = (away.square() * self.weight.unsqueeze(1)).sum(-1) / 2
        log_det = self.factor.diagonal(dim1=-2, dim2=-1).log().sum(-1, keepdim=True)
        return logsigmoid(psi).sum(-1) - slope + curvature - log_det


def compared(
    data: Data,
    particles: Particles,
    candidates: Particles,
    log_ratios: Tensor,  # (M,), of the proposals, minus infinity for those that cannot be
    latent: Collapsed,
    generator: torch.Generator,
    n_draws: int,
) -> tuple[Collapsed, Sequence[int]]:
    """Latents of the particles after the move, and those that became their candidates."""
    m, covariances = len(particles), (data.covariance(particles), data.covariance(candidates))
    psi = latent.drawn(covariances[0], generator)
    here, there = (Laplace.of(covariance, psi) for covariance in covariances)
    kept = torch.cat([psi.unsqueeze(1), here.draw(n_draws - 1, generator)], 1)
    draws = torch.stack([kept, there.draw(n_draws, generator)])  # (2, M, N, P)
    log_weights = torch.stack([here.log_weights(draws[0]), there.log_weights(draws[1])]).nan_to_num(-torch.inf)
    log_evidences = log_weights.logsumexp(-1)
    uniform = torch.rand(m, generator=generator, dtype=torch.float64)
    accepted = uniform.log() < log_evidences[1] - log_evidences[0] + log_ratios
    side, every = accepted.long(), torch.arange(m)
    shares = log_weights[side, every].softmax(-1).nan_to_num(1)
    psi = draws[side, every, torch.multinomial(shares, 1, generator=generator).squeeze(-1)]
    covariance = torch.where(accepted[:, None, None], covariances[1], covariances[0])
    fresh = Collapsed.of(sample_polya_gamma(1, psi.nan_to_num(0, 0, 0), generator), covariance)
    stopped = ~(psi.isfinite().all(-1) & fresh.log_likelihood.isfinite())  # by rounding: such a particle stays
    stay = stopped.nonzero().flatten().tolist()
    fresh.put(stay, latent, stay)
    return fresh, (accepted & ~stopped).nonzero().flatten().tolist()


def _solved(factor: Tensor, vectors: Tensor) -> Tensor:
    """``B^-1 v``."""
    return solve_vectors(factor.mT, solve_vectors(factor, vectors, upper=False), upper=True)

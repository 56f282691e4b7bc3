"""Latents as the root of their covariance times standard normal variables: the paper's representation.

P contrasts have latents ``psi = L eta`` with ``L L' = S``, the prior covariance under a particle's kernel, and
``eta ~ N(0, I)`` whatever the kernel is; the mean of the latents, N(0, 1) a priori, is a constant in the kernel. New
data extend eta from the prior, and have the weight ``sigma(psi)`` of what was drawn; so weights vary more than those of
`sureshot.structure.collapsed`, which look at the new label first.

Reference: Huang & Wang 2025, eqs. 17 to 20.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sureshot.gaussian.algebra import factors, grown_triangle, times_vector
from sureshot.structure.latents import Latents
from sureshot.structure.links import LOGISTIC, Link

_FIRST_STEP = 0.1
_LARGEST_SHRINKS = 100


@dataclass(frozen=True)
class Whitened(Latents):
    """Of M particles with P data."""

    eta: Tensor  # (M, P)
    factor: Tensor  # (M, P, P), L
    step: Tensor  # (M,), of Hamiltonian Monte Carlo

    @classmethod
    def empty(cls, n_particles: int, link: Link = LOGISTIC) -> Whitened:
        """Without data."""
        zeros = torch.zeros(n_particles, 0, dtype=torch.float64)
        step = torch.full((n_particles,), _FIRST_STEP, dtype=torch.float64)
        return cls(zeros, torch.zeros(n_particles, 0, 0, dtype=torch.float64), step, link=link)

    @property
    def variables(self) -> dict[str, Tensor]:
        return {"eta": self.eta, "step": self.step}

    def restored(self, variables: Mapping[str, Tensor]) -> Whitened:
        if not bool(variables["eta"].isfinite().all() and (variables["step"] > 0).all()):
            raise ValueError("whitened latents must be finite, and step sizes positive")
        return replace(self, eta=variables["eta"], step=variables["step"])

    @property
    def log_likelihood(self) -> Tensor:
        """``log p(y | psi)`` in nats (M,)."""
        return self.link.log_probability(times_vector(self.factor, self.eta)).sum(-1)

    def first(self, n: int) -> Whitened:
        """Of the first n data only."""
        return replace(self, eta=self.eta[:, :n], factor=self.factor[:, :n, :n])

    def given(self, places: Sequence[int], covariance: Tensor, out: Tensor | None = None) -> Whitened:
        return replace(self, eta=self.eta[places], factor=factors(covariance, out), step=self.step[places])

    def predicted(self, cross: Tensor) -> tuple[Tensor, Tensor]:
        """Means (M, Q) of queries, and ``X`` (M, P, Q) so that ``X' X`` is what the data take off their covariance."""
        own = torch.linalg.solve_triangular(self.factor, cross, upper=False)
        return times_vector(own.mT, self.eta), own

    def extended(self, cross: Tensor, corner: Tensor, generator: torch.Generator) -> tuple[Whitened, Tensor]:
        """With new data, and the logarithms of the weights (M, B) that they have one after another.

        They are zero for particles whose prediction is not finite.
        """
        mean, own = self.predicted(cross)
        covariance = corner - own.mT @ own
        known = mean.isfinite().all(-1) & covariance.isfinite().flatten(1).all(-1)
        covariance = torch.where(known[:, None, None], covariance, torch.eye(mean.shape[-1], dtype=torch.float64))
        corner_factor = _nearest_factors(covariance, corner)
        new = torch.empty_like(mean)
        for j in range(mean.shape[-1]):
            new[:, j] = torch.randn(len(mean), generator=generator, dtype=torch.float64)
        log_weights = self.link.log_probability(mean + times_vector(corner_factor, new))
        log_weights = torch.where(known.unsqueeze(-1) & log_weights.isfinite(), log_weights, -math.inf)
        factor = grown_triangle(self.factor, own.mT, corner_factor)
        return replace(self, eta=torch.cat([self.eta, new], -1), factor=factor), log_weights

    def without(self, kept: Tensor, covariance: Tensor, left: Tensor) -> tuple[Whitened, Tensor]:
        """With some data (P,) bool only, and the logarithms of the weights (M,) of never having seen the others."""
        psi, factor = times_vector(self.factor, self.eta), factors(left)
        eta = torch.linalg.solve_triangular(factor, psi[:, kept].unsqueeze(-1), upper=False).squeeze(-1)
        log_weights = -self.link.log_probability(psi[:, ~kept]).sum(-1)
        return replace(self, eta=eta, factor=factor), torch.where(eta.isfinite().all(-1), log_weights, -math.inf)

    def refreshed(self, covariance: Tensor, generator: torch.Generator) -> Whitened:
        """With eta moved by elliptical slice sampling, kernels kept (their covariance is in the factor already)."""
        here, there = self.eta, torch.randn(self.eta.shape, generator=generator, dtype=torch.float64)
        images = times_vector(self.factor, here), times_vector(self.factor, there)
        uniform = torch.rand(2, len(here), generator=generator, dtype=torch.float64)
        level = self.log_likelihood + uniform[0].log()
        angle = 2 * math.pi * uniform[1]
        low, high = angle - 2 * math.pi, angle
        chosen = torch.zeros_like(angle)
        left = torch.ones_like(angle, dtype=torch.bool)
        for _ in range(_LARGEST_SHRINKS):
            psi = images[0] * angle.cos().unsqueeze(-1) + images[1] * angle.sin().unsqueeze(-1)
            inside = left & (self.link.log_probability(psi).sum(-1) > level)
            chosen, left = torch.where(inside, angle, chosen), left & ~inside
            if not bool(left.any()):
                break
            low, high = torch.where(angle < 0, angle, low), torch.where(angle < 0, high, angle)
            angle = low + torch.rand(len(here), generator=generator, dtype=torch.float64) * (high - low)
        eta = here * chosen.cos().unsqueeze(-1) + there * chosen.sin().unsqueeze(-1)
        return replace(self, eta=eta, factor=self.factor.clone(), step=self.step.clone())


def _nearest_factors(
    covariance: Tensor,  # (M, B, B), of data given others
    corner: Tensor,  # (M, B, B), the same before: by its size covariances are rounded
) -> Tensor:
    """Lower Cholesky factors, or those of the nearest matrix that rounding cannot make indefinite."""
    found, failed = torch.linalg.cholesky_ex(covariance)
    if bool(failed.any()):
        values, vectors = torch.linalg.eigh(covariance[failed > 0])
        least = torch.finfo(values.dtype).eps * corner[failed > 0].diagonal(dim1=-2, dim2=-1).amax(-1, keepdim=True)
        root = vectors * values.maximum(least).sqrt().unsqueeze(-2)
        upper = torch.linalg.qr(root.mT).R
        found[failed > 0] = (upper * upper.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-1)).mT
    return found

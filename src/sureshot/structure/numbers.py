"""Targets that are numbers with Gaussian noise: nothing is drawn, and every weight is exact.

The nugget of a particle is the variance of the noise, so that its targets t are ``N(0, S)`` with S the covariance that
particles have: with ``S = L L'`` and ``u = L^-1 t``

    log p(t | S) = -|u|^2 / 2 - log|L| - N log(2 pi) / 2.

A new number's weight is its predictive density, and the weights of all of them multiply to the evidence of the kernel.

Reference: Saad, Patton, Hoffman, Saurous & Mansinghka 2023, of which the grammar and the moves are, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sureshot.gaussian.algebra import factors, grown_triangle, solve_vectors, times_vector
from sureshot.structure.grammar import KernelPrior
from sureshot.structure.latents import Latents
from sureshot.structure.smc import SmcState
from sureshot.structure.structure import Structure

_HALF_LOG_2_PI = 0.5 * math.log(2 * math.pi)


@dataclass(frozen=True)
class Numbers(Latents):
    """By the whole covariance S, of M particles with N numbers."""

    target: Tensor  # (M, N), the same for all; behind them those that have been told and come next
    factor: Tensor  # (M, N, N), L; NaN for particles that have none
    whitened: Tensor  # (M, N), u

    @classmethod
    def empty(cls, n_particles: int) -> Numbers:
        """Without data."""
        zeros = torch.zeros(n_particles, 0, dtype=torch.float64)
        return cls(zeros, torch.zeros(n_particles, 0, 0, dtype=torch.float64), zeros)

    @property
    def variables(self) -> dict[str, Tensor]:
        return {"target": self.target}

    def restored(self, variables: Mapping[str, Tensor]) -> Numbers:
        if not bool(variables["target"].isfinite().all()):
            raise ValueError("targets must be finite")
        return replace(self, target=variables["target"])

    @property
    def log_likelihood(self) -> Tensor:
        """``log p(t | S)`` in nats (M,)."""
        return _finite(self._log_densities.sum(-1))

    @property
    def _log_densities(self) -> Tensor:
        """Of each number given those before (M, N)."""
        return -0.5 * self.whitened.square() - self.factor.diagonal(dim1=-2, dim2=-1).log() - _HALF_LOG_2_PI

    def first(self, n: int) -> Numbers:
        return replace(self, target=self.target[:, :n], factor=self.factor[:, :n, :n], whitened=self.whitened[:, :n])

    def told(self, y: Tensor) -> Numbers:
        return replace(self, target=torch.cat([self.target, y.expand(len(self.target), -1)], -1))

    def given(self, places: Sequence[int], covariance: Tensor, out: Tensor | None = None) -> Numbers:
        target, factor = self.target[places], factors(covariance, out)
        return replace(self, target=target, factor=factor, whitened=solve_vectors(factor, target, upper=False))

    def predicted(self, cross: Tensor) -> tuple[Tensor, Tensor]:
        """Means (M, Q) of queries, and ``X`` (M, N, Q) so that ``X' X`` is what the data take off their covariance."""
        own = torch.linalg.solve_triangular(self.factor, cross, upper=False)
        return times_vector(own.mT, self.whitened), own

    def extended(self, cross: Tensor, corner: Tensor, generator: torch.Generator) -> tuple[Numbers, Tensor]:
        n = self.factor.shape[-1]
        mean, own = self.predicted(cross)
        new = factors(corner - own.mT @ own)
        whitened = solve_vectors(new, self.target[:, n:] - mean, upper=False)
        factor = grown_triangle(self.factor, own.mT, new)
        found = replace(self, factor=factor, whitened=torch.cat([self.whitened, whitened], -1))
        return found, _finite(found._log_densities[:, n:])

    def without(self, kept: Tensor, covariance: Tensor, left: Tensor) -> tuple[Numbers, Tensor]:
        fewer = replace(self, target=self.target[:, kept]).given(range(len(left)), left)
        return fewer, _finite(fewer.log_likelihood - self.log_likelihood)

    def refreshed(self, covariance: Tensor, generator: torch.Generator) -> Numbers:
        """As they are: a kernel leaves nothing open."""
        return self.chosen(slice(None))


def started(prior: KernelPrior, n_particles: int, generator: torch.Generator, structure: Structure | None) -> SmcState:
    """A state without data, whose targets will be numbers; ValueError as `SmcState.start` has it."""
    state = SmcState.start(prior, n_particles, 2, generator, structure)
    return replace(state, y=torch.zeros(0, dtype=torch.float64), latent=Numbers.empty(n_particles))


def _finite(logs: Tensor) -> Tensor:
    return torch.where(logs.isfinite(), logs, -math.inf)

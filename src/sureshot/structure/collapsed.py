"""Latents integrated out: given Polya-Gamma variables, a particle's data are Gaussian.

Data are P contrasts, each a logistic factor ``sigma(psi_p)`` of a Gaussian latent with prior covariance S. Given
``omega_p ~ PG(1, psi_p)`` the factors are Gaussian, ``exp(psi / 2 - omega psi^2 / 2)``: as if ``1 / (2 omega_p)`` had
been seen with noise of variance ``1 / omega_p``. So psi is integrated out, and a kernel's likelihood is (up to what
does not depend on it)

    log p(y | omega, S) = -|u|^2 / 2 - log|B| / 2,   B = I + W^1/2 S W^1/2 = L L',   u = L^-1 W^-1/2 b,   b = 1/2.

New data come one after another: a datum's weight is ``E[sigma(psi)]`` under its predictive distribution, exactly; then
psi is drawn given the label, and omega given psi. So the weight looks ahead to nothing that is drawn after it, and the
product of the weights is an unbiased estimate of the evidence. The factor L grows by a row with each datum, and no
covariance that rounding has made indefinite stops it; where S cannot be factorised afresh the likelihood is zero.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from sureshot.gaussian.algebra import grown_triangle, solve_vectors, times_vector, weighted_factors
from sureshot.likelihoods.polya_gamma import sample_polya_gamma
from sureshot.likelihoods.quadrature import log_expected_sigmoid
from sureshot.likelihoods.tilted import sample_tilted
from sureshot.structure.latents import Latents

SHIFT = 0.5
"""b, of a contrast that is positive."""
_LEAST_VARIANCE = 1e-12


@dataclass(frozen=True)
class Drawn(Latents):
    """Latents that are integrated out given Polya-Gamma variables."""

    omega: Tensor  # (M, P)
    factor: Tensor  # (M, ., .), L; NaN for particles that have none
    whitened: Tensor  # (M, .), u

    @classmethod
    @abstractmethod
    def of(cls, omega: Tensor, covariance: Any, out: Tensor | None = None) -> Self:
        """Given the Polya-Gamma variables; `out` is where to put the factor."""

    @abstractmethod
    def drawn(self, covariance: Any, generator: torch.Generator) -> Tensor:
        """The latents (M, P) given the Polya-Gamma variables."""

    @property
    def variables(self) -> dict[str, Tensor]:
        return {"omega": self.omega}

    def restored(self, variables: Mapping[str, Tensor]) -> Self:
        if not bool((variables["omega"] > 0).all()):
            raise ValueError("Polya-Gamma variables must be positive")
        return replace(self, omega=variables["omega"])

    def given(self, places: Sequence[int], covariance: Any, out: Tensor | None = None) -> Self:
        return self.of(self.omega[places], covariance, out)

    def refreshed(self, covariance: Any, generator: torch.Generator) -> Self:
        """One sweep: psi given omega, omega given psi; a particle that rounding stops stays."""
        psi = self.drawn(covariance, generator)
        fresh = self.of(sample_polya_gamma(1, psi.nan_to_num(0, 0, 0), generator), covariance)
        moved = psi.isfinite().all(-1) & fresh.log_likelihood.isfinite()
        stay = (~moved).nonzero().flatten().tolist()
        fresh.put(stay, self, stay)
        return fresh


@dataclass(frozen=True)
class Collapsed(Drawn):
    """By the whole covariance S: L is (M, P, P), u (M, P)."""

    @classmethod
    def empty(cls, n_particles: int) -> Collapsed:
        """Without data."""
        zeros = torch.zeros(n_particles, 0, dtype=torch.float64)
        return cls(zeros, torch.zeros(n_particles, 0, 0, dtype=torch.float64), zeros)

    @classmethod
    def of(cls, omega: Tensor, covariance: Tensor, out: Tensor | None = None) -> Collapsed:
        root = omega.sqrt()
        factor = weighted_factors(covariance, root, out)
        return cls(omega, factor, solve_vectors(factor, SHIFT / root, upper=False))

    @property
    def log_likelihood(self) -> Tensor:
        found = -0.5 * self.whitened.square().sum(-1) - self.factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return torch.where(found.isfinite(), found, -math.inf)

    def first(self, n: int) -> Collapsed:
        """Of the first n data only."""
        return Collapsed(self.omega[:, :n], self.factor[:, :n, :n], self.whitened[:, :n])

    def predicted(
        self,
        cross: Tensor,  # (M, P, Q), prior covariances of the data with queries
    ) -> tuple[Tensor, Tensor]:
        """Means (M, Q) of queries, and ``X`` (M, P, Q) so that ``X' X`` is what the data take off their covariance."""
        own = torch.linalg.solve_triangular(self.factor, self.omega.sqrt().unsqueeze(-1) * cross, upper=False)
        return times_vector(own.mT, self.whitened), own

    def extended(
        self,
        cross: Tensor,  # (M, P, B), prior covariances of the data so far with new ones
        corner: Tensor,  # (M, B, B), of the new ones
        generator: torch.Generator,
    ) -> tuple[Collapsed, Tensor]:
        """With new data, and the logarithms of their weights (M, B) given those before.

        A datum whose prediction is not finite has weight zero.
        """
        mean, own = self.predicted(cross)
        new = seen_in_turn(mean, corner - own.mT @ own, generator)
        root = new.omega.sqrt()
        corner_factor = root.unsqueeze(-1) * new.taken.tril(-1) + torch.diag_embed(new.pivots.sqrt())
        factor = grown_triangle(self.factor, root.unsqueeze(-1) * own.mT, corner_factor)
        parts = torch.cat([self.omega, new.omega], -1), factor, torch.cat([self.whitened, new.whitened], -1)
        return Collapsed(*parts), new.log_weights

    def without(self, kept: Tensor, covariance: Tensor, left: Tensor) -> tuple[Collapsed, Tensor]:
        """With some data (P,) bool only, and the logarithms of the weights (M,) of never having seen the others."""
        gone = (~kept).nonzero().flatten()
        mean, own = self.predicted(covariance[:, :, gone])
        posterior = covariance[:, gone][:, :, gone] - own.mT @ own
        log_weights = unseen_in_turn(mean, posterior, self.omega[:, gone]).sum(-1)
        return Collapsed.of(self.omega[:, kept], left), log_weights

    def drawn(self, covariance: Tensor, generator: torch.Generator) -> Tensor:
        """By Matheron's rule."""
        root = self.omega.sqrt()
        noise = torch.randn(2, *self.omega.shape, generator=generator, dtype=torch.float64)
        prior = times_vector(nearest_root(covariance), noise[0])
        seen = root * prior + noise[1]
        gap = solve_vectors(self.factor, SHIFT / root - seen, upper=False)
        gap = solve_vectors(self.factor.mT, gap, upper=True)
        return prior + times_vector(covariance, root * gap)


class Taken(NamedTuple):
    """What has come of M particles' B new data."""

    log_weights: Tensor  # (M, B)
    omega: Tensor  # (M, B)
    whitened: Tensor  # (M, B), u
    pivots: Tensor  # (M, B), squares of the diagonal of L
    taken: Tensor  # (M, B, B): what data j' <= j take off the covariance is ``taken[:, :, :j + 1]`` with itself


def seen_in_turn(
    mean: Tensor,  # (M, B), of the contrasts given the data before
    covariance: Tensor,  # (M, B, B)
    generator: torch.Generator,
) -> Taken:
    """New data one after another, each weighed by its prediction, then drawn given its label, then its variable.

    A datum whose prediction is not finite has weight zero.
    """
    centres, variances, omega, whitened, pivots = (torch.empty_like(mean) for _ in range(5))
    all_known, taken = torch.empty_like(mean, dtype=torch.bool), torch.zeros_like(covariance)
    for j in range(covariance.shape[-1]):
        column = covariance[:, :, j] - times_vector(taken[:, :, :j], taken[:, j, :j])
        all_known[:, j] = known = mean[:, j].isfinite() & column[:, j].isfinite()
        centres[:, j] = centre = torch.where(known, mean[:, j], 0)
        variances[:, j] = variance = torch.where(known, column[:, j], 1).clamp_min(_LEAST_VARIANCE)
        omega[:, j] = weight = sample_polya_gamma(1, sample_tilted(centre, variance, generator), generator)
        pivots[:, j] = pivot = 1 + weight * variance
        gain = SHIFT - weight * centre
        whitened[:, j] = gain / (weight * pivot).sqrt()
        mean = mean + column * (gain / pivot).unsqueeze(-1)
        taken[:, :, j] = column * (weight / pivot).sqrt().unsqueeze(-1)
    log_weights = torch.where(all_known, log_expected_sigmoid(centres, variances), -math.inf)
    return Taken(log_weights, omega, whitened, pivots, taken)


def unseen_in_turn(
    mean: Tensor,  # (M, B), of the contrasts given all data, themselves included
    covariance: Tensor,  # (M, B, B)
    omega: Tensor,  # (M, B)
) -> Tensor:
    """The reverse: logarithms of the weights (M, B) of data that are integrated out with their variables, in turn.

    Each is one divided by what is then predicted for the datum.
    """
    centres, variances = torch.empty_like(mean), torch.empty_like(mean)
    for j in range(mean.shape[-1]):
        w, v = omega[:, j], covariance[:, j, j]
        share = (1 - w * v).clamp_min(_LEAST_VARIANCE)
        gain = (w * mean[:, j] - SHIFT) / share
        column = covariance[:, :, j]
        centres[:, j], variances[:, j] = mean[:, j] + v * gain, v / share
        mean = mean + column * gain.unsqueeze(-1)
        covariance = covariance + (w / share)[:, None, None] * column.unsqueeze(-1) * column.unsqueeze(-2)
    return -log_expected_sigmoid(centres, variances)


def nearest_root(covariance: Tensor) -> Tensor:
    """R (M, P, P) with ``R R' = S``, or the nearest where rounding has made S indefinite."""
    root, failed = torch.linalg.cholesky_ex(covariance)
    if bool(failed.any()):
        values, vectors = torch.linalg.eigh(covariance[failed > 0].nan_to_num(0, 0, 0))
        root[failed > 0] = vectors * values.clamp_min(0).sqrt().unsqueeze(-2)
    return root

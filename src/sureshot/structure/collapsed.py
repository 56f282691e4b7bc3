"""Latents integrated out: given Polya-Gamma variables, a particle's data are Gaussian.

Data are P contrasts, each a logistic factor ``sigma(psi_p)`` of a Gaussian latent with prior covariance S. Given
``omega_p ~ PG(1, psi_p)`` the factors are Gaussian, ``exp(psi / 2 - omega psi^2 / 2)``, so psi is integrated out, and a
kernel's likelihood is (up to what does not depend on it)

    log p(y | omega, S) = b' m / 2 - log|B| / 2,   B = I + W^1/2 S W^1/2 = L L',   m = (S^-1 + W)^-1 b,   b = 1/2.

New data come one after another: a datum's weight is ``E[sigma(psi)]`` under its predictive distribution, exactly; then
psi is drawn given the label, and omega given psi. So the weight looks ahead to nothing that is drawn after it, and the
product of the weights is an unbiased estimate of the evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from sureshot.gaussian.algebra import (
    cholesky_with_jitter,
    grown_triangle,
    solve_vectors,
    times_vector,
    weighted_factors,
)
from sureshot.likelihoods.polya_gamma import sample_polya_gamma
from sureshot.likelihoods.quadrature import log_expected_sigmoid
from sureshot.likelihoods.tilted import sample_tilted
from sureshot.structure.links import LOGISTIC, Link

_SHIFT = 0.5  # b, of a contrast that is positive


class Collapsed(NamedTuple):
    """Of M particles with P data."""

    omega: Tensor  # (M, P)
    factor: Tensor  # (M, P, P), L
    whitened: Tensor  # (M, P), ``L^-1 W^1/2 S b``
    prior_mean_square: Tensor  # (M,), ``b' S b``

    @classmethod
    def empty(cls, n_particles: int) -> Collapsed:
        """Without data."""
        zeros = torch.zeros(n_particles, 0, dtype=torch.float64)
        return cls(zeros, torch.zeros(n_particles, 0, 0, dtype=torch.float64), zeros, zeros.sum(-1))

    @classmethod
    def of(
        cls,
        omega: Tensor,  # (M, P)
        covariance: Tensor,  # (M, P, P), S
        out: Tensor | None = None,  # (M, P, P), where to put the factor
    ) -> Collapsed:
        """Given the Polya-Gamma variables."""
        root = omega.sqrt()
        factor = weighted_factors(covariance, root, out)
        shifted = _SHIFT * covariance.sum(-1)
        return cls(omega, factor, solve_vectors(factor, root * shifted, upper=False), _SHIFT * shifted.sum(-1))

    @property
    def link(self) -> Link:
        """The logistic one."""
        return LOGISTIC

    @property
    def log_likelihood(self) -> Tensor:
        """``log p(y | omega, S)`` in nats (M,), up to what does not depend on S."""
        fit = self.prior_mean_square - self.whitened.square().sum(-1)
        return 0.5 * fit - self.factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def chosen(self, places: Sequence[int] | Tensor) -> Collapsed:
        """A copy of those of some particles, as often as they are named."""
        return Collapsed(*(part[places] for part in self))

    def part(self, places: slice) -> Collapsed:
        """Those of some particles, not copied."""
        return Collapsed(*(part[places] for part in self))

    def joined(self, parts: Sequence[Collapsed]) -> Collapsed:
        """Those of all parts, in their order."""
        return Collapsed(*(torch.cat(same) for same in zip(*parts, strict=True)))

    def put(self, places: Sequence[int], others: Collapsed, rows: Sequence[int]) -> None:
        """Take over the given rows of others in some places. Changes this object."""
        for mine, other in zip(self, others, strict=True):
            for place, row in zip(places, rows, strict=True):
                mine[place] = other[row]

    def given(self, places: Sequence[int], covariance: Tensor, out: Tensor | None = None) -> Collapsed:
        """With the variables of some particles, and other kernels."""
        return Collapsed.of(self.omega[places], covariance, out)

    def predicted(
        self,
        cross: Tensor,  # (M, P, Q), prior covariances of the data with queries
    ) -> tuple[Tensor, Tensor]:
        """Means (M, Q) of queries, and ``X`` (M, P, Q) so that ``X' X`` is what the data take off their covariance."""
        own = self._solved(cross)
        return _SHIFT * cross.sum(-2) - times_vector(own.mT, self.whitened), own

    def extended(self, cross: Tensor, corner: Tensor, generator: torch.Generator) -> tuple[Collapsed, Tensor]:
        """With new data, and the logarithms of the weights (M,) that they have together."""
        grown, log_weights = self.weighed(cross, corner, generator)
        return grown, log_weights.sum(-1)

    def weighed(
        self,
        cross: Tensor,  # (M, P, B), prior covariances of the data so far with new ones
        corner: Tensor,  # (M, B, B), of the new ones
        generator: torch.Generator,
    ) -> tuple[Collapsed, Tensor]:
        """With new data, and the logarithms of the weights (M, B) that they have one after another."""
        mean, own = self.predicted(cross)
        covariance = corner - own.mT @ own
        first_mean = mean
        log_weights, omega = torch.empty_like(mean), torch.empty_like(mean)
        taken = torch.zeros_like(covariance)  # what data j' <= j take off it is ``taken[:, :, :j + 1]`` with itself
        for j in range(corner.shape[-1]):
            column = covariance[:, :, j] - times_vector(taken[:, :, :j], taken[:, j, :j])
            variance = column[:, j].clamp_min(1e-12)
            log_weights[:, j] = log_expected_sigmoid(mean[:, j], variance)
            omega[:, j] = sample_polya_gamma(1, sample_tilted(mean[:, j], variance, generator), generator)
            seen = 1 + omega[:, j] * variance
            mean = mean + column * ((_SHIFT - omega[:, j] * mean[:, j]) / seen).unsqueeze(-1)
            taken[:, :, j] = column * (omega[:, j] / seen).sqrt().unsqueeze(-1)
        root = omega.sqrt()
        corner_factor = weighted_factors(covariance, root)
        shifted = first_mean + _SHIFT * covariance.sum(-1)
        whitened = [self.whitened + _SHIFT * own.sum(-1), solve_vectors(corner_factor, root * shifted, upper=False)]
        factor = grown_triangle(self.factor, root.unsqueeze(-1) * own.mT, corner_factor)
        square = self.prior_mean_square + _SHIFT**2 * (2 * cross.sum((-2, -1)) + corner.sum((-2, -1)))
        grown = Collapsed(torch.cat([self.omega, omega], -1), factor, torch.cat(whitened, -1), square)
        return grown, log_weights

    def refreshed(
        self,
        covariance: Tensor,  # (M, P, P), S
        generator: torch.Generator,
    ) -> Collapsed:
        """One sweep: psi given omega (Matheron's rule), omega given psi."""
        return Collapsed.of(sample_polya_gamma(1, self.drawn(covariance, generator), generator), covariance)

    def drawn(
        self,
        covariance: Tensor,  # (M, P, P), S
        generator: torch.Generator,
    ) -> Tensor:
        """The latents (M, P) given the Polya-Gamma variables, by Matheron's rule."""
        root = self.omega.sqrt()
        noise = torch.randn(2, *self.omega.shape, generator=generator, dtype=torch.float64)
        prior = times_vector(cholesky_with_jitter(covariance), noise[0])
        seen = root * prior + noise[1]
        gap = solve_vectors(self.factor, _SHIFT / root - seen, upper=False)
        gap = solve_vectors(self.factor.mT, gap, upper=True)
        return prior + times_vector(covariance, root * gap)

    def _solved(self, cross: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(self.factor, self.omega.sqrt().unsqueeze(-1) * cross, upper=False)

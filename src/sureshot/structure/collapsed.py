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

from typing import NamedTuple

import torch
from torch import Tensor

from sureshot.gaussian.algebra import factor_plus_identity, solve_vectors, times_vector
from sureshot.likelihoods.polya_gamma import sample_polya_gamma
from sureshot.likelihoods.quadrature import log_expected_sigmoid
from sureshot.likelihoods.tilted import sample_tilted

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
    ) -> Collapsed:
        """Given the Polya-Gamma variables."""
        root = omega.sqrt()
        factor = factor_plus_identity(root.unsqueeze(-1) * covariance * root.unsqueeze(-2))
        shifted = _SHIFT * covariance.sum(-1)
        return cls(omega, factor, solve_vectors(factor, root * shifted, upper=False), _SHIFT * shifted.sum(-1))

    @property
    def log_likelihood(self) -> Tensor:
        """``log p(y | omega, S)`` in nats (M,), up to what does not depend on S."""
        fit = self.prior_mean_square - self.whitened.square().sum(-1)
        return 0.5 * fit - self.factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def chosen(self, places: Tensor) -> Collapsed:
        """Of some particles."""
        return Collapsed(*(part[places] for part in self))

    def replaced(self, places: Tensor, others: Collapsed) -> Collapsed:
        """With those of other particles in some places."""
        parts = [part.clone() for part in self]
        for part, other in zip(parts, others, strict=True):
            part[places] = other
        return Collapsed(*parts)

    def predicted(
        self,
        cross: Tensor,  # (M, P, Q), prior covariances of the data with queries
    ) -> tuple[Tensor, Tensor]:
        """Means (M, Q) of queries, and ``X`` (M, P, Q) so that ``X' X`` is what the data take off their covariance."""
        own = self._solved(cross)
        return _SHIFT * cross.sum(-2) - times_vector(own.mT, self.whitened), own

    def extended(
        self,
        cross: Tensor,  # (M, P, B), prior covariances of the data so far with new ones
        corner: Tensor,  # (M, B, B), of the new ones
        generator: torch.Generator,
    ) -> tuple[Collapsed, Tensor]:
        """With new data, and the logarithms of the weights (M,) that they have."""
        mean, own = self.predicted(cross)
        covariance = corner - own.mT @ own
        first_mean, first_covariance = mean, covariance
        log_weights, omega = mean.new_zeros(len(mean)), torch.empty_like(mean)
        for j in range(corner.shape[-1]):
            variance = covariance[:, j, j].clamp_min(1e-12)
            log_weights = log_weights + log_expected_sigmoid(mean[:, j], variance)
            omega[:, j] = sample_polya_gamma(1, sample_tilted(mean[:, j], variance, generator), generator)
            column, weight = covariance[:, :, j], omega[:, j] / (1 + omega[:, j] * variance)
            gain = _SHIFT - omega[:, j] * mean[:, j]
            mean = mean + column * (gain / (1 + omega[:, j] * variance)).unsqueeze(-1)
            covariance = covariance - weight[:, None, None] * column.unsqueeze(-1) * column.unsqueeze(-2)
        root = omega.sqrt()
        corner_factor = factor_plus_identity(root.unsqueeze(-1) * first_covariance * root.unsqueeze(-2))
        shifted = first_mean + _SHIFT * first_covariance.sum(-1)
        whitened = [self.whitened + _SHIFT * own.sum(-1), solve_vectors(corner_factor, root * shifted, upper=False)]
        above = torch.cat([self.factor, torch.zeros_like(cross)], -1)
        below = torch.cat([root.unsqueeze(-1) * own.mT, corner_factor], -1)
        square = self.prior_mean_square + _SHIFT**2 * (2 * cross.sum((-2, -1)) + corner.sum((-2, -1)))
        grown = Collapsed(
            torch.cat([self.omega, omega], -1), torch.cat([above, below], -2), torch.cat(whitened, -1), square
        )
        return grown, log_weights

    def refreshed(
        self,
        covariance: Tensor,  # (M, P, P), S
        generator: torch.Generator,
    ) -> Collapsed:
        """One sweep: psi given omega (Matheron's rule), omega given psi."""
        root = self.omega.sqrt()
        noise = torch.randn(2, *self.omega.shape, generator=generator, dtype=torch.float64)
        prior = times_vector(torch.linalg.cholesky(covariance), noise[0])
        seen = root * prior + noise[1]
        gap = solve_vectors(self.factor, _SHIFT / root - seen, upper=False)
        gap = solve_vectors(self.factor.mT, gap, upper=True)
        psi = prior + times_vector(covariance, root * gap)
        return Collapsed.of(sample_polya_gamma(1, psi, generator), covariance)

    def _solved(self, cross: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(self.factor, self.omega.sqrt().unsqueeze(-1) * cross, upper=False)

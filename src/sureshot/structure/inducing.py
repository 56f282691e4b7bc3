"""Kernels of particles seen through inducing inputs, see `sureshot.approximations.inducing`.

The latents of rows are ``Phi w + e`` with features Phi and, for each row, a variance of its own, so that every variance
is the kernel's (FITC).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from torch import Tensor

from sureshot.approximations.inducing import seen_through
from sureshot.kernels.shared_rows import SharedRows
from sureshot.structure.contrasts import Contrasts
from sureshot.structure.grammar import KernelPrior
from sureshot.structure.latents import Latents
from sureshot.structure.particles import Particles
from sureshot.structure.sparse import Features

L = TypeVar("L", bound=Latents)


class Inputs(NamedTuple):
    """Rows with inducing inputs; distances are shared by all kernels."""

    rows: Tensor  # (N, D)
    inducing: SharedRows  # (m, D), with themselves
    cross: SharedRows  # (m, D) and (N, D)

    @classmethod
    def of(cls, rows: Tensor, inducing: Tensor) -> Inputs:
        """Of rows (N, D) and inducing inputs (m, D)."""
        return cls(rows, SharedRows(inducing), SharedRows(inducing, rows))

    def features(self, prior: KernelPrior, particles: Particles) -> tuple[Tensor, Tensor]:
        """Of the rows under each kernel (M, N, m), and variances of their own (M, N), the nugget among them."""
        kernels = particles.kernels(prior)
        phi, residual = seen_through(
            particles.grams(prior, self.inducing, kernels=kernels),
            particles.grams(prior, self.cross, kernels=kernels),
            particles.diagonals(prior, self.rows, kernels),
        )
        return phi, residual + particles.nuggets(prior).unsqueeze(-1)


@dataclass(frozen=True)
class InducingData:
    """What particles are conditioned on, as `sureshot.structure.rejuvenation_data.Data`."""

    prior: KernelPrior
    inputs: Inputs  # N rows
    y: Tensor  # (N,)
    n_classes: int
    contrasts: Contrasts  # P, of these rows

    def separate(self) -> InducingData:
        """For another thread: nothing is written to."""
        return self

    def covariance(self, particles: Particles) -> Features:
        """What stands for the prior covariance of the contrasts under each particle."""
        phi, own = self.inputs.features(self.prior, particles)
        return Features.of(phi, own, self.y, self.n_classes, self.contrasts)

    held = covariance

    def proposed(self, latent: L, places: Sequence[int], candidates: Particles) -> L:
        """Latents of some particles under other kernels."""
        return latent.given(places, self.covariance(candidates))

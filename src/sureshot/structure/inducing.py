"""Kernels seen through inducing inputs: rows have to do with each other only by what they have to do with these.

With m inducing inputs z the latents of rows under a kernel k are ``Phi w + e``: weights ``w ~ N(0, I)``, features
``Phi = K_xz L^-T`` with ``L L' = K_zz``, and for each row a variance of its own, ``k(x, x) - |phi|^2``, so that every
variance is the kernel's (FITC). If the rows are among the inducing inputs all covariances are the kernel's, too.

Reference: Snelson & Ghahramani 2006; Quinonero-Candela & Rasmussen 2005.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from sureshot.gaussian.algebra import factors
from sureshot.kernels.shared_rows import SharedRows
from sureshot.structure.contrasts import Contrasts
from sureshot.structure.grammar import KernelPrior
from sureshot.structure.latents import Latents
from sureshot.structure.particles import Particles
from sureshot.structure.sparse import Features

L = TypeVar("L", bound=Latents)

_JITTER = 1e-12
"""Of the largest variance: what rounding needs where a kernel has fewer dimensions than there are inducing inputs."""


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
        phi, residual = split(
            particles.grams(prior, self.inducing),
            particles.grams(prior, self.cross),
            particles.diagonals(prior, self.rows),
        )
        return phi, residual + particles.nuggets(prior).unsqueeze(-1)


def split(
    inducing: Tensor,  # (M, m, m)
    cross: Tensor,  # (M, m, N)
    variance: Tensor,  # (M, N)
) -> tuple[Tensor, Tensor]:
    """Features (M, N, m), and what they leave of the variance of rows (M, N); NaN for what has no factor."""
    diagonal = inducing.diagonal(dim1=-2, dim2=-1)
    most = diagonal.amax(-1, keepdim=True) if diagonal.shape[-1] else diagonal
    factor = factors(inducing + torch.diag_embed((_JITTER * most).expand_as(diagonal)))
    phi = torch.linalg.solve_triangular(factor, cross, upper=False).mT
    return phi, (variance - phi.square().sum(-1)).clamp_min(0)


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

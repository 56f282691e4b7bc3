"""What particles are conditioned on, and the matrices of many kernels on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor

from sureshot.kernels.shared_rows import SharedRows
from sureshot.structure.buffers import Buffers
from sureshot.structure.contrasts import Contrasts
from sureshot.structure.grammar import KernelPrior
from sureshot.structure.latents import Latents
from sureshot.structure.particles import Particles

L = TypeVar("L", bound=Latents)


@dataclass(frozen=True)
class Data:
    """What particles are conditioned on. For one thread, see `separate`."""

    prior: KernelPrior
    rows: SharedRows  # (N, D), with themselves
    contrasts: Contrasts  # P, of these rows
    agreement: Tensor  # (P, P)
    of_rows: Tensor | None  # (P P,), where a pair of contrasts stands in the kernel of rows; None where it is its place
    of_nugget: Tensor | None  # (P, P), by what the nugget is multiplied; None for the identity
    buffers: Buffers = field(default_factory=Buffers, compare=False)

    @classmethod
    def of(cls, prior: KernelPrior, x: Tensor, contrasts: Contrasts) -> Data:
        """With what contrasts share."""
        agreement, row = contrasts.agreement(contrasts), contrasts.row
        if contrasts.are_rows(len(x)):
            return cls(prior, SharedRows(x), contrasts, agreement, None, None)
        of_rows = (row.unsqueeze(-1) * len(x) + row).flatten()
        return cls(prior, SharedRows(x), contrasts, agreement, of_rows, agreement * (row.unsqueeze(-1) == row))

    def separate(self) -> Data:
        """The same for another thread."""
        return replace(self, buffers=Buffers())

    def covariance(
        self,
        particles: Particles,
        out: Tensor | None = None,  # (M, P, P), where to put it
    ) -> Tensor:
        """Prior covariance of the contrasts under each particle, (M, P, P)."""
        m, p, n = len(particles), len(self.contrasts), len(self.rows.x1)
        found = torch.empty(m, p, p, dtype=torch.float64) if out is None else out
        nuggets = particles.nuggets(self.prior)
        if self.of_rows is None or self.of_nugget is None:
            grams = particles.grams(self.prior, self.rows, found)
            grams.diagonal(dim1=-2, dim2=-1).add_(nuggets.unsqueeze(-1))
            for one in grams:
                one.mul_(self.agreement)
            return grams
        grams = particles.grams(self.prior, self.rows, self.buffers.take("grams", m, n, n))
        for gram, nugget, one in zip(grams, nuggets, found, strict=True):
            torch.index_select(gram.view(-1), 0, self.of_rows, out=one.view(-1))
            one.mul_(self.agreement).add_(self.of_nugget * nugget)
        return found

    def held(self, particles: Particles) -> Tensor:
        """The same, valid until the next is asked for."""
        p = len(self.contrasts)
        return self.covariance(particles, self.buffers.take("covariance", len(particles), p, p))

    def proposed(self, latent: L, places: Sequence[int], candidates: Particles) -> L:
        """Latents of some particles under other kernels, valid until the next are asked for."""
        p = len(self.contrasts)
        return latent.given(places, self.held(candidates), self.buffers.take("factor", len(candidates), p, p))

"""Rejuvenation: Markov chain moves of all particles at once, which leave their posterior as it is.

The number of moves is fixed: what is done next never depends on whether a proposal was accepted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor

from sureshot.kernels.shared_rows import SharedRows
from sureshot.structure.buffers import Buffers
from sureshot.structure.contrasts import Contrasts
from sureshot.structure.grammar import KernelPrior
from sureshot.structure.latents import Latents
from sureshot.structure.moves import MOVES
from sureshot.structure.particles import Particles

_LARGEST_SHRINKS = 100

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

    def proposed(self, latent: L, places: Sequence[int], candidates: Particles) -> L:
        """Latents of some particles under other kernels, valid until the next are asked for."""
        m, p = len(candidates), len(self.contrasts)
        covariance = self.covariance(candidates, self.buffers.take("covariance", m, p, p))
        return latent.given(places, covariance, self.buffers.take("factor", m, p, p))


@dataclass(frozen=True)
class Rejuvenation:
    """How often what is done in one sweep."""

    moves: Mapping[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            ("replace_subtree", "detach_or_attach", "grow_or_prune", "redraw_leaf", "swap_operator"), 1
        )
    )
    slices: int = 2  # of elliptical slice sampling, of all parameters together

    def sweep(
        self, data: Data, particles: Particles, latent: L, generator: torch.Generator
    ) -> tuple[Particles, L, dict[str, float]]:
        """One sweep, and the share of proposals that were accepted by kind of move."""
        rates: dict[str, float] = {}
        if not len(data.contrasts):
            return particles, latent, rates
        p = len(data.contrasts)
        covariance = data.covariance(particles, data.buffers.take("covariance", len(particles), p, p))
        latent = latent.refreshed(covariance, generator)  # a copy, which is changed from here on
        for name, times in self.moves.items():
            accepted = 0
            for _ in range(times):
                particles, latent, count = move(name, data, particles, latent, generator)
                accepted += count
            rates[name] = accepted / max(1, times * len(particles))
        for _ in range(self.slices):
            particles, latent = slice_sampled(data, particles, latent, generator)
        return particles, latent, rates


def move(
    name: str, data: Data, particles: Particles, latent: L, generator: torch.Generator
) -> tuple[Particles, L, int]:
    """One proposal for each particle, and how many were accepted. Changes the latents in place."""
    proposals = [
        MOVES[name](data.prior, structure, z[1:], generator)
        for structure, z in zip(particles.structures, particles.z, strict=True)
    ]
    logs = torch.rand(len(particles), generator=generator, dtype=torch.float64).log()
    places = [i for i, proposal in enumerate(proposals) if proposal.log_ratio > -math.inf]
    if not places:
        return particles, latent, 0
    chosen = [proposals[i] for i in places]
    candidates = Particles(
        tuple(proposal.structure for proposal in chosen),
        tuple(torch.cat([particles.z[i][:1], proposal.z]) for i, proposal in zip(places, chosen, strict=True)),
    )
    proposed = data.proposed(latent, places, candidates)
    ratio = proposed.log_likelihood - latent.log_likelihood[places]
    ratio = ratio + torch.tensor([proposal.log_ratio for proposal in chosen], dtype=torch.float64)
    return _accepted(particles, latent, places, candidates, proposed, logs[places] < ratio)


def slice_sampled(data: Data, particles: Particles, latent: L, generator: torch.Generator) -> tuple[Particles, L]:
    """All parameters moved by elliptical slice sampling (Murray, Adams & MacKay 2010), structures kept.

    Changes the latents in place.
    """
    here = particles.packed()
    there = torch.randn(here.shape, generator=generator, dtype=torch.float64)
    uniform = torch.rand(2, len(particles), generator=generator, dtype=torch.float64)
    level = latent.log_likelihood + uniform[0].log()
    angle = 2 * math.pi * uniform[1]
    low, high = angle - 2 * math.pi, angle.clone()
    left = list(range(len(particles)))
    for _ in range(_LARGEST_SHRINKS):
        turn = angle[left].unsqueeze(-1)
        candidates = particles.chosen(left).unpacked(here[left] * turn.cos() + there[left] * turn.sin())
        proposed = data.proposed(latent, left, candidates)
        inside = proposed.log_likelihood > level[left]
        particles, latent, _ = _accepted(particles, latent, left, candidates, proposed, inside)
        left = [i for i, is_inside in zip(left, inside.tolist(), strict=True) if not is_inside]
        if not left:
            break
        tried = angle[left]
        low[left] = torch.where(tried < 0, tried, low[left])
        high[left] = torch.where(tried < 0, high[left], tried)
        share = torch.rand(len(left), generator=generator, dtype=torch.float64)
        angle[left] = low[left] + share * (high[left] - low[left])
    return particles, latent


def _accepted(
    particles: Particles,
    latent: L,
    places: Sequence[int],
    candidates: Particles,
    proposed: L,
    accepted: Tensor,  # (of places,) bool
) -> tuple[Particles, L, int]:
    rows = accepted.nonzero().flatten().tolist()
    kept = [places[row] for row in rows]
    latent.put(kept, proposed, rows)
    return particles.replaced(kept, candidates.chosen(rows)), latent, len(rows)

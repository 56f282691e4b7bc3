"""Rejuvenation: Markov chain moves of all particles at once, which leave their posterior as it is.

The number of moves is fixed: what is done next never depends on whether a proposal was accepted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from sureshot.kernels.shared_rows import SharedRows
from sureshot.structure.collapsed import Collapsed
from sureshot.structure.contrasts import Contrasts
from sureshot.structure.grammar import KernelPrior
from sureshot.structure.moves import MOVES
from sureshot.structure.particles import Particles

_LARGEST_SHRINKS = 100


@dataclass(frozen=True)
class Data:
    """What particles are conditioned on."""

    prior: KernelPrior
    rows: SharedRows  # (N, D), with themselves
    contrasts: Contrasts  # P, of these rows
    agreement: Tensor  # (P, P)

    @classmethod
    def of(cls, prior: KernelPrior, x: Tensor, contrasts: Contrasts) -> Data:
        """With what contrasts share."""
        return cls(prior, SharedRows(x), contrasts, contrasts.agreement(contrasts))

    def covariance(self, particles: Particles) -> Tensor:
        """Prior covariance of the contrasts under each particle, (M, P, P)."""
        gram = particles.grams(self.prior, self.rows)
        return self.contrasts.covariance(self.contrasts, gram, particles.nuggets(self.prior), self.agreement)


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
        self, data: Data, particles: Particles, latent: Collapsed, generator: torch.Generator
    ) -> tuple[Particles, Collapsed, dict[str, float]]:
        """One sweep, and the share of proposals that were accepted by kind of move."""
        rates: dict[str, float] = {}
        if not len(data.contrasts):
            return particles, latent, rates
        latent = latent.refreshed(data.covariance(particles), generator)
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
    name: str, data: Data, particles: Particles, latent: Collapsed, generator: torch.Generator
) -> tuple[Particles, Collapsed, int]:
    """One proposal for each particle, and how many were accepted."""
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
    proposed = Collapsed.of(latent.omega[places], data.covariance(candidates))
    ratio = proposed.log_likelihood - latent.log_likelihood[places]
    ratio = ratio + torch.tensor([proposal.log_ratio for proposal in chosen], dtype=torch.float64)
    return _accepted(particles, latent, places, candidates, proposed, logs[places] < ratio)


def slice_sampled(
    data: Data, particles: Particles, latent: Collapsed, generator: torch.Generator
) -> tuple[Particles, Collapsed]:
    """All parameters moved by elliptical slice sampling (Murray, Adams & MacKay 2010), structures kept."""
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
        proposed = Collapsed.of(latent.omega[left], data.covariance(candidates))
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
    latent: Collapsed,
    places: Sequence[int],
    candidates: Particles,
    proposed: Collapsed,
    accepted: Tensor,  # (of places,) bool
) -> tuple[Particles, Collapsed, int]:
    rows = accepted.nonzero().flatten()
    if not len(rows):
        return particles, latent, 0
    kept = torch.tensor(list(places))[rows]
    particles = particles.replaced(kept.tolist(), candidates.chosen(rows.tolist()))
    return particles, latent.replaced(kept, proposed.chosen(rows)), len(rows)

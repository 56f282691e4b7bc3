"""Rejuvenation: Markov chain moves of all particles at once, which leave their posterior as it is.

The number of moves is fixed: what is done next never depends on whether a proposal was accepted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from sureshot.data.checks import near
from sureshot.structure.collapsed import Collapsed
from sureshot.structure.hamiltonian import adapted, hamiltonian
from sureshot.structure.inducing import InducingData
from sureshot.structure.laplace_moves import compared
from sureshot.structure.latents import Latents
from sureshot.structure.moves import MOVES
from sureshot.structure.particles import Particles
from sureshot.structure.rejuvenation_data import Data
from sureshot.structure.whitened import Whitened

_LARGEST_SHRINKS = 100

L = TypeVar("L", bound=Latents)


@dataclass(frozen=True)
class Rejuvenation:
    """How often what is done in one sweep."""

    moves: Mapping[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            ("replace_subtree", "detach_or_attach", "grow_or_prune", "redraw_leaf", "swap_operator"), 1
        )
    )
    slices: int = 2  # of elliptical slice sampling, of all parameters together
    refreshes: int = 1  # of the latents' variables, kernels kept
    trajectories: int = 0  # of Hamiltonian Monte Carlo, of parameters and whitened latents together
    adapting: int = 1  # of the trajectories, the first ones, that adapt the step size
    leaps: int = 10  # of a trajectory
    laplace_moves: int = 0  # of the same kinds in turn, decided by estimates of evidence; for collapsed latents
    laplace_draws: int = 8  # of an estimate

    @classmethod
    def preset(cls, name: str) -> Rejuvenation:
        """``"default"``, or ``"paper"``: its two moves and Hamiltonian Monte Carlo, for whitened latents."""
        if name not in REJUVENATIONS:
            raise ValueError(
                f"there is no rejuvenation {name!r}{near(name, REJUVENATIONS)}: use one of {', '.join(REJUVENATIONS)}"
            )
        return cls(**REJUVENATIONS[name])

    def sweep(
        self, data: Data | InducingData, particles: Particles, latent: L, generator: torch.Generator
    ) -> tuple[Particles, L, dict[str, float]]:
        """One sweep, and the share of proposals that were accepted by kind of move."""
        rates: dict[str, float] = {}
        if not len(data.contrasts):
            return particles, latent, rates
        if self.trajectories and not isinstance(latent, Whitened):
            raise ValueError("trajectories of Hamiltonian Monte Carlo need the whitened representation")
        if self.laplace_moves and not isinstance(latent, Collapsed):
            raise ValueError("laplace_moves need the collapsed representation")
        latent = latent.chosen(range(len(particles))) if not self.refreshes else latent  # changed from here on
        if self.refreshes:
            covariance = data.held(particles)
            for _ in range(self.refreshes):
                latent = latent.refreshed(covariance, generator)
        for name, times in self.moves.items():
            accepted = 0
            for _ in range(times):
                particles, latent, count = move(name, data, particles, latent, generator)
                accepted += count
            rates[name] = accepted / max(1, times * len(particles))
        if isinstance(latent, Collapsed) and self.laplace_moves:
            collapsed, accepted = cast(Collapsed, latent), 0
            for name in islice(cycle(self.moves), self.laplace_moves):
                particles, collapsed, count = laplace_move(
                    name, cast(Data, data), particles, collapsed, generator, self.laplace_draws
                )
                accepted += count
            latent = cast(L, collapsed)
            rates["laplace"] = accepted / (self.laplace_moves * len(particles))
        for _ in range(self.slices):
            particles, latent = slice_sampled(data, particles, latent, generator)
        if isinstance(latent, Whitened) and self.trajectories:
            whitened, found = cast(Whitened, latent), []
            for k in range(self.trajectories):
                particles, whitened, probability = hamiltonian(
                    cast(Data, data), particles, whitened, generator, self.leaps
                )
                whitened = adapted(whitened, probability) if k < self.adapting else whitened
                found.append(probability)
            latent, rates["hamiltonian"] = cast(L, whitened), float(torch.stack(found).mean())
        return particles, latent, rates


REJUVENATIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {
        "moves": {"replace_subtree": 1, "detach_or_attach": 1},
        "refreshes": 0,
        "slices": 0,
        "trajectories": 2,
    },
}
"""Arguments of `Rejuvenation` by name of the preset."""


def move(
    name: str, data: Data | InducingData, particles: Particles, latent: L, generator: torch.Generator
) -> tuple[Particles, L, int]:
    """One proposal for each particle, and how many were accepted. Changes the latents in place."""
    every, log_ratios = _proposals(name, data, particles, generator)
    logs = torch.rand(len(particles), generator=generator, dtype=torch.float64).log()
    places = (log_ratios > -math.inf).nonzero().flatten().tolist()
    if not places:
        return particles, latent, 0
    candidates = every.chosen(places)
    proposed = data.proposed(latent, places, candidates)
    ratio = proposed.log_likelihood - latent.log_likelihood[places]
    ratio = ratio + log_ratios[places]
    return _accepted(particles, latent, places, candidates, proposed, logs[places] < ratio)


def laplace_move(
    name: str, data: Data, particles: Particles, latent: Collapsed, generator: torch.Generator, n_draws: int
) -> tuple[Particles, Collapsed, int]:
    """One proposal for each particle, decided by estimates of evidence, and how many were accepted."""
    candidates, log_ratios = _proposals(name, data, particles, generator)
    latent, places = compared(data, particles, candidates, log_ratios, latent, generator, n_draws)
    return particles.replaced(places, candidates.chosen(places)), latent, len(places)


def _proposals(
    name: str, data: Data | InducingData, particles: Particles, generator: torch.Generator
) -> tuple[Particles, Tensor]:
    """Candidates, nuggets kept, and the logarithms of their ratios (M,)."""
    found = [
        MOVES[name](data.prior, structure, z[1:], generator)
        for structure, z in zip(particles.structures, particles.z, strict=True)
    ]
    z = tuple(torch.cat([own[:1], proposal.z]) for own, proposal in zip(particles.z, found, strict=True))
    log_ratios = torch.tensor([proposal.log_ratio for proposal in found], dtype=torch.float64)
    return Particles(tuple(proposal.structure for proposal in found), z), log_ratios


def slice_sampled(
    data: Data | InducingData, particles: Particles, latent: L, generator: torch.Generator
) -> tuple[Particles, L]:
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

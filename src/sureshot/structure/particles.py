"""Particles: kernels of different structures, with weights, and their matrices all together.

Particles are grouped by their structure; what a group shares is one expression whose parameters have the particles
leading, evaluated on rows that share distances and inner products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from sureshot.kernels import Expression
from sureshot.kernels.shared_rows import SharedRows
from sureshot.structure.grammar import KernelPrior
from sureshot.structure.structure import Structure

Kernels: TypeAlias = list[tuple[list[int], Expression]]


@dataclass(frozen=True)
class Particles:
    """M kernels of a prior, each with the numbers that its nugget (the first) and its parameters are."""

    structures: tuple[Structure, ...]  # (M,)
    z: tuple[Tensor, ...]  # (M,) of (1 + P_m,), standard normal a priori

    def __len__(self) -> int:
        return len(self.structures)

    @classmethod
    def drawn(
        cls,
        prior: KernelPrior,
        n: int,
        generator: torch.Generator,
        structure: Structure | None = None,  # of all of them; else drawn from the grammar
    ) -> Particles:
        """From the prior."""
        structures = tuple(structure or prior.sample(generator) for _ in range(n))
        sizes = [1 + prior.size(one) for one in structures]
        return cls(structures, tuple(torch.randn(n, generator=generator, dtype=torch.float64) for n in sizes))

    @classmethod
    def joined(cls, parts: Sequence[Particles]) -> Particles:
        """Those of all parts, in their order."""
        return cls(sum((part.structures for part in parts), ()), sum((part.z for part in parts), ()))

    def chosen(self, places: Sequence[int]) -> Particles:
        """Some of them, as often as they are named."""
        return Particles(tuple(self.structures[i] for i in places), tuple(self.z[i] for i in places))

    def replaced(self, places: Sequence[int], others: Particles) -> Particles:
        """With others in some places."""
        structures, z = list(self.structures), list(self.z)
        for place, structure, numbers in zip(places, others.structures, others.z, strict=True):
            structures[place], z[place] = structure, numbers
        return Particles(tuple(structures), tuple(z))

    def packed(self) -> Tensor:
        """All numbers (M, most of them), behind those of a particle zeros."""
        return torch.nn.utils.rnn.pad_sequence(list(self.z), batch_first=True)

    def unpacked(self, numbers: Tensor) -> Particles:
        """The same structures with numbers as `packed` has them."""
        z = tuple(row[: len(own)].clone() for row, own in zip(numbers, self.z, strict=True))
        return replace(self, z=z)

    def nuggets(self, prior: KernelPrior) -> Tensor:
        """Variances that belong to a row alone (M,)."""
        return prior.nugget(torch.stack([one[0] for one in self.z]))

    def grams(
        self,
        prior: KernelPrior,
        rows: SharedRows,  # (N, D) and (M', D)
        out: Tensor | None = None,  # (M, N, M'), where to put them
        kernels: Kernels | None = None,  # where they are at hand
    ) -> Tensor:
        """Kernels of all pairs of rows (M, N, M'), the variance of the mean of the latents in them."""
        found = rows.x1.new_empty(len(self), len(rows.x1), len(rows.x2)) if out is None else out
        for places, kernel in kernels or self.kernels(prior):
            for first, second, block in rows.blocks(len(places)):
                values = kernel.on(block) + prior.grammar.mean_variance
                for place, one in zip(places, values, strict=True):
                    found[place, first, second] = one
                    if rows.x2 is rows.x1:
                        found[place, : first.start, first] = one[:, : first.start].mT
        return found

    def diagonals(
        self,
        prior: KernelPrior,
        x: Tensor,  # (Q, D)
        kernels: Kernels | None = None,
    ) -> Tensor:
        """Kernels of rows with themselves (M, Q), as `grams`."""
        found = x.new_empty(len(self), len(x))
        for places, kernel in kernels or self.kernels(prior):
            found[places] = kernel.diagonal(x)
        return found.add_(prior.grammar.mean_variance)

    def kernels(self, prior: KernelPrior) -> Kernels:
        """Of each structure the places of its particles, and their kernels, whose parameters have these leading."""
        return [
            (places, prior.kernel(structure, torch.stack([self.z[i][1:] for i in places])))
            for structure, places in self.groups().items()
        ]

    def groups(self) -> dict[Structure, list[int]]:
        """Places of the particles of each structure."""
        found: dict[Structure, list[int]] = {}
        for place, structure in enumerate(self.structures):
            found.setdefault(structure, []).append(place)
        return found

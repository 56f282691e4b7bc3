"""Kernels of many particles together, against each alone."""

from __future__ import annotations

import torch

from sureshot.kernels.shared_rows import SharedRows
from sureshot.structure.grammar import Grammar, KernelPrior
from sureshot.structure.particles import Particles
from sureshot.structure.structure import Structure
from tests.structure.oracles import F64, seeded

PRIOR = KernelPrior(Grammar(p_one_column=0.3), 3)
X, Z = torch.randn(6, 3, generator=seeded(0), dtype=F64), torch.randn(4, 3, generator=seeded(1), dtype=F64)


def test_their_matrices_are_those_of_each() -> None:
    particles = Particles.drawn(PRIOR, 30, seeded(2))
    assert len(particles.groups()) > 8
    own, cross = particles.grams(PRIOR, SharedRows(X)), particles.grams(PRIOR, SharedRows(X, Z))
    diagonals, nuggets = particles.diagonals(PRIOR, X), particles.nuggets(PRIOR)
    for m, (structure, z) in enumerate(zip(particles.structures, particles.z, strict=True)):
        k = PRIOR.kernel(structure, z[1:])
        torch.testing.assert_close(own[m], k(X) + PRIOR.grammar.mean_variance)
        torch.testing.assert_close(cross[m], k(X, Z) + PRIOR.grammar.mean_variance)
        torch.testing.assert_close(diagonals[m], k.diagonal(X) + PRIOR.grammar.mean_variance)
        torch.testing.assert_close(nuggets[m], PRIOR.nugget(z[0]))


def test_a_structure_may_be_given() -> None:
    k = Structure.parse("LINEAR + MATERN")
    particles = Particles.drawn(PRIOR, 500, seeded(0), k)
    assert set(particles.structures) == {k}
    numbers = torch.stack(particles.z)
    assert numbers.shape == (500, 1 + PRIOR.size(k))
    assert float(numbers.mean(0).abs().max()) < 5 / 500**0.5


def test_they_are_chosen_replaced_packed_and_unpacked() -> None:
    particles = Particles.drawn(PRIOR, 5, seeded(0))
    some = particles.chosen([3, 3, 0])
    assert some.structures == tuple(particles.structures[i] for i in (3, 3, 0))
    changed = particles.replaced([1, 2, 4], some)
    for place, source in enumerate((0, 3, 3, 3, 0)):
        assert changed.structures[place] == particles.structures[source]
        assert torch.equal(changed.z[place], particles.z[source])
    packed = particles.packed()
    assert packed.shape == (5, max(map(len, particles.z)))
    again = particles.unpacked(packed)
    assert all(torch.equal(a, b) for a, b in zip(again.z, particles.z, strict=True))
    assert again.structures == particles.structures

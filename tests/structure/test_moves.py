"""Moves between structures: detailed balance by enumeration of everything they may draw, and by draws."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from scipy.stats import chisquare, kstest
from torch import Tensor

from sureshot.structure.collapsed import Collapsed
from sureshot.structure.contrasts import Contrasts
from sureshot.structure.grammar import Grammar, KernelPrior
from sureshot.structure.moves import MOVES, Move, Proposal
from sureshot.structure.particles import Particles
from sureshot.structure.rejuvenation import Data, move
from sureshot.structure.structure import Structure
from tests.structure.oracles import F64, seeded
from tests.structure.words import all_structures

PRIOR = KernelPrior(Grammar({"LINEAR": 2.0, "MATERN": 1.0}, p_sum=0.2, p_product=0.15, max_depth=3), 2)
SMALL = all_structures(("LINEAR", "MATERN"), 5, 3)


class _EndlessError(Exception):
    """A path beyond every depth, whose proposal is rejected."""


class Outcomes:
    """In the place of torch's draws: each outcome in turn, and its probability, until all have had their turn.

    Uniform numbers are compared with one half or with zero, so a quarter and three quarters stand for all of them.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._plan: list[int] = []  # which outcome of each draw; 0 beyond its end
        self._sizes: list[int] = []
        self._probability, self._n_uniform = 1.0, 0
        for name in ("rand", "randint", "multinomial"):
            patch.setattr(torch, name, getattr(self, f"_{name}"))

    def of(self, a_move: Move, structure: Structure) -> Iterator[tuple[float, Proposal]]:
        z, generator = torch.zeros(PRIOR.size(structure), dtype=F64), seeded(0)
        self._plan = []
        while True:
            self._sizes, self._probability, self._n_uniform = [], 1.0, 0
            try:
                found = a_move(PRIOR, structure, z, generator)
                yield self._probability, found
            except _EndlessError:
                pass
            plan = [*self._plan, *[0] * (len(self._sizes) - len(self._plan))]
            while plan and plan[-1] + 1 == self._sizes[len(plan) - 1]:
                plan.pop()
            if not plan:
                return
            self._plan = [*plan[:-1], plan[-1] + 1]

    def _next(self, probabilities: list[float]) -> int:
        place = len(self._sizes)
        self._sizes.append(len(probabilities))
        chosen = self._plan[place] if place < len(self._plan) else 0
        self._probability *= probabilities[chosen]
        return chosen

    def _rand(self, *_: Any, **__: Any) -> float:
        self._n_uniform += 1
        if self._n_uniform > 4:
            raise _EndlessError
        return [0.25, 0.75][self._next([0.5, 0.5])]

    def _randint(self, n: int, *_: Any, **__: Any) -> int:
        return self._next([1 / n] * n)

    def _multinomial(self, weights: Tensor, *_: Any, **__: Any) -> int:
        values = weights.tolist()
        total = sum(values)
        return self._next([value / total for value in values])


@pytest.mark.slow
@pytest.mark.parametrize("name", MOVES)
def test_detailed_balance_is_exact(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between all structures of up to five nodes, whatever is drawn on the way."""
    outcomes, flows, mass = Outcomes(monkeypatch), defaultdict(float), 0.0
    for structure in SMALL:
        p = math.exp(PRIOR.log_probability(structure))
        for q, proposal in outcomes.of(MOVES[name], structure):
            flows[structure, proposal.structure] += p * q * min(1.0, math.exp(proposal.log_ratio))
            mass += q
    assert 0.9 * len(SMALL) < mass < (1 + 1e-9) * len(SMALL), "what is left out are paths beyond every depth"
    pairs = [(a, b) for a, b in flows if a != b and len(b) <= 5 and flows[a, b] > 0]
    assert all(abs(flows[a, b] - flows[b, a]) < 1e-12 for a, b in pairs)
    moved = {a for a, _ in pairs}
    assert len(moved) == {"perturb_leaf": 0, "swap_operator": 72}.get(name, 74)


def expected_counts(n: int) -> tuple[list[Structure], Tensor]:
    """Structures of up to five nodes that are not rare, and how many of n there ought to be; the rest at the end."""
    shares = torch.tensor([math.exp(PRIOR.log_probability(one)) for one in SMALL], dtype=F64)
    common = (n * shares > 8).nonzero().flatten()
    return [SMALL[i] for i in common], n * torch.cat([shares[common], 1 - shares[common].sum(0, keepdim=True)])


@pytest.mark.parametrize("name", MOVES)
def test_without_data_the_moves_keep_the_prior(name: str) -> None:
    n, generator = 900, seeded(0)
    particles, latent = Particles.drawn(PRIOR, n, generator), Collapsed.empty(n)
    data, start, accepted = Data.of(PRIOR, torch.zeros(0, 2, dtype=F64), Contrasts.none()), particles, 0
    for _ in range(3):
        particles, latent, count = move(name, data, particles, latent, generator)
        accepted += count
    changed = sum(not torch.equal(a, b) for a, b in zip(start.z, particles.z, strict=True))
    assert changed > 0.2 * n or name == "swap_operator"  # which keeps all numbers
    assert accepted > 0.2 * n
    common, expected = expected_counts(n)
    counts = Counter(particles.structures)
    found = [counts[one] for one in common]
    assert len(common) >= 6
    assert chisquare([*found, n - sum(found)], expected * n / expected.sum()).pvalue > 1e-3
    assert kstest(torch.cat(particles.z), "norm").pvalue > 1e-3
    # The nugget's number is nobody's leaf.
    assert all(torch.equal(a[0], b[0]) for a, b in zip(start.z, particles.z, strict=True))


def blocks(structure: Structure, z: Tensor) -> list[tuple[str, tuple[float, ...]]]:
    parts = z.split(PRIOR.leaf_sizes(structure))
    return [(structure.symbols[leaf], tuple(part.tolist())) for leaf, part in zip(structure.leaves, parts, strict=True)]


@pytest.mark.parametrize("name", MOVES)
def test_leaves_that_stay_keep_their_parameters_and_new_ones_are_standard_normal(name: str) -> None:
    structure = Structure.parse("LINEAR x MATERN + LINEAR")
    generator, new, n_kept = seeded(1), [], Counter()
    for _ in range(400):
        z = torch.randn(PRIOR.size(structure), generator=generator, dtype=F64)
        proposal = MOVES[name](PRIOR, structure, z, generator)
        before, after = Counter(blocks(structure, z)), Counter(blocks(proposal.structure, proposal.z))
        kept = before & after
        assert len(proposal.z) == PRIOR.size(proposal.structure)
        new += [number for _, part in after - kept for number in part]
        n_kept[sum(kept.values())] += 1
        symbols = [symbol for symbol, _ in kept.elements()]
        assert not Counter(symbols) - Counter(proposal.structure.symbols)
    most = {
        "replace_subtree": {0, 1, 2},
        "detach_or_attach": {1, 2, 3},
        "redraw_leaf": {2},
        "perturb_leaf": {2},
        "swap_operator": {3},
        "grow_or_prune": {2, 3},
    }[name]
    assert most <= set(n_kept) <= most | {3}
    if name != "swap_operator":
        assert kstest(new, "norm").pvalue > 1e-3


def test_leaves_stay_where_they_were() -> None:
    """Those before and behind a subtree that is replaced, in their order."""
    structure = Structure.parse("LINEAR + MATERN x LINEAR")
    z, generator = torch.arange(6, dtype=F64), seeded(2)
    seen = set()
    for _ in range(200):
        proposal = MOVES["redraw_leaf"](PRIOR, structure, z, generator)
        parts = proposal.z.split(2)
        stays = [place for place in range(3) if torch.equal(parts[place], z[2 * place : 2 * place + 2])]
        seen.add(tuple(stays))
    assert seen == {(0, 1), (0, 2), (1, 2)}


def test_perturbed_parameters_are_near() -> None:
    structure, generator = Structure.parse("LINEAR"), seeded(0)
    z = torch.randn(2000, 2, generator=generator, dtype=F64)
    new = torch.stack([MOVES["perturb_leaf"](PRIOR, structure, one, generator).z for one in z])
    assert torch.corrcoef(torch.stack([z[:, 0], new[:, 0]]))[0, 1].item() == pytest.approx(0.9, abs=0.02)


def test_a_grammar_of_leaves_only() -> None:
    prior = KernelPrior(Grammar({"LINEAR": 1.0, "MATERN": 1.0}, max_depth=1), 1)
    generator, z = seeded(0), torch.zeros(2, dtype=F64)
    for name in MOVES:
        for _ in range(20):
            proposal = MOVES[name](prior, Structure(("LINEAR",)), z, generator)
            assert len(proposal.structure) == 1
            assert not math.isnan(proposal.log_ratio)


def test_a_fixed_seed_fixes_them() -> None:
    structure = Structure.parse("LINEAR x MATERN + LINEAR")
    z = torch.zeros(6, dtype=F64)
    for name in MOVES:
        first, second = (MOVES[name](PRIOR, structure, z, seeded(3)) for _ in range(2))
        assert first.structure == second.structure
        assert torch.equal(first.z, second.z)
        assert first.log_ratio == second.log_ratio

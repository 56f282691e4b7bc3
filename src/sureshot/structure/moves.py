"""Moves between kernels of different structures, with what detailed balance asks of them.

A move proposes another structure, with parameters: those of leaves that stay are kept, those of new leaves are standard
normal, as a priori. Then densities of parameters cancel and the Jacobian is 1, and a proposal is accepted with
probability ``min(1, L' / L exp(log_ratio))``, L the likelihood and `Proposal.log_ratio` the logarithm of

    p(k') q(k' -> k) / (p(k) q(k -> k')),

with choices on the way (a node, a path) as auxiliary variables that the way back has, too. Proposals that the grammar
cannot make have a ratio of zero; none is drawn anew.

Reference: Saad et al. 2023 (AutoGP), for subtree-replace and detach-attach; their ratios are derived again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from sureshot.structure.grammar import KernelPrior
from sureshot.structure.structure import OPERATORS, PRODUCT, SUM, Structure


class Proposal(NamedTuple):
    """Where a move would go."""

    structure: Structure
    z: Tensor  # (P,)
    log_ratio: float  # see the module's docstring


Move = Callable[[KernelPrior, Structure, Tensor, torch.Generator], Proposal]
"""From a structure and its parameters (P,)."""


def replace_subtree(prior: KernelPrior, structure: Structure, z: Tensor, generator: torch.Generator) -> Proposal:
    """A uniform node's subtree is drawn from the grammar."""
    tree = _Tree.of(prior, structure, z)
    node = _uniform(len(structure), generator)
    proposed = tree.replaced(node, _Tree.drawn(prior, generator, structure.depths[node]))
    return proposed.proposal(math.log(len(structure) / len(proposed.structure)))


def detach_or_attach(prior: KernelPrior, structure: Structure, z: Tensor, generator: torch.Generator) -> Proposal:
    """A subtree takes the place of one above it, or moves down a random path of a new one in its place."""
    if float(torch.rand((), generator=generator, dtype=torch.float32)) < _p_detach(structure):
        return _detach(prior, structure, z, generator)
    return _attach(prior, structure, z, generator)


def redraw_leaf(prior: KernelPrior, structure: Structure, z: Tensor, generator: torch.Generator) -> Proposal:
    """A uniform leaf, its kind and its parameters, is drawn from the grammar."""
    tree = _Tree.of(prior, structure, z)
    leaf = structure.leaves[_uniform(len(structure.leaves), generator)]
    return tree.replaced(leaf, _Tree.leaf(prior, generator)).proposal(0.0)


def perturb_leaf(prior: KernelPrior, structure: Structure, z: Tensor, generator: torch.Generator) -> Proposal:
    """The parameters of a uniform leaf are drawn near theirs, so that the prior is kept: ``r z + sqrt(1 - r^2) N``."""
    tree = _Tree.of(prior, structure, z)
    leaf = structure.leaves[_uniform(len(structure.leaves), generator)]
    old = tree.blocks[structure.leaves_below(leaf).start]
    new = _KEPT * old + math.sqrt(1 - _KEPT**2) * _normal(len(old), generator)
    return tree.replaced(leaf, _Tree(structure.subtree(leaf), (new,))).proposal(0.0)


def swap_operator(prior: KernelPrior, structure: Structure, z: Tensor, generator: torch.Generator) -> Proposal:
    """A uniform operator becomes the other one; a leaf alone stays."""
    operators = [i for i in range(len(structure)) if not structure.is_leaf(i)]
    if not operators:
        return Proposal(structure, z, 0.0)
    at = operators[_uniform(len(operators), generator)]
    other = PRODUCT if structure.symbols[at] == SUM else SUM
    proposed = Structure((*structure.symbols[:at], other, *structure.symbols[at + 1 :]))
    return Proposal(proposed, z, prior.log_probability(proposed) - prior.log_probability(structure))


def grow_or_prune(prior: KernelPrior, structure: Structure, z: Tensor, generator: torch.Generator) -> Proposal:
    """A leaf from the grammar joins a uniform node's subtree by an operator, or an operand that is a leaf goes."""
    if float(torch.rand((), generator=generator, dtype=torch.float32)) < _p_prune(structure):
        return _prune(prior, structure, z, generator)
    return _grow(prior, structure, z, generator)


MOVES: dict[str, Move] = {
    "replace_subtree": replace_subtree,
    "detach_or_attach": detach_or_attach,
    "redraw_leaf": redraw_leaf,
    "perturb_leaf": perturb_leaf,
    "swap_operator": swap_operator,
    "grow_or_prune": grow_or_prune,
}
"""By name."""

_KEPT = 0.9  # of a leaf's parameters when they are perturbed


class _Tree(NamedTuple):
    """A structure with the parameters of its leaves."""

    structure: Structure
    blocks: tuple[Tensor, ...]

    @classmethod
    def of(cls, prior: KernelPrior, structure: Structure, z: Tensor) -> _Tree:
        return cls(structure, tuple(z.split(prior.leaf_sizes(structure))))

    @classmethod
    def drawn(cls, prior: KernelPrior, generator: torch.Generator, depth: int) -> _Tree:
        """From the grammar, at a depth."""
        return cls._new(prior, prior.sample(generator, depth), generator)

    @classmethod
    def leaf(cls, prior: KernelPrior, generator: torch.Generator) -> _Tree:
        """A leaf from the grammar."""
        return cls._new(prior, Structure((prior.sample_leaf(generator),)), generator)

    @classmethod
    def _new(cls, prior: KernelPrior, structure: Structure, generator: torch.Generator) -> _Tree:
        return cls(structure, tuple(_normal(size, generator) for size in prior.leaf_sizes(structure)))

    @classmethod
    def joined(cls, operator: str, sides: Sequence[_Tree]) -> _Tree:
        first, second = sides
        symbols = (operator, *first.structure.symbols, *second.structure.symbols)
        return cls(Structure(symbols), first.blocks + second.blocks)

    def subtree(self, node: int) -> _Tree:
        return _Tree(self.structure.subtree(node), self.blocks[self.structure.leaves_below(node)])

    def replaced(self, node: int, other: _Tree) -> _Tree:
        below = self.structure.leaves_below(node)
        blocks = self.blocks[: below.start] + other.blocks + self.blocks[below.stop :]
        return _Tree(self.structure.replaced(node, other.structure), blocks)

    def proposal(self, log_ratio: float) -> Proposal:
        return Proposal(self.structure, torch.cat(self.blocks), log_ratio)


def _detach(prior: KernelPrior, structure: Structure, z: Tensor, generator: torch.Generator) -> Proposal:
    tree = _Tree.of(prior, structure, z)
    above = _uniform(len(structure), generator)
    inside = tree.subtree(above)
    below = _uniform(len(inside.structure), generator)
    proposed = tree.replaced(above, inside.subtree(below))
    there = math.log(_p_detach(structure) / len(structure) / len(inside.structure))
    sides = _log_probability_of_path(prior, inside.structure, below, structure.depths[above])
    back = math.log((1 - _p_detach(proposed.structure)) / len(proposed.structure)) + sides
    return proposed.proposal(_prior_ratio(prior, proposed.structure, structure) + back - there)


def _attach(prior: KernelPrior, structure: Structure, z: Tensor, generator: torch.Generator) -> Proposal:
    tree = _Tree.of(prior, structure, z)
    above = _uniform(len(structure), generator)
    depth = structure.depths[above]
    path: list[int] = []
    while float(torch.rand((), generator=generator, dtype=torch.float32)) < 0.5:
        path.append(_uniform(2, generator))
    if not path:
        return Proposal(structure, z, 0.0)
    if not prior.operator_probabilities(1):
        return Proposal(structure, z, -math.inf)
    if depth + len(path) > prior.grammar.max_depth:
        return Proposal(structure, z, -math.inf)
    new, below = tree.subtree(above), 0
    for level in reversed(range(len(path))):
        side = _Tree.drawn(prior, generator, depth + level + 1)
        below += 1 if path[level] == 0 else 1 + len(side.structure)
        sides = (new, side) if path[level] == 0 else (side, new)
        new = _Tree.joined(prior.sample_operator(generator), sides)
    proposed = tree.replaced(above, new)
    there = math.log((1 - _p_detach(structure)) / len(structure))
    there += _log_probability_of_path(prior, new.structure, below, depth)
    back = math.log(_p_detach(proposed.structure) / len(proposed.structure) / len(new.structure))
    return proposed.proposal(_prior_ratio(prior, proposed.structure, structure) + back - there)


def _log_probability_of_path(
    prior: KernelPrior,
    new: Structure,
    below: int,  # the node of it at the end of the path
    depth: int,  # of its root
) -> float:
    """That a path from the root ends where it does, and of the operators and side subtrees along it."""
    found, node = math.log(0.5), 0
    conditional = prior.operator_probabilities(1)
    total = sum(conditional.values())
    while node != below:
        first, second = new.children(node)
        chosen, side = (first, second) if below < second else (second, first)
        found += math.log(0.25 * conditional.get(new.symbols[node], 0.0) / total)
        found += prior.log_probability(new.subtree(side), depth + new.depths[side] - 1)
        node = chosen
    return found


def _grow(prior: KernelPrior, structure: Structure, z: Tensor, generator: torch.Generator) -> Proposal:
    conditional = prior.operator_probabilities(1)
    if not conditional:
        return Proposal(structure, z, -math.inf)
    tree = _Tree.of(prior, structure, z)
    node, side = _uniform(len(structure), generator), _uniform(2, generator)
    leaf, operator = _Tree.leaf(prior, generator), prior.sample_operator(generator)
    old = tree.subtree(node)
    proposed = tree.replaced(node, _Tree.joined(operator, (leaf, old) if side == 0 else (old, leaf)))
    there = math.log((1 - _p_prune(structure)) / len(structure) / 2) + _log_probability_of_growth(
        prior, operator, leaf.structure.symbols[0]
    )
    back = math.log(_p_prune(proposed.structure) / len(_prunable(proposed.structure)))
    return proposed.proposal(_prior_ratio(prior, proposed.structure, structure) + back - there)


def _prune(prior: KernelPrior, structure: Structure, z: Tensor, generator: torch.Generator) -> Proposal:
    tree = _Tree.of(prior, structure, z)
    pairs = _prunable(structure)
    node, side = pairs[_uniform(len(pairs), generator)]
    children = structure.children(node)
    proposed = tree.replaced(node, tree.subtree(children[1 - side]))
    there = math.log(_p_prune(structure) / len(pairs))
    back = math.log((1 - _p_prune(proposed.structure)) / len(proposed.structure) / 2) + _log_probability_of_growth(
        prior, structure.symbols[node], structure.symbols[children[side]]
    )
    return proposed.proposal(_prior_ratio(prior, proposed.structure, structure) + back - there)


def _log_probability_of_growth(prior: KernelPrior, operator: str, leaf: str) -> float:
    conditional = prior.operator_probabilities(1)
    return math.log(conditional[operator] / sum(conditional.values()) * prior.leaf_probabilities[leaf])


def _prunable(structure: Structure) -> list[tuple[int, int]]:
    """Operators and which of their operands, each a leaf."""
    operators = [i for i in range(len(structure)) if structure.symbols[i] in OPERATORS]
    return [
        (i, side) for i in operators for side, child in enumerate(structure.children(i)) if structure.is_leaf(child)
    ]


def _p_detach(structure: Structure) -> float:
    return 0.5 if len(structure) > 1 else 0.0


def _p_prune(structure: Structure) -> float:
    return 0.5 if len(structure) > 1 else 0.0


def _prior_ratio(prior: KernelPrior, new: Structure, old: Structure) -> float:
    return prior.log_probability(new) - prior.log_probability(old)


def _uniform(n: int, generator: torch.Generator) -> int:
    return int(torch.randint(n, (), generator=generator))


def _normal(n: int, generator: torch.Generator) -> Tensor:
    return torch.randn(n, generator=generator, dtype=torch.float64)

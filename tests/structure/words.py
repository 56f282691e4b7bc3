"""Random structures, and all small ones."""

from __future__ import annotations

from hypothesis import strategies as st

from sureshot.structure.structure import OPERATORS, Structure

LEAVES = ("LINEAR", "SQUARED-EXPONENTIAL", "GAMMA-EXPONENTIAL", "PERIODIC", "CONSTANT", "MATERN", "BROWNIAN")


def structures(leaves: tuple[str, ...] = (*LEAVES, "LINEAR[0]", "MATERN[2]"), largest: int = 12) -> st.SearchStrategy:
    """Random ones, mostly small, with at most so many leaves."""
    words = st.recursive(
        st.sampled_from(leaves).map(lambda leaf: (leaf,)),
        lambda parts: st.tuples(st.sampled_from(OPERATORS), parts, parts).map(
            lambda found: (found[0], *found[1], *found[2])
        ),
        max_leaves=largest,
    )
    return words.map(Structure)


def all_structures(leaves: tuple[str, ...], max_nodes: int, max_depth: int) -> list[Structure]:
    """Every one up to a size and a depth."""
    by_size: dict[int, list[Structure]] = {1: [Structure((leaf,)) for leaf in leaves]}
    for size in range(3, max_nodes + 1, 2):
        by_size[size] = [
            Structure((operator, *first.symbols, *second.symbols))
            for operator in OPERATORS
            for left in range(1, size - 1, 2)
            for first in by_size[left]
            for second in by_size[size - 1 - left]
        ]
    return [found for size in by_size for found in by_size[size] if found.depth <= max_depth]

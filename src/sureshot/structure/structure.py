"""A structure: which kernels are added and multiplied, without their parameters.

A structure is a binary tree of operators with kinds of kernels at its leaves, held in Polish notation: an operator,
then its two operands. So nodes are positions, a subtree is a run of symbols, and structures are compared, counted and
put into each other as tuples are. With parameters it is a kernel (`sureshot.structure.grammar.KernelPrior.kernel`).

>>> k = Structure.parse("(LINEAR + PERIODIC[2]) x SQUARED-EXPONENTIAL")
>>> k.symbols
('x', '+', 'LINEAR', 'PERIODIC[2]', 'SQUARED-EXPONENTIAL')
>>> print(k.subtree(1), "of depth", k.depth)
LINEAR + PERIODIC[2] of depth 3
>>> print(k.replaced(1, Structure.parse("CONSTANT")))
CONSTANT x SQUARED-EXPONENTIAL
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

SUM, PRODUCT = "+", "x"
OPERATORS = (SUM, PRODUCT)
MOST_LEAVES = 128
"""Of a structure that is read: as many as grammars of depth 8 make, and few enough to compute with its kernel."""
_NAME = r"[A-Za-z][A-Za-z0-9_/-]*"
_TOKEN = re.compile(rf"\s*([()+*]|×|x(?=[\s(])|{_NAME}(?:\[[0-9]+\])?)")


@dataclass(frozen=True)
class Structure:
    """A word of the grammar in Polish notation; ValueError if it is none."""

    symbols: tuple[str, ...]

    def __post_init__(self) -> None:
        wanted = 1
        for place, symbol in enumerate(self.symbols):
            if wanted == 0:
                raise ValueError(f"{' '.join(self.symbols)}: nothing is expected behind symbol {place}")
            wanted += 1 if symbol in OPERATORS else -1
        if wanted:
            raise ValueError(f"{' '.join(self.symbols)!r}: {wanted} operands are missing")

    @classmethod
    def parse(cls, text: str) -> Structure:
        """From what `str` gives; products bind closer than sums, and * and × are read as x.

        ValueError for anything else, and for more than `MOST_LEAVES` leaves.
        """
        if not isinstance(text, str):
            raise ValueError(f"a structure must be text such as 'LINEAR + PERIODIC[2]', got {reprlib.repr(text)}")
        tokens = _tokens(text)
        n_leaves = sum(token not in (*OPERATORS, "(", ")") for token in tokens)
        if n_leaves > MOST_LEAVES:
            raise ValueError(f"the structure has {n_leaves} leaves, and at most {MOST_LEAVES} are taken")
        try:
            symbols = _sum(tokens)
        except RecursionError:
            raise ValueError("the structure is nested too deep") from None
        if tokens:
            raise ValueError(f"{text!r}: nothing is expected at {tokens[-1]!r}")
        return cls(symbols)

    def __len__(self) -> int:
        """Nodes: operators and leaves."""
        return len(self.symbols)

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """For each node the position behind its subtree."""
        ends = [0] * len(self)
        for i in reversed(range(len(self))):
            ends[i] = i + 1 if self.is_leaf(i) else ends[ends[i + 1]]
        return tuple(ends)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """For each node the number of nodes from the root to it, both counted."""
        depths = [1] * len(self)
        for i in range(len(self)):
            if not self.is_leaf(i):
                for child in self.children(i):
                    depths[child] = depths[i] + 1
        return tuple(depths)

    @property
    def depth(self) -> int:
        """Nodes on the longest path from the root to a leaf; 1 for a leaf alone."""
        return max(self.depths)

    @cached_property
    def leaves(self) -> tuple[int, ...]:
        """Positions of the leaves."""
        return tuple(i for i in range(len(self)) if self.is_leaf(i))

    def is_leaf(self, i: int) -> bool:
        """Whether node i is a leaf."""
        return self.symbols[i] not in OPERATORS

    def children(self, i: int) -> tuple[int, int]:
        """Positions of the operands of operator i."""
        return i + 1, self.ends[i + 1]

    def subtree(self, i: int) -> Structure:
        """What is at node i and below."""
        return Structure(self.symbols[i : self.ends[i]])

    def replaced(self, i: int, other: Structure) -> Structure:
        """With another structure in the place of the subtree of node i."""
        return Structure(self.symbols[:i] + other.symbols + self.symbols[self.ends[i] :])

    def leaves_below(self, i: int) -> slice:
        """Which of `leaves` belong to the subtree of node i: a run of them."""
        before = sum(leaf < i for leaf in self.leaves)
        return slice(before, before + (self.ends[i] - i + 1) // 2)

    def operands(self) -> Iterator[Structure]:
        """Of the operator at the root, with those of the same operator in their place: both are associative."""
        waiting = [*reversed(self.children(0))]
        while waiting:
            child = waiting.pop()
            if self.symbols[child] == self.symbols[0]:
                waiting += reversed(self.children(child))
            else:
                yield self.subtree(child)

    def __str__(self) -> str:
        if len(self) == 1:
            return self.symbols[0]
        operator = self.symbols[0]
        parts = [
            f"({part})" if operator == PRODUCT and part.symbols[0] == SUM else str(part) for part in self.operands()
        ]
        return f" {operator} ".join(parts)


def joined(operator: str, parts: list[Structure]) -> Structure:
    """One structure of several, the first two first."""
    found = parts[0]
    for part in parts[1:]:
        found = Structure((operator, *found.symbols, *part.symbols))
    return found


def is_leaf_name(text: str) -> bool:
    """Whether text can name a leaf, so that `Structure.parse` reads what `str` writes."""
    return text not in OPERATORS and re.fullmatch(_NAME, text) is not None


def _tokens(text: str) -> list[str]:
    """In reverse, to be popped."""
    tokens, place, end = [], 0, len(text.rstrip())
    while place < end:
        match = _TOKEN.match(text, place)
        if match is None:
            odd = text[place:].strip()
            advice = ": columns are whole numbers, as in LINEAR[2]" if odd[0] == "[" else ""
            raise ValueError(f"{text!r}: {odd[0]!r} is not understood{advice}")
        token = match.group(1).replace("*", PRODUCT).replace("×", PRODUCT)
        tokens.append(re.sub(r"\[0+(?=[0-9])", "[", token))  # column 01 is column 1
        place = match.end()
    return tokens[::-1]


def _sum(tokens: list[str]) -> tuple[str, ...]:
    found = _product(tokens)
    while tokens and tokens[-1] == SUM:
        tokens.pop()
        found = (SUM, *found, *_product(tokens))
    return found


def _product(tokens: list[str]) -> tuple[str, ...]:
    found = _operand(tokens)
    while tokens and tokens[-1] == PRODUCT:
        tokens.pop()
        found = (PRODUCT, *found, *_operand(tokens))
    return found


def _operand(tokens: list[str]) -> tuple[str, ...]:
    if not tokens:
        raise ValueError("the structure ends where a kernel is expected")
    token = tokens.pop()
    if token == "(":
        found = _sum(tokens)
        if not tokens or tokens.pop() != ")":
            raise ValueError("the structure has an opening bracket that is not closed")
        return found
    if token in (*OPERATORS, ")"):
        raise ValueError(f"the structure has {token!r} where a kernel is expected")
    return (token,)

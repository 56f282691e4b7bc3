"""Structures that say the same are one: the canonical form.

Sums and products are sorted, and operands that together are one of them for other parameters are merged: CONSTANT is
absorbed by any product (each leaf has an amplitude of its own) and by a sum with LINEAR; two CONSTANT, two LINEAR that
are added and two SQUARED-EXPONENTIAL that are multiplied are one. So the set of kernels that a structure can be is
kept, though not how probable each of them is.

>>> print(canonical(Structure.parse("SQUARED-EXPONENTIAL x CONSTANT x SQUARED-EXPONENTIAL + LINEAR + CONSTANT")))
LINEAR + SQUARED-EXPONENTIAL
"""

from __future__ import annotations

from sureshot.data.checks import near
from sureshot.structure.grammar import split_symbol
from sureshot.structure.leaves import LEAVES
from sureshot.structure.structure import PRODUCT, SUM, Structure, joined

_CONSTANT = "CONSTANT"


def canonical(structure: Structure) -> Structure:
    """The form in which structures are compared; ValueError for a leaf that is not known."""
    if len(structure) == 1:
        return Structure((_CONSTANT,)) if _name(structure) == _CONSTANT else structure  # of one column: the same
    operator = structure.symbols[0]
    parts: list[Structure] = []
    for operand in structure.operands():
        part = canonical(operand)
        parts += part.operands() if part.symbols[0] == operator else [part]
    leaves = [part for part in parts if len(part) == 1]
    merged = _product_of(leaves, len(parts)) if operator == PRODUCT else _sum_of(leaves)
    found = sorted([*merged, *(part for part in parts if len(part) > 1)], key=lambda part: (len(part), part.symbols))
    return found[0] if len(found) == 1 else joined(operator, found)


def _product_of(leaves: list[Structure], n_factors: int) -> list[Structure]:
    constants = [leaf for leaf in leaves if _name(leaf) == _CONSTANT]
    others = [leaf for leaf in leaves if _name(leaf) != _CONSTANT]
    if len(constants) == n_factors:
        return [Structure((_CONSTANT,))]
    return _closed(others, PRODUCT)


def _sum_of(leaves: list[Structure]) -> list[Structure]:
    found = _closed(leaves, SUM)
    constants = [leaf for leaf in found if _name(leaf) == _CONSTANT]
    others = [leaf for leaf in found if _name(leaf) != _CONSTANT]
    if any(LEAVES[_name(leaf)].contains_constant for leaf in others):
        return others
    return others + ([Structure((_CONSTANT,))] if constants else [])


def _closed(leaves: list[Structure], operator: str) -> list[Structure]:
    """Each leaf once where its kind is closed under the operator."""
    found: list[Structure] = []
    for leaf in leaves:
        if leaf not in found or operator not in LEAVES[_name(leaf)].closed_under:
            found.append(leaf)
    return found


def _name(leaf: Structure) -> str:
    name = split_symbol(leaf.symbols[0])[0]
    if name not in LEAVES:
        raise ValueError(f"there is no leaf {name!r}{near(name, LEAVES)}; leaves: {', '.join(LEAVES)}")
    return name

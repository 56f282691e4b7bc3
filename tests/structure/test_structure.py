"""Structures as values: written, read, cut and joined, against nested tuples."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sureshot.structure.structure import MOST_LEAVES, OPERATORS, PRODUCT, Structure, joined
from tests.structure.words import all_structures, structures

Nested = Any  # the symbol of a leaf, or (operator, first, second)


def nested(structure: Structure) -> Nested:
    symbols = list(structure.symbols)

    def read() -> Nested:
        symbol = symbols.pop(0)
        return (symbol, read(), read()) if symbol in OPERATORS else symbol

    return read()


def paths(tree: Nested, path: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    """The way to each node, in the order of Polish notation."""
    below = [] if isinstance(tree, str) else [*paths(tree[1], (*path, 1)), *paths(tree[2], (*path, 2))]
    return [path, *below]


def at(tree: Nested, path: tuple[int, ...]) -> Nested:
    return at(tree[path[0]], path[1:]) if path else tree


def put(tree: Nested, path: tuple[int, ...], other: Nested) -> Nested:
    if not path:
        return other
    parts = list(tree)
    parts[path[0]] = put(parts[path[0]], path[1:], other)
    return tuple(parts)


def leaves(tree: Nested) -> list[str]:
    return [tree] if isinstance(tree, str) else leaves(tree[1]) + leaves(tree[2])


@given(structures())
def test_what_is_printed_is_read(structure: Structure) -> None:
    """Up to brackets within sums and within products, which are not printed."""
    again = Structure.parse(str(structure))
    assert str(again) == str(structure)
    assert Structure.parse(str(again)) == again
    assert len(again) == len(structure)
    assert [again.symbols[i] for i in again.leaves] == [structure.symbols[i] for i in structure.leaves]


@given(structures())
def test_brackets_are_kept_where_they_say_something(structure: Structure) -> None:
    """Values at numbers in the place of leaves."""
    values = {leaf: 2.0 + i for i, leaf in enumerate(sorted({structure.symbols[i] for i in structure.leaves}))}

    def value(tree: Nested) -> float:
        if isinstance(tree, str):
            return values[tree]
        first, second = value(tree[1]), value(tree[2])
        return first * second if tree[0] == PRODUCT else first + second

    assert value(nested(Structure.parse(str(structure)))) == pytest.approx(value(nested(structure)))


@given(structures(), structures(largest=4), st.integers(0, 10**6))
def test_subtrees_against_nested_tuples(structure: Structure, other: Structure, number: int) -> None:
    tree, i = nested(structure), number % len(structure)
    ways = paths(tree)
    assert len(ways) == len(structure)
    assert [len(way) + 1 for way in ways] == list(structure.depths)
    assert structure.depth == max(map(len, ways)) + 1
    assert nested(structure.subtree(i)) == at(tree, ways[i])
    assert nested(structure.replaced(i, other)) == put(tree, ways[i], nested(other))
    assert structure.ends[i] - i == len(structure.subtree(i))
    assert [structure.symbols[leaf] for leaf in structure.leaves] == leaves(tree)
    assert leaves(tree)[structure.leaves_below(i)] == leaves(at(tree, ways[i]))
    assert structure.is_leaf(i) == isinstance(at(tree, ways[i]), str)
    if not structure.is_leaf(i):
        assert [ways[child] for child in structure.children(i)] == [(*ways[i], 1), (*ways[i], 2)]


@given(structures())
def test_operands_are_those_of_the_flat_operator(structure: Structure) -> None:
    if len(structure) == 1:
        return
    operator = structure.symbols[0]
    parts = list(structure.operands())
    assert all(part.symbols[0] != operator for part in parts)
    assert [leaf for part in parts for leaf in leaves(nested(part))] == leaves(nested(structure))
    assert list(joined(operator, parts).operands()) == parts


def test_how_many_small_ones_there_are() -> None:
    """With two leaves: 2, then two operators times 2 x 2, then two times (2 x 8 + 8 x 2)."""
    sizes = [len(structure) for structure in all_structures(("LINEAR", "CONSTANT"), 5, 3)]
    assert [sizes.count(n) for n in (1, 3, 5)] == [2, 8, 64]
    assert len(set(all_structures(("LINEAR", "CONSTANT"), 7, 3))) == 2 + 8 + 64 + 128


def test_other_ways_to_write_it() -> None:
    k = Structure.parse("(LINEAR + CONSTANT) x MATERN[2]")
    for text in (
        "(LINEAR+CONSTANT)×MATERN[2]",
        "( LINEAR + CONSTANT )*MATERN[2] ",
        "((LINEAR + CONSTANT)) x (MATERN[2])",
    ):
        assert Structure.parse(text) == k
    assert Structure.parse("A + B x C").symbols == ("+", "A", "x", "B", "C")
    assert Structure.parse("A x(B + C)").symbols == ("x", "A", "+", "B", "C")
    assert Structure.parse("LINEAR[01] + LINEAR[00] + LINEAR[10]") == Structure.parse(
        "LINEAR[1] + LINEAR[0] + LINEAR[10]"
    )


@pytest.mark.parametrize("operator", ["+", "x"])
def test_many_terms_are_printed_and_read(operator: str) -> None:
    most = f" {operator} ".join(["LINEAR", "MATERN[3]"] * (MOST_LEAVES // 2))
    assert str(Structure.parse(most)) == most
    n = 3000  # more than Python calls itself
    for symbols in ((operator, "MATERN") * (n - 1) + ("MATERN",), (operator,) * (n - 1) + ("MATERN",) * n):
        assert str(Structure(symbols)) == f" {operator} ".join(["MATERN"] * n)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "ends where a kernel is expected"),
        ("   ", "ends where a kernel is expected"),
        ("LINEAR +", "ends where a kernel is expected"),
        ("LINEAR x ", "nothing is expected|ends where a kernel is expected"),
        ("+ LINEAR", r"'\+' where a kernel is expected"),
        ("LINEAR + x LINEAR", "'x' where a kernel is expected"),
        ("()", r"'\)' where a kernel is expected"),
        ("(LINEAR", "bracket that is not closed"),
        ("(LINEAR + LINEAR", "bracket that is not closed"),
        ("LINEAR)", r"nothing is expected at '\)'"),
        ("LINEAR MATERN", "nothing is expected at 'MATERN'"),
        ("LINEAR & MATERN", "'&' is not understood"),
        ("LINEAR[a]", r"'\[' is not understood: columns are whole numbers, as in LINEAR\[2\]"),
        ("LINEAR[\N{ARABIC-INDIC DIGIT THREE}]", r"'\[' is not understood"),
        ("2 x LINEAR", "'2' is not understood"),
        ("(" * 2000 + "LINEAR" + ")" * 2000, "nested too deep"),
        ("LINEAR" + " + LINEAR" * MOST_LEAVES, "has 129 leaves, and at most 128 are taken"),
        (" x ".join(["(MATERN + PERIODIC)"] * 700), "has 1400 leaves"),
        (None, "must be text such as 'LINEAR .*', got None"),
        (["LINEAR"], "must be text such as"),
    ],
)
def test_what_is_malformed_is_named(text: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Structure.parse(text)


@pytest.mark.parametrize(
    ("symbols", "message"),
    [
        ((), "1 operands are missing"),
        (("+", "LINEAR"), "1 operands are missing"),
        (("+", "x"), "3 operands are missing"),
        (("LINEAR", "LINEAR"), "nothing is expected behind symbol 1"),
    ],
)
def test_words_that_are_none_are_refused(symbols: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Structure(symbols)

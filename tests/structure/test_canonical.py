"""The canonical form: one for structures that say the same, and the same kernels."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sureshot.structure.canonical import canonical
from sureshot.structure.grammar import Grammar, KernelPrior
from sureshot.structure.structure import Structure
from tests.structure.oracles import F64, seeded
from tests.structure.words import LEAVES, structures


def shuffled(structure: Structure, choices: st.DataObject) -> Structure:
    """The same operands in another order, in other brackets."""
    if len(structure) == 1:
        return structure
    operator = structure.symbols[0]
    parts = [shuffled(part, choices) for part in structure.operands()]
    parts = choices.draw(st.permutations(parts))
    while len(parts) > 1:
        i = choices.draw(st.integers(0, len(parts) - 2))
        parts[i : i + 2] = [Structure((operator, *parts[i].symbols, *parts[i + 1].symbols))]
    return parts[0]


@given(structures(), st.data())
def test_it_is_one_for_all_orders_and_brackets(structure: Structure, choices: st.DataObject) -> None:
    found = canonical(structure)
    assert canonical(found) == found
    assert canonical(shuffled(structure, choices)) == found
    assert len(found) <= len(structure)
    assert canonical(Structure.parse(str(found))) == found


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("LINEAR", "LINEAR"),
        ("MATERN + LINEAR", "LINEAR + MATERN"),
        ("LINEAR + LINEAR", "LINEAR"),
        ("LINEAR x LINEAR", "LINEAR x LINEAR"),
        ("CONSTANT + LINEAR", "LINEAR"),
        ("CONSTANT x LINEAR", "LINEAR"),
        ("CONSTANT + CONSTANT x CONSTANT", "CONSTANT"),
        ("CONSTANT + MATERN", "CONSTANT + MATERN"),
        ("SQUARED-EXPONENTIAL x SQUARED-EXPONENTIAL", "SQUARED-EXPONENTIAL"),
        ("SQUARED-EXPONENTIAL + SQUARED-EXPONENTIAL", "SQUARED-EXPONENTIAL + SQUARED-EXPONENTIAL"),
        ("MATERN x MATERN", "MATERN x MATERN"),
        ("BROWNIAN + CONSTANT + BROWNIAN", "BROWNIAN"),
        ("BROWNIAN x BROWNIAN", "BROWNIAN x BROWNIAN"),
        ("LINEAR + LINEAR[0]", "LINEAR + LINEAR[0]"),
        ("LINEAR[0] + LINEAR[1] + CONSTANT + LINEAR[0]", "LINEAR[0] + LINEAR[1]"),
        ("CONSTANT x (LINEAR + MATERN) + CONSTANT", "LINEAR + MATERN"),
        ("(SQUARED-EXPONENTIAL x CONSTANT) x (SQUARED-EXPONENTIAL x MATERN)", "MATERN x SQUARED-EXPONENTIAL"),
        ("LINEAR x (CONSTANT + CONSTANT)", "LINEAR"),
    ],
)
def test_what_is_merged(text: str, form: str) -> None:
    assert str(canonical(Structure.parse(text))) == form


def fits(prior: KernelPrior, structure: Structure, gram: Tensor, x: Tensor, seed: int) -> bool:
    """Whether a search from random parameters ends where the structure's matrix is this one."""
    z = torch.randn(prior.size(structure), generator=seeded(seed), dtype=F64).requires_grad_()
    optimiser = torch.optim.LBFGS([z], max_iter=200, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = (prior.kernel(structure, z)(x) / gram - 1).square().mean()
        value.backward()
        return value

    optimiser.step(loss)
    return loss().item() < 1e-8


@pytest.mark.parametrize(
    "text",
    [
        "LINEAR[1] + CONSTANT",
        "CONSTANT + CONSTANT",
        "CONSTANT x CONSTANT",
        "SQUARED-EXPONENTIAL x SQUARED-EXPONENTIAL",
        "SQUARED-EXPONENTIAL[0] x SQUARED-EXPONENTIAL[0]",
        "CONSTANT x (LINEAR + MATERN)",
        "LINEAR + LINEAR",
    ],
)
@pytest.mark.parametrize("per_column", [False, True])
def test_a_merged_structure_can_be_every_kernel_of_the_longer_one(text: str, per_column: bool) -> None:
    prior = KernelPrior(Grammar(per_column=per_column), 2)
    structure, x = Structure.parse(text), 0.5 + torch.rand(8, 2, generator=seeded(0), dtype=F64)
    short = canonical(structure)
    assert len(short) < len(structure)
    gram = prior.kernel(structure, torch.randn(prior.size(structure), generator=seeded(1), dtype=F64))(x)
    assert any(fits(prior, short, gram, x, seed) for seed in range(8))


@pytest.mark.parametrize("leaf", LEAVES)
def test_a_constant_factor_is_an_amplitude(leaf: str) -> None:
    """Which is the first number of every leaf."""
    prior, x = KernelPrior(Grammar(), 2), torch.randn(6, 2, generator=seeded(0), dtype=F64)
    product, alone = Structure.parse(f"CONSTANT x {leaf}"), Structure((leaf,))
    assert canonical(product) == alone
    z = torch.randn(prior.size(product), generator=seeded(1), dtype=F64)
    same = z[1:].clone()
    same[0] += z[0]
    torch.testing.assert_close(prior.kernel(alone, same)(x), prior.kernel(product, z)(x))


@given(structures(largest=6))
@settings(max_examples=40)
def test_order_and_brackets_change_no_kernel(structure: Structure) -> None:
    """Leaves that keep their parameters, in the order of the canonical form, where nothing is merged."""
    found = canonical(structure)
    if len(found) < len(structure):
        return
    prior, x = KernelPrior(Grammar(), 3), torch.randn(5, 3, generator=seeded(0), dtype=F64)
    kinds = sorted({structure.symbols[i] for i in structure.leaves})

    def kernel(one: Structure) -> Tensor:
        """Leaves of a kind share their parameters, so that it does not matter which is which."""
        own = {kind: torch.randn(4, generator=seeded(n), dtype=F64) for n, kind in enumerate(kinds)}
        sizes = prior.leaf_sizes(one)
        parts = [own[one.symbols[leaf]][:size] for leaf, size in zip(one.leaves, sizes, strict=True)]
        return prior.kernel(one, torch.cat(parts))(x)

    torch.testing.assert_close(kernel(found), kernel(structure))


def test_a_constant_of_a_column_is_a_constant() -> None:
    assert canonical(Structure.parse("CONSTANT[0]")) == Structure.parse("CONSTANT")


def test_unknown_leaves_are_named() -> None:
    with pytest.raises(ValueError, match=r"there is no leaf 'LINEER'.*LINEAR"):
        canonical(Structure.parse("LINEER + LINEAR"))

"""Trees from prototypes: good splits, every degenerate input, and no dependence on order."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sureshot.tree import ClassTree, balanced_random_tree, build_tree, class_prototypes, robinson_foulds
from sureshot.tree.two_means import two_means
from tests.tree.test_class_tree import check

F64 = torch.float64


def draw(n_classes: int, n_features: int, seed: int = 0) -> Tensor:
    return torch.randn(n_classes, n_features, dtype=F64, generator=torch.Generator().manual_seed(seed))


def groups_of_groups(seed: int = 0) -> Tensor:
    """Eight prototypes: two far apart, each of two nearer, each of two close together."""
    noise = draw(14, 6, seed)
    return torch.stack([9 * noise[0] * (1 if k < 4 else -1) + 3 * noise[2 + k // 2] + noise[6 + k] for k in range(8)])


@settings(max_examples=60)
@given(
    n_classes=st.integers(1, 25),
    n_features=st.integers(1, 4),
    kinds=st.integers(1, 6),
    seed=st.integers(0, 10),
)
def test_every_class_once_whatever_the_prototypes(n_classes: int, n_features: int, kinds: int, seed: int) -> None:
    """Of few kinds, so that most are equal; one of the kinds is zero."""
    few = draw(kinds, n_features, seed)
    few[0] = 0
    pick = torch.randint(kinds, (n_classes,), generator=torch.Generator().manual_seed(seed))
    tree = build_tree(few[pick], seed)
    check(tree)
    assert tree == build_tree(few[pick], seed)


def test_similar_classes_stay_together() -> None:
    for seed in range(5):
        tree = build_tree(groups_of_groups(seed), seed)
        groups = {frozenset(tree.classes_below(node).tolist()) for node in range(7)}
        assert {frozenset(range(4)), frozenset(range(4, 8))} <= groups


def test_best_of_several_starts_is_the_best_partition() -> None:
    """Against all partitions of nine rows, by the sum of the lengths of the sides' sums."""
    for seed in range(10):
        rows = torch.nn.functional.normalize(draw(9, 3, seed), dim=-1)
        found = two_means(rows, torch.Generator().manual_seed(0))

        def value(right: Tensor, rows: Tensor = rows) -> float:
            sides = torch.stack([~right, right]).to(F64) @ rows
            return float(torch.linalg.vector_norm(sides, dim=-1).sum())

        every = [torch.tensor([bool(k >> place & 1) for place in range(9)]) for k in range(1, 256)]
        assert value(found) >= max(map(value, every)) - 1e-9


def test_order_of_classes_renames_and_nothing_else() -> None:
    prototypes = draw(30, 8)
    tree = build_tree(prototypes)
    for seed in range(3):
        order = torch.randperm(30, generator=torch.Generator().manual_seed(seed))
        assert build_tree(prototypes[order]).relabelled(order.tolist()) == tree


def test_size_of_prototypes_does_not_matter() -> None:
    prototypes = draw(12, 5)
    scaled = prototypes * torch.logspace(-200, 200, 12, dtype=F64).unsqueeze(-1)
    assert robinson_foulds(build_tree(prototypes), build_tree(scaled)) == 0


@pytest.mark.parametrize("prototypes", [torch.zeros(13, 4), torch.ones(13, 4), torch.ones(13, 1)])
def test_without_a_difference_splits_are_balanced(prototypes: Tensor) -> None:
    assert build_tree(prototypes).depth == 4


def test_zero_prototypes_join_the_smaller_side() -> None:
    prototypes = torch.tensor([[1.0, 0], [1, 0.1], [1, 0.2], [-1, 0], [0, 0]], dtype=F64)
    tree = build_tree(prototypes)
    assert {3, 4} in [set(tree.classes_below(node).tolist()) for node in range(4)]


def test_one_and_two_classes() -> None:
    assert build_tree(torch.ones(1, 3)) == ClassTree()
    assert set(build_tree(draw(2, 3)).children[0]) == {0, 1}


def test_prototypes_are_means_in_whatever_order() -> None:
    x, weight = draw(200, 7), torch.arange(200).remainder(4).to(F64)
    y = torch.arange(200).remainder(9)
    for w in (None, weight):
        found = class_prototypes(x, y, 10, w)
        for label in range(9):
            own = np.average(x[y == label], axis=0, weights=None if w is None else w[y == label])
            np.testing.assert_allclose(found[label], own, rtol=1e-12, atol=1e-15)
        assert not found[9].any()
        order = torch.randperm(200, generator=torch.Generator().manual_seed(1))
        again = class_prototypes(x[order], y[order], 10, None if w is None else w[order])
        assert torch.equal(again, found)


def test_bad_input_names_the_argument() -> None:
    prototypes = draw(4, 3)
    prototypes[2, 1] = torch.nan
    with pytest.raises(ValueError, match="prototypes must be finite, but that of class 2"):
        build_tree(prototypes)
    with pytest.raises(ValueError, match="prototypes must be a matrix"):
        build_tree(torch.ones(0, 3))
    with pytest.raises(ValueError, match="prototypes must be a matrix"):
        build_tree(torch.ones(3))
    with pytest.raises(ValueError, match="n_starts"):
        build_tree(torch.ones(3, 2), n_starts=0)
    with pytest.raises(ValueError, match="x must be finite"):
        class_prototypes(prototypes, torch.arange(4), 4)
    with pytest.raises(ValueError, match="y must hold labels from 0 to n_classes - 1 = 2"):
        class_prototypes(draw(4, 3), torch.arange(4), 3)
    with pytest.raises(ValueError, match="one label for each"):
        class_prototypes(draw(4, 3), torch.arange(3), 3)
    with pytest.raises(ValueError, match="at least one class, got 0"):
        balanced_random_tree(0)


@pytest.mark.parametrize("weight", [[1.0], [1.0, 2.0, -1.0, 1.0], [1.0, torch.nan, 1.0, 1.0]])
def test_weights_of_prototypes_are_checked(weight: list[float]) -> None:
    with pytest.raises(ValueError, match="weight must hold one finite number that is not negative for each of the 4"):
        class_prototypes(torch.arange(4.0)[:, None], torch.tensor([0, 0, 1, 1]), 2, torch.tensor(weight))

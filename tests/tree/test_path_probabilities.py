"""Classes' probabilities against explicit products over paths, and their sum whatever the latents are."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sureshot.likelihoods import Logistic
from sureshot.tree import ClassTree, balanced_random_tree, class_log_probabilities, label_order_tree
from sureshot.tree.path_probabilities import average_of_chains, side_log_probabilities

F64 = torch.float64


@settings(max_examples=40)
@given(n_classes=st.integers(1, 40), seed=st.integers(0, 5), size=st.sampled_from([1.0, 30.0, 1e4]))
def test_products_over_paths(n_classes: int, seed: int, size: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    for tree in (balanced_random_tree(n_classes, seed), label_order_tree(n_classes)):
        mean = size * torch.randn(tree.n_nodes, 7, dtype=F64, generator=generator)
        variance = size * torch.rand(tree.n_nodes, 7, dtype=F64, generator=generator)
        sides = side_log_probabilities(mean, variance)
        found = class_log_probabilities(tree, sides)
        for label in range(n_classes):
            expected = torch.zeros(7, dtype=F64)
            for node, side in tree.path(label):
                expected = expected + sides[side][node]
            torch.testing.assert_close(found[label], expected, rtol=1e-12, atol=1e-12)
        assert float((found.exp().sum(0) - 1).abs().max()) < 1e-12


def test_extreme_latents() -> None:
    mean = torch.tensor([0.0, 800, -800, 1e10, -1e10, 1e300, -1e300], dtype=F64).expand(5, -1)
    for variance in (0.0, 1e-12, 1.0, 100.0, 1e8):
        for rule in ("integral", "plug_in"):
            sides = side_log_probabilities(mean, torch.full_like(mean, variance), rule)
            assert all(bool(torch.isfinite(part).all()) for part in sides)
            p = class_log_probabilities(balanced_random_tree(6), sides).exp()
            assert float((p.sum(0) - 1).abs().max()) < 1e-12
    left, right = side_log_probabilities(mean[0], torch.zeros_like(mean[0]))
    torch.testing.assert_close(right[2], torch.tensor(-800.0, dtype=F64))
    torch.testing.assert_close(left[1], torch.tensor(-800.0, dtype=F64))


def test_sides_are_those_of_the_logistic_likelihood() -> None:
    mean = torch.linspace(-60, 60, 241, dtype=F64).expand(1, -1)
    for variance in (0.0, 0.5, 4.0, 50.0):
        spread = torch.full_like(mean, variance)
        for rule in ("integral", "plug_in"):
            expected = Logistic().predict(mean, spread, rule)
            left, right = side_log_probabilities(mean, spread, rule)
            # Both sides integrated and normalised there, one side here: the difference is the error of the quadrature.
            torch.testing.assert_close(torch.cat([left, right]).exp(), expected, rtol=1e-6, atol=1e-13)
    # Both logarithms to their last digits, where 1 - p has none left.
    left, right = side_log_probabilities(torch.tensor([50.0], dtype=F64), torch.zeros(1, dtype=F64))
    assert float(left) == pytest.approx(-50 - math.exp(-50), rel=1e-14)
    assert float(right) == pytest.approx(-math.exp(-50), rel=1e-12)


def test_chains_are_averaged_node_by_node() -> None:
    mean = torch.tensor([[[2.0], [-1.0]], [[-900.0], [3.0]]], dtype=F64)  # (2 chains, 2 nodes, 1)
    sides = average_of_chains(side_log_probabilities(mean, torch.zeros_like(mean)))
    torch.testing.assert_close(sides.right.exp(), torch.sigmoid(mean).mean(0))
    p = class_log_probabilities(ClassTree(((0, 4), (1, 2))), sides).exp().flatten()
    first, second = torch.sigmoid(mean).mean(0).flatten()
    torch.testing.assert_close(p, torch.stack([1 - first, first * (1 - second), first * second]))


def test_another_rule_is_named() -> None:
    with pytest.raises(ValueError, match="rule must be one of integral, plug_in, got 'plugin'"):
        side_log_probabilities(torch.zeros(1, 1), torch.ones(1, 1), "plugin")  # type: ignore[arg-type]

"""A kernel that small nodes evaluate at their rows and large ones by inducing points."""

from __future__ import annotations

import pytest
import torch

from sureshot.approximations.inducing import Inducing
from sureshot.kernels.leaves import RBF
from sureshot.tree import SharedFeatures, SharedGram, SharedRows, balanced_random_tree, fit_tree_mean_field
from sureshot.tree.shared_rows import branch_centres
from tests.tree.problems import F64, TREE, rows

KERNEL = RBF(torch.tensor(2.0, dtype=F64))
X, Y, QUERY = rows(120)
EXACT = SharedGram.of(KERNEL, X)
TIGHT = {"output_scale": 3.0, "prior_mean": 0.2, "tolerance": 1e-10, "max_steps": 1000}


def test_each_node_by_what_suits_it() -> None:
    shared = SharedRows.of(KERNEL, X, Y, TREE, 48)
    fit = fit_tree_mean_field(TREE, shared, Y, **TIGHT)
    exact = fit_tree_mean_field(TREE, EXACT, Y, **TIGHT)
    above = fit_tree_mean_field(TREE, shared.above, Y, **TIGHT)
    sizes = torch.tensor([int(torch.isin(Y, torch.tensor(TREE.classes_below(k))).sum()) for k in range(5)])
    small = sizes <= shared.rank
    assert 0 < int(small.sum()) < 5
    expected = torch.where(small, exact.bound, above.bound)
    torch.testing.assert_close(fit.bound, expected, rtol=1e-7, atol=1e-7)
    for found, one, other in zip(*(each.posterior.latents(QUERY) for each in (fit, exact, above)), strict=True):
        torch.testing.assert_close(found, torch.where(small.unsqueeze(-1), one, other), rtol=1e-6, atol=1e-6)
    difference = fit.posterior.probabilities(QUERY) - exact.posterior.probabilities(QUERY)
    assert float(difference.abs().max()) < 0.05


def test_all_rows_as_inducing_points_are_exact() -> None:
    features = SharedFeatures.of(Inducing(KERNEL, X, residual=True), X)
    assert features.residual is not None
    assert float(features.residual.max()) < 1e-9
    fit = fit_tree_mean_field(TREE, SharedRows(KERNEL, X, features), Y, **TIGHT)
    by_features = fit_tree_mean_field(TREE, features, Y, **TIGHT)
    exact = fit_tree_mean_field(TREE, EXACT, Y, **TIGHT)
    torch.testing.assert_close(fit.bound, exact.bound, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(by_features.bound, exact.bound, rtol=1e-8, atol=1e-8)


def test_the_residual_is_what_the_points_leave() -> None:
    points = branch_centres(X, Y, TREE, 12)
    assert points.shape == (12, 3)
    shared = SharedFeatures.of(Inducing(KERNEL, points, residual=True), X)
    assert shared.residual is not None
    cross = KERNEL(points, X)
    expected = 1 - (cross * torch.linalg.solve(KERNEL(points), cross)).sum(0)
    torch.testing.assert_close(shared.residual, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n_classes", [2, 40, 100])
def test_centres_of_branches_where_classes_are_many(n_classes: int) -> None:
    y = torch.arange(3 * n_classes) % n_classes
    x = torch.randn(len(y), 3, dtype=F64, generator=torch.Generator().manual_seed(0))
    found = branch_centres(x, y, balanced_random_tree(n_classes), 20)
    assert min(10, n_classes) <= len(found) <= 20

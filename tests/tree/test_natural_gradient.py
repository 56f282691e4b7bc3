"""Trees by natural gradients: mean field with all rows in the batch, near it without."""

from __future__ import annotations

import pytest
import torch

from sureshot.tree import ClassTree, SharedFeatures, fit_tree_mean_field, fit_tree_natural_gradient
from tests.tree.problems import F64, TREE, features, linear, one_by_one, rows


def test_all_rows_and_a_step_of_one_are_mean_field() -> None:
    x, y, query = rows()
    weight = 0.5 + torch.arange(40).remainder(3).to(F64)
    settings = {"prior_mean": torch.linspace(-0.4, 0.4, 5, dtype=F64), "output_scale": 2.0}
    expected = fit_tree_mean_field(TREE, features(x), y, weight, max_steps=2000, tolerance=1e-13, **settings)
    found = fit_tree_natural_gradient(TREE, features(x), y, weight, n_epochs=500, **settings)
    torch.testing.assert_close(found.bound, expected.bound, rtol=1e-9, atol=1e-9)
    for one, other in zip(found.posterior.latents(query), expected.posterior.latents(query), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(found.posterior.probabilities(query), expected.posterior.probabilities(query))


def test_each_step_is_one_of_mean_field() -> None:
    x, y, query = rows()
    for steps in (1, 3):
        # After the sites of the prior a step of mean field has been made.
        expected, _, _ = one_by_one(TREE, linear(x), query, y, n_steps=steps)
        found = fit_tree_natural_gradient(TREE, features(x), y, n_epochs=steps).posterior
        torch.testing.assert_close(found.latents(query).mean, expected)


def test_batches_come_near() -> None:
    """Every node by its own N / |B|: with that of all rows the small nodes would be far too sure."""
    x, y, query = rows(400, seed=4)
    exact = fit_tree_mean_field(TREE, features(x), y)
    found = fit_tree_natural_gradient(TREE, features(x), y, batch_size=50, n_epochs=60)
    assert float((exact.bound - found.bound).max()) < 0.3
    assert float((found.bound - exact.bound).max()) < 1e-3
    p, q = (fit.posterior.probabilities(query) for fit in (exact, found))
    assert float((p - q).abs().max()) < 0.05
    spread = found.posterior.latents(query).spread / exact.posterior.latents(query).spread
    assert 0.8 < float(spread.min()) <= float(spread.max()) < 1.25


def test_a_residual_is_variance_of_the_row_alone() -> None:
    """The root's weights where they no longer move, by Polya-Gamma means with explicit inverses."""
    x, y, query = rows()
    residual = torch.linspace(0, 4, len(x), dtype=F64)
    found = fit_tree_natural_gradient(TREE, SharedFeatures(x, features(x).covariance, residual), y, n_epochs=80)
    right = torch.tensor([side for c in range(6) for node, side in TREE.path(c) if node == 0])[y].to(F64)
    mean, covariance = torch.zeros(3, dtype=F64), torch.eye(3, dtype=F64)
    for _ in range(80):
        size = ((x @ mean).square() + (x @ covariance * x).sum(-1) + residual).sqrt()
        precision = torch.tanh(size / 2) / (2 * size)
        covariance = torch.linalg.inv(torch.eye(3, dtype=F64) + x.mT @ (precision[:, None] * x))
        mean = covariance @ x.mT @ (right - 0.5)
    latents = found.posterior.latents(query)
    torch.testing.assert_close(latents.mean[0], query @ mean)
    torch.testing.assert_close(latents.spread[0], (query @ covariance * query).sum(-1))


def test_nodes_without_rows_and_a_residual() -> None:
    x, y, query = rows()
    keep = y != 0
    shared = SharedFeatures(x[keep], features(x).covariance, torch.full((int(keep.sum()),), 0.1, dtype=F64))
    tree = ClassTree(((8, 10), (9, 3), (0, 6), (11, 1), (12, 4), (2, 5)))
    fit = fit_tree_natural_gradient(tree, shared, y[keep])
    empty = next(k for k in range(tree.n_nodes) if set(tree.classes_below(k).tolist()) == {0, 6})
    assert float(fit.posterior.latents(query).mean[empty].abs().max()) == 0
    assert float(fit.bound[empty]) == 0
    assert float((fit.posterior.probabilities(query).sum(0) - 1).abs().max()) < 1e-12
    assert fit_tree_natural_gradient(ClassTree(), features(x), torch.zeros_like(y)).bound.shape == (0,)
    with pytest.raises(ValueError, match="batch_size and n_epochs must be at least 1"):
        fit_tree_natural_gradient(TREE, features(x), y, batch_size=0)

"""Trees by Gibbs sampling against quadrature on tiny nodes."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from sureshot.gaussian import GramPosterior
from sureshot.likelihoods.quadrature import log_expected_sigmoid
from sureshot.tree import ClassTree, gibbs, label_order_tree, run_tree_gibbs
from tests.tree.problems import F64, features, gram, rows

THREE = ClassTree(((0, 4), (2, 1)))
CHAINS = 1500


def by_quadrature(K: Tensor, k: Tensor, a: float, sides: Tensor, scale: float, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Mean latent and probability of the right side at queries (Q,), over a grid of whitened latents.

    A row of count n has the n-th power of its likelihood.
    """
    grid = torch.linspace(-7, 7, 57, dtype=F64)
    z = torch.tensor(list(itertools.product(grid.tolist(), repeat=len(K))), dtype=F64)
    L = torch.linalg.cholesky(scale * K)
    f = a + z @ L.mT
    signs = 2.0 * sides - 1
    weight = torch.softmax(-0.5 * z.square().sum(-1) + torch.nn.functional.logsigmoid(signs * f) @ counts, 0)
    project = torch.cholesky_solve(scale * k, L)
    mean = a + (f - a) @ project  # (grid, Q)
    variance = scale - (scale * k * project).sum(0)
    probability = log_expected_sigmoid(mean, variance.expand_as(mean)).exp()
    return weight @ mean, weight @ probability


def test_means_and_probabilities_are_within_their_standard_errors() -> None:
    x, _, query = rows(3, 3, seed=2)
    y, counts = torch.tensor([1, 0, 2]), torch.tensor([2, 1, 4], dtype=F64)
    query = query[:4]
    shared = gram(x)
    posterior = run_tree_gibbs(
        THREE,
        shared,
        y,
        counts,
        prior_mean=0.3,
        output_scale=4.0,
        n_chains=CHAINS,
        n_sweeps=40,
        generator=torch.Generator().manual_seed(0),
    )
    found, spread_of_mixture = posterior.latents(query)
    right = posterior.side_log_probabilities(query).right.exp()
    cross, _ = shared.covariance(query)
    for node, members, sides in ((0, [0, 1, 2], [1, 0, 1]), (1, [0, 2], [1, 0])):
        K = shared.gram[members][:, members]
        mean, probability = by_quadrature(K, cross[members], 0.3, torch.tensor(sides), 4.0, counts[members])
        nodes, _, moments = next(m for m in posterior.parts[0].moments(query) if node in m[0])
        own = moments.mean[:, nodes.tolist().index(node)]  # chains are independent
        squares = moments.spread[:, nodes.tolist().index(node)] + own.square()
        torch.testing.assert_close(spread_of_mixture[node], squares.mean(0) - own.mean(0).square())
        error = own.std(0) / CHAINS**0.5
        assert float(error.max()) < 0.05
        assert float(((found[node] - mean).abs() / error).max()) < 4
        spread = torch.sigmoid(own).std(0) / CHAINS**0.5 + 1e-6
        assert float(((right[node] - probability).abs() / spread).max()) < 4
    p = posterior.probabilities(query)
    torch.testing.assert_close(p[0], 1 - right[0])
    torch.testing.assert_close(p[1], right[0] * right[1])
    assert float((p.sum(0) - 1).abs().max()) < 1e-12


def test_features_and_matrix_agree_and_a_seed_fixes_everything() -> None:
    x, y, query = rows(30, 4)
    tree = label_order_tree(4)

    def sampled(shared: object, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return run_tree_gibbs(tree, shared, y, n_chains=200, n_sweeps=20, generator=generator).probabilities(query)

    assert torch.equal(sampled(features(x), 0), sampled(features(x), 0))
    assert not torch.equal(sampled(features(x), 0), sampled(features(x), 1))
    assert float((sampled(features(x), 0) - sampled(features(x), 1)).abs().max()) < 0.05


def test_weights_are_counts() -> None:
    x, y, query = rows(20, 3)
    shared, tree = gram(x), label_order_tree(3)
    absent = (torch.arange(20) >= 5).to(F64)
    run = {"n_chains": 300, "n_sweeps": 20}
    without = run_tree_gibbs(tree, gram(x[5:]), y[5:], generator=torch.Generator().manual_seed(0), **run)
    weighted = run_tree_gibbs(tree, shared, y, absent, generator=torch.Generator().manual_seed(1), **run)
    assert float((without.probabilities(query) - weighted.probabilities(query)).abs().max()) < 0.05
    with pytest.raises(ValueError, match="weight must hold whole numbers"):
        run_tree_gibbs(tree, shared, y, absent / 2)


def test_chains_held_are_those_conditioned_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, query = rows(30, 4)
    generator = torch.Generator().manual_seed(0)
    posterior = run_tree_gibbs(label_order_tree(4), gram(x), y, n_chains=5, n_sweeps=5, generator=generator)
    held = posterior.latents(query)
    for fitted in posterior.parts[0].buckets:
        assert isinstance(fitted.posterior.held(), GramPosterior)
    monkeypatch.setattr(gibbs, "OF_DRAWS", 1)  # too many chains for memory
    for fitted in posterior.parts[0].buckets:
        assert fitted.posterior.held() is fitted.posterior
    torch.testing.assert_close(posterior.latents(query), held)


def test_one_class() -> None:
    x, _, query = rows(6, 1)
    p = run_tree_gibbs(ClassTree(), gram(x), torch.zeros(6, dtype=torch.long)).probabilities(query)
    assert torch.equal(p, torch.ones(1, len(query), dtype=F64))

"""Nodes with inducing points of their own: each is what one node alone would be, in whatever bucket it is."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sureshot.approximations.exact import lifted
from sureshot.gaussian import Queries
from sureshot.inference.natural_gradient import InducingBatch, NaturalGradientState, fit_natural_gradient
from sureshot.likelihoods import Logistic
from sureshot.tree import (
    ClassTree,
    InducingNodes,
    NodeInducing,
    SharedFeatures,
    TreePosterior,
    fit_tree_mean_field,
    fit_tree_natural_gradient,
    rows_below,
)
from sureshot.tree.beam import leading_classes
from sureshot.tree.problems import NodeSettings
from tests.tree.problems import F64, TREE, features, gram, rbf, rows

MEAN, SCALE = 0.3, 2.0


class Problem:
    """Two inducing points of each class, and one more of class 3."""

    def __init__(self, points: Tensor | None = None, labels: Tensor | None = None) -> None:
        self.x, self.y, self.query = rows()
        few = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3, 3, 4, 4, 5, 5])
        self.labels = few if labels is None else labels
        first = [torch.nonzero(self.y == label).flatten()[:3] for label in range(6)]
        chosen = torch.cat([part[:3] if label == 3 else part[:2] for label, part in enumerate(first)])
        generator = torch.Generator().manual_seed(3)
        near = self.x[chosen] + 0.1 * torch.randn(len(chosen), 3, dtype=F64, generator=generator)
        self.points = near if points is None else points
        self.nodes = InducingNodes.of(TREE, self.labels)
        self.settings = NodeSettings.of(TREE, self.x, MEAN, SCALE)
        self.kernel = NodeInducing.of(rbf(self.points, self.points), self.covariance, self.nodes)
        self.n_rows = rows_below(TREE, self.y)

    def covariance(self, x: Tensor) -> Queries:
        return Queries(rbf(self.points, x), torch.ones(len(x), dtype=F64))

    def batches(self, some: slice = slice(None)) -> list[InducingBatch]:
        return self.nodes.batches(self.kernel, *self.covariance(self.x[some]), self.y[some], self.settings)

    def fitted(self, n_steps: int, step_size: float = 1.0) -> list[NaturalGradientState]:
        states, batches = self.nodes.prior_states(F64), self.batches()
        for _ in range(n_steps):
            states = self.nodes.step(states, batches, self.n_rows, step_size)
        return states

    def features(self, x: Tensor, node: int) -> tuple[Tensor, Tensor]:
        """Whitened features of a node, and what they leave of the prior variance; by explicit inverses."""
        own = self.points[torch.isin(self.labels, torch.tensor(TREE.classes_below(node)))]
        phi = rbf(x, own) @ torch.linalg.inv(torch.linalg.cholesky(lifted(rbf(own, own)))).mT
        return phi, (1 - phi.square().sum(-1)).clamp_min(0)


def test_every_node_is_what_it_is_alone() -> None:
    problem = Problem()
    states = problem.fitted(7, 0.4)
    bound = problem.nodes.bounds(states, problem.batches(), problem.n_rows)
    latents = problem.nodes.posterior(states, problem.kernel, problem.settings).latents(problem.query)
    for node in range(TREE.n_nodes):
        here = torch.isin(problem.y, torch.tensor(TREE.classes_below(node)))
        assert int(here.sum()) == int(problem.n_rows[node])
        sides = (torch.tensor(TREE.path_matrix)[problem.y[here], node] > 0).long()
        phi, residual = problem.features(problem.x[here], node)
        fit = fit_natural_gradient(
            SCALE**0.5 * phi[None],
            Logistic(),
            sides,
            prior_mean=MEAN,
            residual=SCALE * residual[None],
            n_epochs=7,
            schedule=lambda step: 0.4,
        )
        torch.testing.assert_close(bound[node], fit.bound)
        phi, residual = problem.features(problem.query, node)
        expected = fit.query(SCALE**0.5 * phi[None], torch.full((1, len(phi)), SCALE, dtype=F64))
        torch.testing.assert_close(latents.mean[node], expected.mean[0])
        torch.testing.assert_close(latents.spread[node], expected.spread[0])


def test_the_prior_at_the_points_is_the_kernel() -> None:
    problem = Problem()
    for bucket in problem.nodes.buckets:
        nodes = bucket.problems
        scale = SCALE * (1 + nodes.to(F64))
        prior = problem.kernel.prior(bucket, torch.full_like(scale, MEAN), scale)
        for place, node in enumerate(nodes.tolist()):
            own = problem.points[torch.isin(problem.labels, torch.tensor(TREE.classes_below(node)))]
            phi = prior.features[place, 0, : len(own)]
            torch.testing.assert_close(phi @ phi.mT, SCALE * (1 + node) * rbf(own, own), rtol=0, atol=1e-9)


def test_with_all_rows_as_points_it_is_mean_field() -> None:
    """Steps of one on all rows."""
    x, y, query = rows()
    problem = Problem(x, y)
    states = problem.fitted(300)
    found = problem.nodes.posterior(states, problem.kernel, problem.settings)
    expected = fit_tree_mean_field(
        TREE, gram(x), y, prior_mean=MEAN, output_scale=SCALE, max_steps=3000, tolerance=1e-12
    )
    bound = problem.nodes.bounds(states, problem.batches(), problem.n_rows)
    torch.testing.assert_close(bound, expected.bound, rtol=1e-7, atol=1e-7)
    assert bool((bound < expected.bound).all())
    torch.testing.assert_close(found.probabilities(query), expected.posterior.probabilities(query), rtol=0, atol=1e-7)


def test_the_root_is_that_of_shared_inducing_points() -> None:
    problem = Problem()
    phi, residual = problem.features(problem.x, 0)

    def covariance(x: Tensor) -> Queries:
        return Queries(problem.features(x, 0)[0], torch.ones(len(x), dtype=F64))

    shared = SharedFeatures(phi, covariance, residual)
    expected = fit_tree_natural_gradient(
        TREE, shared, problem.y, prior_mean=MEAN, output_scale=SCALE, n_epochs=4, schedule=lambda step: 0.3
    )
    states = problem.fitted(4, 0.3)
    found = problem.nodes.posterior(states, problem.kernel, problem.settings)
    bound = problem.nodes.bounds(states, problem.batches(), problem.n_rows)
    torch.testing.assert_close(bound[0], expected.bound[0])
    for one, other in zip(found.latents(problem.query), expected.posterior.latents(problem.query), strict=True):
        torch.testing.assert_close(one[0], other[0])


def test_batches_average_to_the_whole() -> None:
    """By the node's own N / |B|: estimates of the root's bound from two halves average to the bound."""
    problem = Problem()
    states = problem.fitted(2)
    whole = problem.nodes.bounds(states, problem.batches(), problem.n_rows)
    halves = [
        problem.nodes.bounds(states, problem.batches(part), problem.n_rows) for part in (slice(20), slice(20, 40))
    ]
    root = [bound[0] for bound in halves]
    torch.testing.assert_close(sum(root) / 2, whole[0])


def test_nodes_without_rows_in_the_batch_stay() -> None:
    problem = Problem()
    states = problem.fitted(1)
    only = torch.nonzero(problem.y == 0).flatten()[:2]
    batches = problem.nodes.batches(
        problem.kernel, *problem.covariance(problem.x[only]), problem.y[only], problem.settings
    )
    moved = problem.nodes.step(states, batches, problem.n_rows, 0.5)
    bound = problem.nodes.bounds(moved, batches, problem.n_rows)
    on_the_path = {node for node, _ in TREE.path(0)}
    for bucket, before, after in zip(problem.nodes.buckets, states, moved, strict=True):
        for place, node in enumerate(bucket.problems.tolist()):
            same = torch.equal(before.linear[place], after.linear[place])
            assert same is (node not in on_the_path)
            assert (float(bound[node]) == 0) is (node not in on_the_path)


def test_gradients_by_finite_differences() -> None:
    states = Problem().fitted(2)
    points = Problem().points

    def loss(moved: Tensor) -> Tensor:
        problem = Problem(moved)
        return (problem.nodes.bounds(states, problem.batches(slice(12)), problem.n_rows) / problem.n_rows).sum()

    assert torch.autograd.gradcheck(loss, points.clone().requires_grad_(), rtol=1e-4, atol=1e-7)


def test_posteriors_are_those_of_any_tree() -> None:
    problem = Problem()
    posterior = problem.nodes.posterior(problem.fitted(20), problem.kernel, problem.settings)
    sums = posterior.probabilities(problem.query).sum(0)
    torch.testing.assert_close(sums, torch.ones_like(sums))
    one = torch.cat([posterior.log_probabilities(row[None]) for row in problem.query], dim=1)
    torch.testing.assert_close(posterior.log_probabilities(problem.query), one)
    joined = posterior.joined(posterior, _root())
    torch.testing.assert_close(
        joined.log_probabilities(problem.query, below=1), posterior.log_probabilities(problem.query), rtol=0, atol=0
    )


def _root() -> TreePosterior:
    x, y, _ = rows()
    return fit_tree_natural_gradient(ClassTree(((0, 1),)), features(x), (y > 2).long()).posterior


def test_every_class_needs_a_point() -> None:
    with pytest.raises(ValueError, match="every class needs an inducing point"):
        InducingNodes.of(TREE, torch.tensor([0, 1, 2, 3, 5]))


@pytest.mark.parametrize("spread", [0, 6])
def test_the_most_probable_classes(spread: int) -> None:
    """Also where variances of points differ by orders of magnitude, so that a factor's jitter tells."""
    problem = Problem()
    size = torch.logspace(-spread / 2, spread / 2, len(problem.points), dtype=F64)
    plain = problem.covariance
    problem.covariance = lambda x: plain(x)._replace(cross=size[:, None] * plain(x).cross)  # type: ignore[method-assign]
    kernel = size[:, None] * problem.kernel.gram * size
    problem.kernel = NodeInducing.of(kernel, problem.covariance, problem.nodes)
    posterior = problem.nodes.posterior(problem.fitted(7, 0.4), problem.kernel, problem.settings)
    found = leading_classes(posterior, problem.query, 6)
    expected = posterior.log_probabilities(problem.query).mT.sort(descending=True)
    assert torch.equal(found.classes, expected.indices)
    torch.testing.assert_close(found.log_probabilities, expected.values, rtol=1e-9, atol=1e-9)

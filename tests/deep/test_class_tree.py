"""The deep kernel of a class tree: with a frozen network it is the tree's own inference."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from sureshot.deep import TreeNetwork
from sureshot.deep.class_tree import unit_rbf
from sureshot.gaussian import Queries
from sureshot.networks.backbones import make_backbone
from sureshot.tree import SharedGram, build_tree, class_prototypes, fit_tree_mean_field
from tests.tree.problems import F64, rows

LENGTHSCALE, SCALE = 0.7, 3.0


def tree_network(per_class: int = 40, **options: float) -> tuple[TreeNetwork, Tensor, Tensor, Tensor]:
    """On rows as they are; 40 points for each class are all rows."""
    x, y, query = rows()
    backbone = make_backbone("identity", (3,))
    settings = {"lengthscale": LENGTHSCALE, "output_scale": SCALE, **options}
    return TreeNetwork.of_embeddings(backbone, x, y, 6, per_class=per_class, **settings), x, y, query


def test_frozen_network_all_rows_and_steps_of_one_are_mean_field() -> None:
    network, x, y, query = tree_network(step_size=1.0)
    for _ in range(40):
        loss = network.embedded_loss(x, y)
    units = functional.normalize(x, dim=-1)

    def kernel(rows: Tensor) -> Tensor:
        """Of rows of unit length the squared distance is twice what their cosine leaves of one."""
        return torch.exp(-(1 - units @ functional.normalize(rows, dim=-1).mT) / LENGTHSCALE**2)

    def covariance(rows: Tensor) -> Queries:
        return Queries(kernel(rows), torch.ones(len(rows), dtype=F64))

    assert network.tree == build_tree(class_prototypes(units, y, 6))
    shared = SharedGram(kernel(x), covariance)
    fit = fit_tree_mean_field(network.tree, shared, y, output_scale=SCALE, max_steps=3000, tolerance=1e-12)
    sizes = torch.tensor([float(torch.isin(y, torch.tensor(network.tree.classes_below(k))).sum()) for k in range(5)])
    expected = -(fit.bound / sizes).sum()  # every node's bound for each of its data
    torch.testing.assert_close(loss.detach(), expected, rtol=1e-4, atol=1e-4)
    logs = fit.posterior.log_probabilities(query).mT
    torch.testing.assert_close(network.log_probabilities(query).double(), logs, rtol=1e-3, atol=1e-3)


def test_the_kernel_by_hand() -> None:
    """Directions 45 degrees apart; a row of zero is one away from any direction."""
    rows = torch.tensor([[2.0, 2.0], [0.0, 0.0], [3.0, 0.0]])
    found = unit_rbf(torch.tensor([[5.0, 0.0]]), rows, torch.tensor(0.7).log())
    between = [2 - 2 * math.cos(math.pi / 4), 1.0, 0.0]
    assert found[0].tolist() == pytest.approx([math.exp(-d / (2 * 0.7**2)) for d in between], rel=1e-6)


def test_a_step_goes_a_part_of_the_way() -> None:
    """In natural parameters, from the whitened prior, whose precision is one."""
    whole, x, y, _ = tree_network(5, step_size=1.0)
    part, *_ = tree_network(5, step_size=0.3)
    for network in (whole, part):
        network.embedded_loss(x, y)
    there, found = whole.state_dict(), part.state_dict()
    for name in [name for name in there if name.startswith("linear")]:
        torch.testing.assert_close(found[name], 0.3 * there[name])
    for name in [name for name in there if name.startswith("quadratic")]:
        prior = tree_network(5)[0].state_dict()[name]
        torch.testing.assert_close(found[name], 0.7 * prior + 0.3 * there[name])


def test_a_batch_estimates_each_node_by_its_own_numbers() -> None:
    network, x, y, _ = tree_network(5)
    first = y == y[0]
    loss = network.embedded_loss(x[first], y[first])
    network.step_size = 0.0
    torch.testing.assert_close(network.embedded_loss(x[first], y[first]), loss)
    # Rows twice are the same share of the nodes' data.
    twice = torch.cat([x[first], x[first]]), torch.cat([y[first], y[first]])
    torch.testing.assert_close(network.embedded_loss(*twice), loss)


def test_inducing_points_by_class() -> None:
    network, x, y, _ = tree_network(5)
    counts = torch.bincount(network._inducing_labels)
    assert counts.tolist() == torch.bincount(y).clamp_max(5).tolist()
    lengths = torch.linalg.vector_norm(network.inducing.detach(), dim=-1)
    torch.testing.assert_close(lengths, torch.ones(len(counts.repeat_interleave(counts)), dtype=F64))
    few = [torch.nonzero(y == label).flatten() for label in range(6) if int((y == label).sum()) <= 5]
    for members in few:
        points = network.inducing[network._inducing_labels == y[members[0]]]
        distances = torch.cdist(functional.normalize(x[members], dim=-1), points.detach())
        assert float(distances.min(1).values.max()) < 1e-6


def test_fixed_inducing_points_are_no_parameters() -> None:
    network, x, y, _ = tree_network(5, learn_inducing=False)
    assert {name for name, _ in network.named_parameters()} == {"log_lengthscale", "log_output_scale"}
    assert "inducing" in network.state_dict()
    network.embedded_loss(x, y).backward()
    assert len(network.own_parameters()) == 2


def test_a_posterior_stays_when_training_goes_on() -> None:
    network, x, y, query = tree_network(5)
    network.embedded_loss(x, y)
    posterior = network.posterior()
    before = posterior.log_probabilities(query)
    network.embedded_loss(x, y)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.1
    assert torch.equal(posterior.log_probabilities(query), before)
    assert not torch.equal(network.posterior().log_probabilities(query), before)


def test_an_embedding_of_zero_has_probabilities() -> None:
    network, x, y, _ = tree_network(5)
    network.embedded_loss(x, y)
    logs = network.log_probabilities(torch.zeros(1, 3))
    torch.testing.assert_close(logs.exp().sum(), torch.tensor(1.0, dtype=F64))


def test_refusals() -> None:
    x, y, _ = rows()
    backbone = make_backbone("identity", (3,))
    with pytest.raises(ValueError, match="y must hold each of the labels from 0 to 6"):
        TreeNetwork.of_embeddings(backbone, x, y, 7)
    for options in ({"step_size": 0.0}, {"lengthscale": 0.0}, {"output_scale": float("inf")}):
        with pytest.raises(ValueError, match=next(iter(options))):
            TreeNetwork.of_embeddings(backbone, x, y, 6, **options)

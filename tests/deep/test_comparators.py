"""What GPyTorch's processes are given, and what they give back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from sureshot.deep import GridNetwork, RobustMaxNetwork, SoftmaxNetwork
from sureshot.deep.grid_interpolation import BOUND
from sureshot.networks.backbones import make_backbone


def embeddings(n: int = 20, width: int = 4) -> torch.Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("full_covariance", [True, False])
def test_processes_of_classes_begin_at_their_prior(full_covariance: bool) -> None:
    x, y = embeddings(), torch.arange(20) % 3
    backbone = make_backbone("identity", (4,))
    network = RobustMaxNetwork.of_embeddings(
        backbone, x, y, 3, per_class=3, full_covariance=full_covariance, output_scale=2.5, learn_inducing=False
    )
    assert network.processes.variational_strategy.inducing_points.shape == (9, 4)
    mean, variance = network._latents(x)
    assert mean.shape == (3, 20)
    torch.testing.assert_close(mean, torch.zeros(3, 20))
    torch.testing.assert_close(variance, torch.full((3, 20), 2.5), rtol=1e-3, atol=1e-3)
    divergence = network.processes.variational_strategy.kl_divergence()
    torch.testing.assert_close(divergence, torch.zeros(3), rtol=0, atol=1e-4)
    loss = network.losses(x, y, torch.Generator(), 20).mean()
    right, wrong = torch.tensor(1 - 1e-3).log(), torch.tensor(1e-3 / 2).log()
    torch.testing.assert_close(loss.detach(), -(right + 2 * wrong) / 3, rtol=1e-4, atol=1e-4)
    assert len(list(network.processes.parameters())) == 4  # no inducing points among them
    with pytest.raises(ValueError, match="epsilon must lie between 0 and 1"):
        RobustMaxNetwork(backbone, 3, x, epsilon=1.0)
    with pytest.raises(ValueError, match="lengthscale must be positive and finite, got 0"):
        RobustMaxNetwork(backbone, 3, x, lengthscale=0.0)
    for labels in (y + 1, y * 0):
        with pytest.raises(ValueError, match="y must hold each of the labels from 0 to 2"):
            RobustMaxNetwork.of_embeddings(backbone, x, labels, 3)


def test_latents_of_classes_are_what_whitened_values_say_of_directions() -> None:
    x, y = 3 * embeddings(), torch.arange(20) % 3
    network = RobustMaxNetwork.of_embeddings(
        make_backbone("identity", (4,)), x, y, 3, per_class=2, lengthscale=0.6, output_scale=2.5
    )
    values = torch.randn(3, 6, generator=torch.Generator().manual_seed(1))
    strategy = network.processes.variational_strategy
    with torch.no_grad():
        strategy._variational_distribution.variational_mean.copy_(values)
    directions, points = functional.normalize(x, dim=-1).double(), strategy.inducing_points.detach().double()

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        return 2.5 * torch.exp(-(1 - a @ b.mT) / 0.6**2)  # of rows of unit length

    root = torch.linalg.cholesky(kernel(points, points))
    expected = kernel(directions, points) @ torch.linalg.inv(root).mT @ values.double().mT
    torch.testing.assert_close(network._latents(x)[0].double(), expected.mT, rtol=1e-2, atol=1e-2)


def test_predictions_and_losses_of_grids_are_integrals_over_their_latents() -> None:
    """Two features, three classes: by quadrature over both latents, whose variances are large."""
    network = GridNetwork(make_backbone("identity", (2,)), 3, grid_size=16, n_samples=20_000)
    with torch.no_grad():
        strategy = network.processes.variational_strategy
        q = strategy._variational_distribution
        q.variational_mean.copy_(0.5 * strategy.inducing_points.squeeze(-1))
        q.chol_variational_covar.mul_(2.0)
        network.mixing.copy_(torch.tensor([[1.0, -0.5], [-1.0, 1.0], [0.3, 0.8]]))
    x, y = embeddings(6, 2), torch.tensor([0, 1, 2, 0, 1, 2])
    mean, variance = (part.detach().double() for part in network._latents(x))
    assert float(variance.min()) > 2
    nodes, weights = (torch.from_numpy(part) for part in np.polynomial.hermite_e.hermegauss(40))
    first, second = (mean[k] + variance[k].sqrt() * nodes[:, None] for k in range(2))  # (nodes, rows)
    both = torch.stack(torch.broadcast_tensors(first[:, None], second[None]), -1)
    logs = torch.log_softmax(both @ network.mixing.detach().double().mT, -1)  # (nodes, nodes, rows, classes)
    share = weights[:, None] * weights / weights.sum() ** 2
    expected = torch.einsum("ij,ijrc->rc", share, logs.exp())
    found = network.predictor()(x).exp().double()
    torch.testing.assert_close(found, expected, rtol=0, atol=0.01)
    likely = torch.einsum("ij,ijrc->rc", share, logs).gather(1, y[:, None]).squeeze(1)
    divergence = float(strategy.kl_divergence().detach().sum())
    assert divergence > 1
    losses = network.losses(x, y, torch.Generator().manual_seed(0), 50).detach().double()
    torch.testing.assert_close(losses, divergence / 50 - likely, rtol=0, atol=0.06)


def test_initial_weights_keep_the_size_of_embeddings() -> None:
    """Variance one over the width, of both maps to logits."""
    backbone = make_backbone("identity", (400,))
    for weight in (SoftmaxNetwork(backbone, 50).linear.weight, GridNetwork(backbone, 50, grid_size=4).mixing):
        assert float(weight.detach().square().mean()) * 400 == pytest.approx(1, abs=0.05)


def test_processes_of_features_begin_at_their_prior_and_read_their_grid() -> None:
    network = GridNetwork(make_backbone("identity", (4,)), 3, grid_size=64)
    strategy = network.processes.variational_strategy
    mean, variance = network._latents(embeddings())
    torch.testing.assert_close(mean, torch.zeros(4, 20))
    prior = float(network.processes.covar_module.outputscale.detach())
    torch.testing.assert_close(variance, torch.full((4, 20), prior), rtol=0.01, atol=0.01)
    torch.testing.assert_close(strategy.kl_divergence(), torch.zeros(4), rtol=0, atol=1e-2)
    # Each feature's latents: a parabola of its own, read at the features between the points of the grid.
    grid = strategy.inducing_points.squeeze(-1)
    factor = torch.tensor([1.0, -2.0, 0.5, 3.0])
    with torch.no_grad():
        strategy._variational_distribution.variational_mean.copy_(factor.unsqueeze(-1) * grid.square())
    x = embeddings()
    features = 2 * x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    expected = factor * (BOUND * torch.tanh(features / BOUND)).square()
    torch.testing.assert_close(network._latents(x)[0], expected.mT, rtol=1e-3, atol=1e-3)


def test_draws_are_those_of_the_generator() -> None:
    network = GridNetwork(make_backbone("identity", (4,)), 3, grid_size=16)
    x, y = embeddings(), torch.arange(20) % 3
    one, same, other = (network.losses(x, y, torch.Generator().manual_seed(seed), 20) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    with pytest.raises(ValueError, match="grid_size must be at least 4 and n_samples 1, got 3 and 8"):
        GridNetwork(make_backbone("identity", (4,)), 3, grid_size=3)


def test_the_most_certain_answers_have_finite_logarithms() -> None:
    network = GridNetwork(make_backbone("identity", (4,)), 3, grid_size=16)
    with torch.no_grad():
        network.mixing.mul_(1e4)
        network.processes.variational_strategy._variational_distribution.variational_mean.fill_(3.0)
    assert network.predictor()(embeddings()).isfinite().all()

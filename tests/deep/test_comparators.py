"""What GPyTorch's processes are given, and what they give back."""

from __future__ import annotations

import pytest
import torch

from sureshot.deep import GridNetwork, RobustMaxNetwork
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

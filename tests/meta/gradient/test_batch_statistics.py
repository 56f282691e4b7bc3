"""Batch normalisation by the rows at hand, against torch's and against its definition."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import vmap

from sureshot.meta.gradient.batch_statistics import BatchStatistics, counting, with_batch_statistics
from sureshot.networks.backbones import make_backbone


def rows(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_it_is_torchs_in_training() -> None:
    x, layer = 3 + rows(6, 4, 5, 5), nn.BatchNorm2d(4).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([1.0, 2.0, -1.0, 0.5]))
        layer.bias.copy_(torch.arange(4.0))
    torch.testing.assert_close(BatchStatistics(layer)(x), layer(x), rtol=1e-10, atol=1e-10)
    flat = nn.BatchNorm1d(4).double()
    torch.testing.assert_close(BatchStatistics(flat)(x[..., 0, 0]), flat(x[..., 0, 0]), rtol=1e-10, atol=1e-10)


def test_only_rows_of_positive_weight_count() -> None:
    x, layer = rows(6, 4, 3, 3), BatchStatistics(nn.BatchNorm2d(4).double())
    with counting(layer, torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0, 0.0], dtype=torch.float64)):
        found = layer(x)
    torch.testing.assert_close(found[:3], layer(x[:3]))
    mean, variance = x[:3].mean((0, 2, 3)), x[:3].var((0, 2, 3), correction=0)
    expected = (x - mean[:, None, None]) / (variance + 1e-5).sqrt()[:, None, None]
    torch.testing.assert_close(found, expected)
    assert layer.share is None


def test_a_network_keeps_its_names_and_has_no_running_statistics() -> None:
    network = make_backbone("conv4", (1, 16, 16), n_filters=3)
    found = with_batch_statistics(network)
    assert [name for name, _ in found.named_parameters()] == [name for name, _ in network.named_parameters()]
    assert not list(found.buffers())
    x = rows(5, 1, 16, 16).float()
    torch.testing.assert_close(found.eval()(x), network.train()(x), rtol=1e-4, atol=1e-5)


def test_tasks_have_statistics_of_their_own() -> None:
    network = with_batch_statistics(make_backbone("resnet12", (1, 16, 16), widths=(4, 4, 4, 4))).double()
    x = rows(2, 4, 1, 16, 16)
    weight = torch.ones(2, 4, dtype=torch.float64)

    def one(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        with counting(network, weight):
            found: torch.Tensor = network(x)
        return found

    together = vmap(one)(x, weight)
    for task in range(2):
        torch.testing.assert_close(together[task], network(x[task]), rtol=1e-10, atol=1e-12)


def test_normalisation_without_weights_is_refused() -> None:
    with pytest.raises(ValueError, match="without weight and bias cannot be adapted"):
        with_batch_statistics(nn.Sequential(nn.BatchNorm1d(3, affine=False)))


class Activated(nn.BatchNorm2d):
    """As timm's, with an activation inside."""

    def __init__(self, width: int, **inside: nn.Module) -> None:
        super().__init__(width)
        for name, module in inside.items():
            self.add_module(name, module)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = super().forward(x)
        for module in self.children():
            found = module(found)
        return found


def test_what_layers_of_timm_do_after_the_normalisation_stays() -> None:
    x, layer = rows(6, 4, 3, 3), Activated(4, drop=nn.Identity(), act=nn.ReLU(inplace=True)).double()
    found = with_batch_statistics(nn.Sequential(layer))
    torch.testing.assert_close(found(x), layer(x), rtol=1e-10, atol=1e-10)
    assert not found(x).lt(0).any()
    with pytest.raises(ValueError, match="Activated normalises in a way of its own"):
        with_batch_statistics(nn.Sequential(Activated(4, act=nn.ReLU())))

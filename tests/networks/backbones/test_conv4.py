"""Conv4: sizes, and pooling before ReLU against the textbook order."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from sureshot.networks.backbones import Conv4, make_backbone


@pytest.mark.parametrize(
    ("shape", "n_features"),
    [((1, 28, 28), 64), ((3, 84, 84), 1600), ((3, 32, 32), 256), ((1, 84, 84), 1600), ((3, 17, 40), 128)],
)
def test_number_of_features(shape: tuple[int, int, int], n_features: int) -> None:
    backbone = make_backbone("conv4", shape)
    assert backbone.n_features == n_features
    assert backbone(torch.rand(3, *shape, generator=torch.Generator().manual_seed(0))).shape == (3, n_features)


def textbook(backbone: Conv4, x: Tensor) -> Tensor:
    for block in backbone.blocks:
        x = functional.max_pool2d(functional.relu(block.normalisation(block.convolution(x))), 2)
    return x.flatten(1)


@pytest.mark.parametrize("channels", [1, 3])
def test_pooling_before_relu_is_the_textbook_network(channels: int) -> None:
    generator = torch.Generator().manual_seed(1)
    backbone = Conv4((channels, 28, 28), n_filters=16).double()
    # a biased normalisation, so that many windows are zero altogether
    for block in backbone.blocks:
        block.normalisation.bias.data.normal_(-0.5, 1.0, generator=generator)
        block.normalisation.weight.data.normal_(0.0, 1.0, generator=generator)
    x = torch.rand(20, channels, 28, 28, generator=generator, dtype=torch.float64).requires_grad_()
    probe = torch.randn(20, 16, generator=generator, dtype=torch.float64)
    inputs = [x, *backbone.parameters()]
    ours, theirs = backbone(x), textbook(backbone, x)
    assert (theirs == 0).double().mean() > 0.1
    torch.testing.assert_close(ours, theirs)
    for a, b in zip(
        torch.autograd.grad((ours * probe).sum(), inputs),
        torch.autograd.grad((theirs * probe).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_filters() -> None:
    assert make_backbone("conv4", (1, 28, 28), n_filters=32).n_features == 32
    assert make_backbone("conv4", (3, 32, 32), n_filters=(8, 8, 16, 24)).n_features == 96
    for wrong in (0, (8, 8), [8, 8, 8, 0]):
        with pytest.raises(ValueError, match="n_filters must be one positive number or four"):
            make_backbone("conv4", (1, 28, 28), n_filters=wrong)


def test_starts_with_he_normal_weights() -> None:
    weight = Conv4((3, 28, 28)).blocks[1].convolution.weight
    assert weight.std().item() == pytest.approx((2 / (9 * 64)) ** 0.5, rel=0.02)
    assert abs(weight.mean().item()) < 1e-3


@pytest.mark.parametrize(("n_poolings", "side"), [(0, 28), (2, 7), (4, 1)])
def test_features_are_a_map_of_the_last_block(n_poolings: int, side: int) -> None:
    network = make_backbone("conv4", (1, 28, 28), n_filters=3, n_poolings=n_poolings).eval()
    assert network.map_shape == (3, side, side)
    x = torch.rand(2, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    maps = x
    for place, block in enumerate(network.stages()):
        maps = block.normalisation(block.convolution(maps)).relu()
        maps = torch.nn.functional.max_pool2d(maps, 2) if place < n_poolings else maps
    torch.testing.assert_close(network(x).unflatten(1, network.map_shape), maps)


def test_numbers_of_poolings_are_checked() -> None:
    with pytest.raises(ValueError, match="n_poolings must be from 0 to 4, got 5"):
        make_backbone("conv4", (1, 28, 28), n_poolings=5)

"""ResNets: sizes, parameter counts of the published networks, and the textbook order of the operations."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from sureshot.networks.backbones import ResNet12, ResNet18, make_backbone


def n_parameters(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_published_parameter_counts() -> None:
    assert n_parameters(make_backbone("resnet12", (3, 84, 84), widths=(64, 160, 320, 640))) == 12424320  # "12.4 M"
    assert n_parameters(make_backbone("resnet18", (3, 224, 224))) == 11689512 - 513000  # torchvision's without fc


@pytest.mark.parametrize(
    ("name", "shape", "options", "n_features"),
    [
        ("resnet12", (3, 84, 84), {}, 512),
        ("resnet12", (3, 84, 84), {"average_pool": False}, 12800),
        ("resnet18", (3, 32, 32), {}, 512),
        ("resnet18", (3, 84, 84), {"width": 0.5}, 256),
        ("resnet18", (3, 32, 32), {"width": 0.25, "n_features": 1024}, 1024),
    ],
)
def test_number_of_features(
    name: str, shape: tuple[int, int, int], options: dict[str, object], n_features: int
) -> None:
    backbone = make_backbone(name, shape, **options)
    assert backbone.n_features == n_features
    assert backbone(torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))).shape == (2, n_features)


def test_the_stem_follows_the_size() -> None:
    assert make_backbone("resnet18", (3, 32, 32), width=0.1).config["stem"] == "cifar"
    assert make_backbone("resnet18", (3, 84, 84), width=0.1).config["stem"] == "imagenet"
    assert make_backbone("resnet18", (3, 32, 32), width=0.1, stem="imagenet").config["stem"] == "imagenet"
    with pytest.raises(ValueError, match="stem must be 'cifar' or 'imagenet', got 'mnist'"):
        make_backbone("resnet18", (3, 32, 32), stem="mnist")
    with pytest.raises(ValueError, match="resnet18 with the imagenet stem needs images of at least 32x32"):
        make_backbone("resnet18", (3, 28, 28), stem="imagenet")
    with pytest.raises(ValueError, match="width must leave at least one filter"):
        make_backbone("resnet18", (3, 32, 32), width=0.001)
    with pytest.raises(ValueError, match="widths must be four positive numbers"):
        make_backbone("resnet12", (3, 32, 32), widths=(64, 128))


def test_resnet12_pools_before_the_activation_with_the_same_result() -> None:
    backbone = ResNet12((3, 32, 32), widths=(4, 5, 6, 7)).double()
    x = torch.rand(6, 3, 32, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def textbook(maps: Tensor) -> Tensor:
        for block in backbone.blocks:
            a, b, c = block.convolutions
            na, nb, nc = block.normalisations
            branch = functional.leaky_relu(na(a(maps)), 0.1)
            branch = functional.leaky_relu(nb(b(branch)), 0.1)
            branch = nc(c(branch)) + block.shortcut(maps)
            maps = functional.max_pool2d(functional.leaky_relu(branch, 0.1), 2)
        return maps.mean((2, 3))

    torch.testing.assert_close(backbone(x), textbook(x))


def test_resnet18_takes_torchvision_names() -> None:
    keys = set(ResNet18((3, 64, 64), width=0.125).state_dict())
    expected = {"conv1.weight", "bn1.running_var", "layer1.0.conv1.weight", "layer4.1.bn2.bias"}
    assert expected | {"layer2.0.downsample.0.weight", "layer2.0.downsample.1.weight"} <= keys
    assert not any(key.startswith("layer1.0.downsample") for key in keys)


def test_the_shortcut_is_a_strided_convolution() -> None:
    backbone = ResNet18((3, 33, 33), width=0.125).double()
    block = backbone.layer2[0]
    x = torch.rand(4, 8, 17, 17, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    branch = block.bn2(block.conv2(block.bn1(block.conv1(x)).relu()))
    shortcut = block.downsample[1](functional.conv2d(x, block.downsample[0].weight, stride=2))
    torch.testing.assert_close(block(x), (branch + shortcut).relu())


def test_gradients_on_two_threads() -> None:
    # in its own process: what went wrong here was memory corruption, which would take the other tests along
    script = (
        "import torch; from sureshot.networks.backbones import make_backbone; torch.set_num_threads(2)\n"
        "backbone = make_backbone('resnet18', (3, 32, 32), width=0.125)\n"
        "for _ in range(4): backbone(torch.rand(5, 3, 32, 32)).square().sum().backward()"
    )
    environment = os.environ | {"OMP_WAIT_POLICY": "passive"}  # a thread that waits leaves the core to other tests
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, timeout=120, env=environment)

"""Residual networks (He et al. 2016) for images: ResNet-12 of the few-shot literature, and ResNet-18.

ResNet-12 has four blocks of three 3x3 convolutions with a 1x1 shortcut, leaky ReLU (slope 0.1) and 2x2 max-pooling
behind each block, as in TADAM (Oreshkin et al. 2018; 64, 128, 256, 512 filters, the default) and MetaOptNet (Lee et
al. 2019; 64, 160, 320, 640). As in `Conv4`, pooling comes before the increasing activation, with the same result.

ResNet-18 has two 3x3 convolutions in each of eight blocks. The ``"imagenet"`` stem is a 7x7 convolution of stride 2
and 3x3 max-pooling of stride 2, for images of about 84 to 224 pixels; the ``"cifar"`` stem is one 3x3 convolution,
for about 32. Its parameters have the names of torchvision's network, whose ``state_dict``, without ``fc``, can be
loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from sureshot.networks.backbones.base import Backbone, explicit_channels_last, image_shape
from sureshot.networks.backbones.initialisation import convolution, dense, orthogonal

_SLOPE = 0.1


class ResNet12Block(nn.Module):
    """Three convolutions and a shortcut; (B, n_in, H, W) to (B, n_out, H // 2, W // 2)."""

    def __init__(self, n_in: int, n_out: int, generator: torch.Generator) -> None:
        super().__init__()
        gain = (2 / (1 + _SLOPE**2)) ** 0.5
        self.convolutions = nn.ModuleList(
            [convolution(n, n_out, 3, generator, gain=gain) for n in (n_in, n_out, n_out)]
        )
        self.normalisations = nn.ModuleList([nn.BatchNorm2d(n_out, dtype=torch.float32) for _ in range(3)])
        self.shortcut = nn.Sequential(
            convolution(n_in, n_out, 1, generator, gain=gain), nn.BatchNorm2d(n_out, dtype=torch.float32)
        )

    def forward(self, x: Tensor) -> Tensor:
        branch = x
        for depth, (convolve, normalise) in enumerate(zip(self.convolutions, self.normalisations, strict=True)):
            branch = normalise(convolve(branch))
            if depth < 2:
                branch = functional.leaky_relu(branch, _SLOPE)
        return functional.leaky_relu(functional.max_pool2d(branch + self.shortcut(x), 2), _SLOPE)


class ResNet12(Backbone):
    """ResNet-12, for images of at least 16x16 pixels."""

    name = "resnet12"

    def __init__(
        self,
        input_shape: Sequence[int],
        *,
        widths: Sequence[int] = (64, 128, 256, 512),  # filters of the blocks
        # Average over the remaining pixels (features: the last width), else flatten them (84x84: 25 times as many).
        average_pool: bool = True,
        seed: int = 0,
    ) -> None:
        channels, height, width = image_shape(self.name, input_shape, 16)
        filters = [int(n) for n in widths]
        if len(filters) != 4 or min(filters) < 1:
            raise ValueError(f"widths must be four positive numbers, got {widths!r}")
        n_pixels = 1 if average_pool else (height // 16) * (width // 16)
        super().__init__(
            input_shape,
            filters[-1] * n_pixels,
            {"widths": filters, "average_pool": average_pool, "seed": seed},
        )
        generator = torch.Generator().manual_seed(seed)
        self.blocks = nn.Sequential(
            *(
                ResNet12Block(n_in, n_out, generator)
                for n_in, n_out in zip([channels, *filters[:-1]], filters, strict=True)
            )
        )
        self.average_pool = average_pool

    def encode(self, x: Tensor) -> Tensor:
        maps: Tensor = self.blocks(explicit_channels_last(x))
        return maps.mean((2, 3)) if self.average_pool else maps.flatten(1)

    def stages(self) -> list[nn.Module]:
        """The four blocks."""
        return list(self.blocks)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut; (B, n_in, H, W) to (B, n_out, H / stride, W / stride)."""

    def __init__(self, n_in: int, n_out: int, stride: int, generator: torch.Generator) -> None:
        super().__init__()
        self.conv1 = convolution(n_in, n_out, 3, generator, stride=stride)
        self.bn1 = nn.BatchNorm2d(n_out, dtype=torch.float32)
        self.conv2 = convolution(n_out, n_out, 3, generator)
        self.bn2 = nn.BatchNorm2d(n_out, dtype=torch.float32)
        self.stride = stride
        self.downsample: nn.Module = nn.Identity()
        if stride > 1 or n_in != n_out:
            self.downsample = nn.Sequential(
                convolution(n_in, n_out, 1, generator), nn.BatchNorm2d(n_out, dtype=torch.float32)
            )

    def forward(self, x: Tensor) -> Tensor:
        branch: Tensor = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        # A 1x1 convolution of stride 2 is one of stride 1 on every second pixel. Written as the former it corrupts
        # memory in torch 2.13 (channels_last, two threads or more, in the gradient).
        return (branch + self.downsample(x[:, :, :: self.stride, :: self.stride])).relu()


class ResNet18(Backbone):
    """ResNet-18 with global average pooling; for at least 8x8 pixels (CIFAR stem) or 32x32 (ImageNet stem)."""

    name = "resnet18"

    def __init__(
        self,
        input_shape: Sequence[int],
        *,
        stem: Literal["cifar", "imagenet"] | None = None,  # "imagenet" from 64 pixels on by default
        width: float = 1.0,  # factor of the stages' 64, 128, 256 and 512 filters
        # A final linear layer (initialised to keep lengths and angles as well as it can) to that many features; by
        # default the pooled filters are the features, 512 times `width`.
        n_features: int | None = None,
        seed: int = 0,
    ) -> None:
        if stem not in (None, "cifar", "imagenet"):
            raise ValueError(f"stem must be 'cifar' or 'imagenet', got {stem!r}")
        chosen = stem or ("imagenet" if len(input_shape) == 3 and min(input_shape[1:]) >= 64 else "cifar")
        channels, _, _ = image_shape(f"resnet18 with the {chosen} stem", input_shape, 32 if chosen == "imagenet" else 8)
        filters = [round(width * n) for n in (64, 128, 256, 512)]
        if min(filters) < 1:
            raise ValueError(f"width must leave at least one filter of 64, got {width}")
        if n_features is not None and n_features < 1:
            raise ValueError(f"n_features must be at least 1, got {n_features}")
        super().__init__(
            input_shape,
            n_features or filters[-1],
            {"stem": chosen, "width": width, "n_features": n_features, "seed": seed},
        )
        generator = torch.Generator().manual_seed(seed)
        large = chosen == "imagenet"
        self.conv1 = convolution(channels, filters[0], 7 if large else 3, generator, stride=2 if large else 1)
        self.bn1 = nn.BatchNorm2d(filters[0], dtype=torch.float32)
        self.pool_stem = large
        stages = [
            nn.Sequential(BasicBlock(n_in, n_out, stride, generator), BasicBlock(n_out, n_out, 1, generator))
            for n_in, n_out, stride in zip([filters[0], *filters[:-1]], filters, (1, 2, 2, 2), strict=True)
        ]
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.head: nn.Module = nn.Identity()
        if n_features is not None:
            self.head = dense(orthogonal(n_features, filters[-1], generator))

    def encode(self, x: Tensor) -> Tensor:
        maps: Tensor = self.bn1(self.conv1(explicit_channels_last(x)))
        if self.pool_stem:
            maps = functional.max_pool2d(maps, 3, stride=2, padding=1)
        maps = self.layer4(self.layer3(self.layer2(self.layer1(maps.relu()))))
        features: Tensor = self.head(maps.mean((2, 3)))
        return features

    def stages(self) -> list[nn.Module]:
        """Four, of two blocks each."""
        return [self.layer1, self.layer2, self.layer3, self.layer4]

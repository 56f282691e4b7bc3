"""Conv4, the small convolutional network of the few-shot literature (Vinyals et al. 2016).

Four blocks of [3x3 convolution, batch normalisation, ReLU, 2x2 max-pooling], then flattening: 64 features for 28x28
images, 256 for 32x32, 1600 for 84x84.

ReLU and max-pooling commute exactly, in values and in gradients (an increasing function leaves the place of the
maximum where it is, and where ReLU is zero no gradient passes in either order), so we pool first: ReLU then works
on a quarter of the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from sureshot.networks.backbones.base import Backbone, explicit_channels_last, image_shape
from sureshot.networks.backbones.initialisation import convolution


class Conv4Block(nn.Module):
    """3x3 convolution, batch normalisation, 2x2 max-pooling, ReLU; (B, n_in, H, W) to (B, n_out, H // 2, W // 2)."""

    def __init__(self, n_in: int, n_out: int, generator: torch.Generator) -> None:
        super().__init__()
        self.convolution = convolution(n_in, n_out, 3, generator)
        self.normalisation = nn.BatchNorm2d(n_out, dtype=torch.float32)

    def forward(self, x: Tensor) -> Tensor:
        pooled: Tensor = functional.max_pool2d(self.normalisation(self.convolution(x)), 2)
        return pooled.relu()


class Conv4(Backbone):
    """Conv4, for images of at least 16x16 pixels."""

    name = "conv4"

    def __init__(
        self,
        input_shape: Sequence[int],
        *,
        n_filters: int | Sequence[int] = 64,  # of all blocks, or of each of the four
        seed: int = 0,  # of the initial weights (He normal; batch normalisation starts at weight 1 and bias 0)
    ) -> None:
        channels, height, width = image_shape(self.name, input_shape, 16)
        widths = [n_filters] * 4 if isinstance(n_filters, int) else [int(n) for n in n_filters]
        if len(widths) != 4 or min(widths) < 1:
            raise ValueError(f"n_filters must be one positive number or four, got {n_filters!r}")
        super().__init__(
            input_shape,
            widths[-1] * (height // 16) * (width // 16),
            {"n_filters": n_filters if isinstance(n_filters, int) else widths, "seed": seed},
        )
        generator = torch.Generator().manual_seed(seed)
        self.blocks = nn.Sequential(
            *(Conv4Block(n_in, n_out, generator) for n_in, n_out in zip([channels, *widths[:-1]], widths, strict=True))
        )

    def encode(self, x: Tensor) -> Tensor:
        # flatten follows the logical order (channel, row, column) whatever the memory format
        features: Tensor = self.blocks(explicit_channels_last(x)).flatten(1)
        return features

    def stages(self) -> list[nn.Module]:
        """The four blocks."""
        return list(self.blocks)

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

    def __init__(self, n_in: int, n_out: int, generator: torch.Generator, pools: bool = True) -> None:
        super().__init__()
        self.convolution = convolution(n_in, n_out, 3, generator)
        self.normalisation = nn.BatchNorm2d(n_out, dtype=torch.float32)
        self.pools = pools

    def forward(self, x: Tensor) -> Tensor:
        return self.after_convolution(self.convolution(x))

    def after_convolution(self, convolved: Tensor) -> Tensor:
        """What the block makes of maps (B, n_out, H, W) that are convolved already."""
        normalised: Tensor = self.normalisation(convolved)
        return (functional.max_pool2d(normalised, 2) if self.pools else normalised).relu()


class Conv4(Backbone):
    """Conv4, for images of at least 16x16 pixels, or fewer with fewer poolings."""

    name = "conv4"

    def __init__(
        self,
        input_shape: Sequence[int],
        *,
        n_filters: int | Sequence[int] = 64,  # of all blocks, or of each of the four
        n_poolings: int = 4,  # the first so many blocks pool; 2 for learners that compare feature maps
        seed: int = 0,  # of the initial weights (He normal; batch normalisation starts at weight 1 and bias 0)
    ) -> None:
        if type(n_poolings) is not int or not 0 <= n_poolings <= 4:
            raise ValueError(f"n_poolings must be from 0 to 4, got {n_poolings!r}")
        shrunk = 2**n_poolings
        channels, height, width = image_shape(self.name, input_shape, shrunk)
        widths = [n_filters] * 4 if isinstance(n_filters, int) else [int(n) for n in n_filters]
        if len(widths) != 4 or min(widths) < 1:
            raise ValueError(f"n_filters must be one positive number or four, got {n_filters!r}")
        super().__init__(
            input_shape,
            widths[-1] * (height // shrunk) * (width // shrunk),
            {"n_filters": n_filters if isinstance(n_filters, int) else widths, "n_poolings": n_poolings, "seed": seed},
        )
        self.map_shape = widths[-1], height // shrunk, width // shrunk
        generator = torch.Generator().manual_seed(seed)
        self.blocks = nn.Sequential(
            *(
                Conv4Block(n_in, n_out, generator, block < n_poolings)
                for block, (n_in, n_out) in enumerate(zip([channels, *widths[:-1]], widths, strict=True))
            )
        )

    def encode(self, x: Tensor) -> Tensor:
        # flatten follows the logical order (channel, row, column) whatever the memory format
        features: Tensor = self.blocks(explicit_channels_last(x)).flatten(1)
        return features

    def stages(self) -> list[nn.Module]:
        """The four blocks."""
        return list(self.blocks)

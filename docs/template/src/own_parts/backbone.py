"""Random Fourier features of vectors, whose frequencies go on learning."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sureshot.networks.backbones import Backbone


class Fourier(Backbone):
    """Cosines and sines of random projections (Rahimi and Recht 2007)."""

    name = "fourier"  # as in pyproject.toml

    def __init__(
        self, input_shape: Sequence[int], *, n_frequencies: int = 32, scale: float = 1.0, seed: int = 0
    ) -> None:
        # Everything that builds the network again, as JSON values; its weights are saved beside it.
        options = {"n_frequencies": n_frequencies, "scale": scale, "seed": seed}
        super().__init__(input_shape, n_features=2 * n_frequencies, options=options)
        generator = torch.Generator().manual_seed(seed)  # the global one belongs to others
        drawn = torch.randn(n_frequencies, math.prod(input_shape), generator=generator, dtype=torch.float32)
        self.frequencies = nn.Parameter(scale * drawn)

    def encode(self, x: Tensor) -> Tensor:
        angles = x.flatten(1) @ self.frequencies.T  # (B, n_frequencies)
        return torch.cat([angles.cos(), angles.sin()], -1)

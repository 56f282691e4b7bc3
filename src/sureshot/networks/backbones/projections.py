"""Backbones for inputs that are features already: embeddings of a pretrained encoder, or tables.

Such embeddings have a geometry that works; a projection learned on base classes should start there and improve it.
So `LinearProjection` starts as the identity, or as a random orthogonal map when it changes the width (exactly
geometry-preserving when it widens, nearly so, by the lemma of Johnson and Lindenstrauss, when it narrows);
`MLPProjection` is such a linear map plus a network whose last layer starts at zero. Their biases let meta-training
move the origin, on which cosines depend.

Sequences and images are flattened.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from sureshot.networks.backbones.base import Backbone
from sureshot.networks.backbones.initialisation import dense, he_normal, orthogonal


class Identity(Backbone):
    """The inputs as they are, flattened; as unit vectors with `normalise`."""

    name = "identity"

    def __init__(self, input_shape: Sequence[int], *, normalise: bool = False) -> None:
        super().__init__(input_shape, math.prod(input_shape), {"normalise": normalise})
        self.normalise = normalise

    def encode(self, x: Tensor) -> Tensor:
        return _unit(x.flatten(1)) if self.normalise else x.flatten(1)


class LinearProjection(Backbone):
    """A linear map that starts as an isometry, or as near to one as its width allows."""

    name = "linear"

    def __init__(
        self,
        input_shape: Sequence[int],  # D values in all
        *,
        n_features: int | None = None,  # width of the output; D by default, where the map starts as the identity
        # Learn only ``x + U V x`` with U (D, rank), which starts at zero, and V (rank, D): 2 rank D parameters for D^2,
        # for few base classes (low-rank adaptation, Hu et al. 2022). Not together with another `n_features`.
        rank: int | None = None,
        bias: bool = True,  # starts at zero
        normalise: bool = False,  # give unit vectors
        seed: int = 0,  # of the random orthogonal maps
    ) -> None:
        width = math.prod(input_shape)
        n_out = _checked_width(n_features, width)
        if rank is not None and not (1 <= rank <= width and n_out == width):
            raise ValueError(
                f"rank must be 1 to {width} and keeps the width of {width}, got rank {rank} with {n_out} features"
            )
        super().__init__(
            input_shape,
            n_out,
            {"n_features": n_features, "rank": rank, "bias": bias, "normalise": normalise, "seed": seed},
        )
        generator = torch.Generator().manual_seed(seed)
        self.low_rank = rank is not None
        self.normalise = normalise
        if rank is None:
            self.map: nn.Module = dense(isometry(n_out, width, generator), bias)
        else:
            down = dense(orthogonal(rank, width, generator), bias=False)
            self.map = nn.Sequential(down, dense(torch.zeros(width, rank, dtype=torch.float32), bias))

    def encode(self, x: Tensor) -> Tensor:
        rows = x.flatten(1)
        features = rows + self.map(rows) if self.low_rank else self.map(rows)
        return _unit(features) if self.normalise else features


class MLPProjection(Backbone):
    """A linear map plus a ReLU network: starts as `LinearProjection`, can leave it."""

    name = "mlp"

    def __init__(
        self,
        input_shape: Sequence[int],  # D values in all
        *,
        n_features: int | None = None,  # width of the output; D by default, where the linear map starts as the identity
        hidden: Sequence[int] = (256,),  # widths of the hidden layers
        normalise: bool = False,  # give unit vectors
        seed: int = 0,  # of the initial weights
    ) -> None:
        width = math.prod(input_shape)
        n_out = _checked_width(n_features, width)
        widths = [int(n) for n in hidden]
        if not widths or min(widths) < 1:
            raise ValueError(f"hidden must be at least one positive width, got {hidden!r}: without any take 'linear'")
        super().__init__(
            input_shape,
            n_out,
            {"n_features": n_features, "hidden": widths, "normalise": normalise, "seed": seed},
        )
        generator = torch.Generator().manual_seed(seed)
        self.linear = dense(isometry(n_out, width, generator))
        self.hidden = nn.ModuleList(
            [
                dense(he_normal(n_next, n_previous, generator))
                for n_previous, n_next in zip([width, *widths[:-1]], widths, strict=True)
            ]
        )
        self.last = dense(torch.zeros(n_out, widths[-1], dtype=torch.float32), bias=False)
        self.normalise = normalise

    def encode(self, x: Tensor) -> Tensor:
        rows = x.flatten(1)
        state = rows
        for layer in self.hidden:
            state = layer(state).relu()
        features: Tensor = self.linear(rows) + self.last(state)
        return _unit(features) if self.normalise else features


def isometry(n_out: int, n_in: int, generator: torch.Generator) -> Tensor:
    """The identity, or an orthogonal map between widths, scaled to keep squared lengths on average."""
    if n_out == n_in:
        return torch.eye(n_in, dtype=torch.float32)
    return orthogonal(n_out, n_in, generator) * math.sqrt(max(1.0, n_in / n_out))


def _checked_width(n_features: int | None, width: int) -> int:
    if n_features is not None and n_features < 1:
        raise ValueError(f"n_features must be at least 1, got {n_features}")
    return width if n_features is None else n_features


def _unit(rows: Tensor) -> Tensor:
    return functional.normalize(rows, dim=-1)

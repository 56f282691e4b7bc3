"""Penalties for what a network says otherwise than it did: all are zero where nothing has changed.

Every function gives a number (B,) for each row of a batch, differentiable in what the new network says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from sureshot.networks.backbones import Backbone


def output_divergence(
    new: Tensor,  # (B, C), logits of the classes that both know
    old: Tensor,  # (B, C)
    temperature: float,
) -> Tensor:
    """Divergence of the new softmax from the old, both tempered, times the temperature's square (Hinton et al. 2015).

    The square keeps the gradient's size about the same whatever the temperature.
    """
    now, then = (torch.log_softmax(logits / temperature, dim=-1) for logits in (new, old))
    return temperature**2 * (then.exp() * (then - now)).sum(-1)


def embedding_distance(new: Tensor, old: Tensor) -> Tensor:
    """Squared distance of embeddings (B, D) of unit length."""
    return (functional.normalize(new, dim=-1) - functional.normalize(old, dim=-1)).square().sum(-1)


def pooled_maps_distance(
    new: Sequence[Tensor],  # (B, channels, H, W) of each stage
    old: Sequence[Tensor],
) -> Tensor:
    """POD-spatial (Douillard et al. 2020, eq. 5): of each stage, then the mean over stages.

    Squared activations are summed over the width and over the height, both are put side by side and scaled to unit
    length.
    """
    distances = [(_pooled(one) - _pooled(other)).square().sum(-1) for one, other in zip(new, old, strict=True)]
    return torch.stack(distances).mean(0)


def _pooled(maps: Tensor) -> Tensor:
    energy = maps.float().square()
    return functional.normalize(torch.cat([energy.sum(3).flatten(1), energy.sum(2).flatten(1)], dim=1), dim=-1)


@contextmanager
def recorded_stages(backbone: Backbone) -> Iterator[list[Tensor]]:
    """A list that holds, after each pass of a backbone, what its stages gave, in order."""
    stages = backbone.stages()
    maps: list[Tensor] = [torch.empty(0, dtype=torch.float32)] * len(stages)

    def record(place: int) -> torch.utils.hooks.RemovableHandle:
        def keep(module: nn.Module, inputs: object, output: Tensor) -> None:
            maps[place] = output

        return stages[place].register_forward_hook(keep)

    handles = [record(place) for place in range(len(stages))]
    try:
        yield maps
    finally:
        for handle in handles:
            handle.remove()

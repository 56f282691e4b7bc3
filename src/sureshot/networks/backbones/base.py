"""What every backbone offers: rows of one stated shape in, one vector of features for each row out.

A backbone is the network of a deep kernel: the kernel is evaluated on its features. It knows the shape of its
inputs and says so when other ones come, it knows how many features it gives, and it has a *config*, plain JSON
values from which `sureshot.networks.backbones.backbone_from_config` builds the same network again; the weights are
its ``state_dict``.

To add one, write a module beside this one: derive from `Backbone`, state the `name`, write `encode`, and draw every
initial weight from the given seed with the builders of `sureshot.networks.backbones.initialisation`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn


class Backbone(nn.Module, ABC):
    """A network from rows to features."""

    name: ClassVar[str]
    """The public name, as in ``make_backbone(name, ...)``."""

    input_shape: tuple[int, ...]
    n_features: int
    config: dict[str, Any]
    map_shape: tuple[int, int, int] | None = None
    """Of the map (channels, height, width) that the features are when put in rows; None if they are no map."""

    def __init__(
        self,
        input_shape: Sequence[int],  # of a row: (channels, height, width), (length, channels) of a sequence or (width,)
        n_features: int,
        options: Mapping[str, Any],  # everything else that rebuilds the network, as JSON values
    ) -> None:
        super().__init__()
        self.input_shape = tuple(int(size) for size in input_shape)
        if not self.input_shape or min(self.input_shape) < 1:
            raise ValueError(f"input_shape must be the positive sizes of one row, got {tuple(input_shape)}")
        self.n_features = int(n_features)
        self.config = {"name": self.name, "input_shape": list(self.input_shape), **options}

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, n_features) of rows (B, *input_shape)."""
        if tuple(x.shape[1:]) != self.input_shape:
            raise ValueError(f"expected {describe(self.input_shape)}, got {describe(tuple(x.shape[1:]))}")
        if not x.is_floating_point():
            raise ValueError(
                f"expected floating-point inputs, got {x.dtype}: pixels must be scaled to [0, 1] first "
                "(sureshot.networks.backbones.as_inputs)"
            )
        features: Tensor = self.encode(x)
        return features

    @abstractmethod
    def encode(self, x: Tensor) -> Tensor:
        """`forward` for rows whose shape is right."""

    def stages(self) -> list[nn.Module]:
        """Parts whose outputs are maps (B, channels, H, W), in the order of a pass; none of a backbone for vectors."""
        return []


def as_inputs(x: Tensor) -> Tensor:
    """What a backbone takes: bytes of images as float32 in [0, 1], everything else as float32."""
    return x.float() / 255 if x.dtype == torch.uint8 else x.float()


def describe(shape: tuple[int, ...]) -> str:
    """The shape of a row in words."""
    if len(shape) == 3:
        channels = "channel" if shape[0] == 1 else "channels"
        return f"images of {shape[0]} {channels} {shape[1]}x{shape[2]}"
    if len(shape) == 2:
        channels = "channel" if shape[1] == 1 else "channels"
        return f"sequences of length {shape[0]} with {shape[1]} {channels}"
    if len(shape) == 1:
        return f"vectors of length {shape[0]}"
    return "single numbers" if not shape else f"rows of shape {shape}"


def image_shape(name: str, input_shape: Sequence[int], smallest: int) -> tuple[int, int, int]:
    """(channels, height, width), or an error if `input_shape` is not that of images of at least `smallest` pixels."""
    if len(input_shape) != 3:
        raise ValueError(
            f"{name} takes images, input_shape (channels, height, width), got {tuple(input_shape)}: "
            "use 'linear' or 'mlp' for vectors and 'lstm' for sequences"
        )
    channels, height, width = (int(size) for size in input_shape)
    if min(height, width) < smallest or channels < 1:
        raise ValueError(
            f"{name} needs images of at least {smallest}x{smallest} pixels, got {describe((channels, height, width))}: "
            "enlarge the images or take a backbone with fewer poolings"
        )
    return channels, height, width


def explicit_channels_last(x: Tensor) -> Tensor:
    """Images (B, 1, H, W) of one channel, strided so that convolutions take and give channels_last.

    With one channel both memory formats are the same bytes and torch assumes the plain one; the network would
    then change the format of its largest tensors. Images of several channels are returned as they are.
    """
    if x.shape[1] != 1:
        return x
    return x.squeeze(1).unsqueeze(-1).permute(0, 3, 1, 2)

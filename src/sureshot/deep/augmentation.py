"""Images as they might also have been taken: moved by a few pixels, and seen in a mirror."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def random_crops(
    images: Tensor,  # (B, channels, H, W), bytes or floats
    padding: int,  # pixels of zeros on every side, of which H x W are cut out
    generator: torch.Generator,
) -> Tensor:
    """Every image moved by at most `padding` pixels in each direction; what comes in is zero."""
    _check(images)
    n, _, height, width = images.shape
    padded = functional.pad(images, (padding,) * 4)
    top, left = torch.randint(
        2 * padding + 1, (2, n, 1), generator=generator, device=images.device, dtype=torch.int64
    ).unbind(0)
    rows = top + torch.arange(height, device=images.device)  # (B, H)
    columns = left + torch.arange(width, device=images.device)
    each = torch.arange(n, device=images.device)[:, None, None]
    # Indices on both sides of the channels: torch puts the channels last.
    return padded[each, :, rows.unsqueeze(-1), columns.unsqueeze(-2)].permute(0, 3, 1, 2)


def random_flips(
    images: Tensor,  # (B, channels, H, W)
    generator: torch.Generator,
) -> Tensor:
    """Every second image, by chance, with left and right exchanged."""
    _check(images)
    flipped = torch.rand(len(images), 1, 1, 1, generator=generator, device=images.device, dtype=torch.float32) < 0.5
    return torch.where(flipped, images.flip(-1), images)


def _check(images: Tensor) -> None:
    if images.dim() != 4:
        raise ValueError(
            f"only images (B, channels, H, W) can be cropped and flipped, got shape {tuple(images.shape)}: "
            "leave crop and flip out"
        )

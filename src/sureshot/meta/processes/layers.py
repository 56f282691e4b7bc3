"""Layers that neural processes share; every initial weight comes from a generator."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from sureshot.meta.learners.functions import Moments
from sureshot.networks.backbones.initialisation import dense, he_normal
from sureshot.ranges import check_counts


class Waves(nn.Module):
    """Inputs as they are, with sines and cosines of them at 1, 2, 4, ... radians a unit.

    Networks that see plain numbers learn fast changes last. Tancik et al. 2020, "Fourier features let networks learn
    high frequency functions in low dimensional domains".
    """

    def __init__(self, input_width: int, count: int, *, fading: bool = False) -> None:
        super().__init__()
        check_counts(0, waves=count)
        self.count, self.width = count, input_width * (1 + 2 * count)
        self.fading = fading  # whether waves are as high as they are long, so that slow changes are learnt first

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., `width`)."""
        angles = [x * 2.0**k for k in range(self.count)]
        waves = [[wave(angle) for angle in angles] for wave in (torch.sin, torch.cos)]
        if self.fading:
            waves = [[wave / 2.0**k for k, wave in enumerate(part)] for part in waves]
        return torch.cat([x, *waves[0], *waves[1]], -1)


def mlp(widths: Sequence[int], generator: torch.Generator, last: float = 1.0) -> nn.Sequential:
    """Linear layers of these widths, the input's first, with rectifiers between them; `last` scales the last one."""
    layers = [dense(he_normal(after, before, generator)) for before, after in pairwise(widths)]
    with torch.no_grad():
        layers[-1].weight.mul_(last)
    return nn.Sequential(*[part for layer in layers for part in (layer, nn.ReLU())][:-1])


def answering(widths: Sequence[int], generator: torch.Generator) -> nn.Sequential:
    """The same for what `normals` takes: before training means near 0 and deviations near log 2."""
    return mlp(widths, generator, last=0.1)


def normals(outputs: Tensor, floor: float) -> Moments:
    """Normals from outputs (..., 2 K): ``sd = floor + (1 - floor) softplus(s)``.

    The floor bounds the density: at 0.1, as in released code, by 1.38 nats a row.
    """
    mean, raw = outputs.chunk(2, -1)
    return Moments(mean, floor + (1 - floor) * functional.softplus(raw))


def mean_of_rows(rows: Tensor, mask: Tensor) -> Tensor:
    """Mean (T, H) of rows (T, S, H) that are there; zero of none."""
    return rows.masked_fill(~mask.unsqueeze(-1), 0.0).sum(1) / mask.sum(1, keepdim=True).clamp_min(1)


def check_sizes(floor: float, **sizes: int) -> None:
    """Refuse sizes below 1, and a floor of deviations that is none."""
    check_counts(1, **sizes)
    if not 0 < floor < 1:
        raise ValueError(f"floor must be a deviation between 0 and 1, got {floor}")

"""Images as functions from places in [-1, 1]^2 to intensities in [0, 1], one or three: to be completed from pixels."""

from __future__ import annotations

import torch
from torch import Tensor

from sureshot.data.labelled import LabelledSet, digest
from sureshot.meta.functions.source import FunctionRows, FunctionSource
from sureshot.networks.backbones import as_inputs


class Images(FunctionSource):
    """Pixels of the images of a set, whatever their class."""

    input_width = 2

    def __init__(self, data: LabelledSet) -> None:
        if data.x.dim() != 4:
            raise ValueError(f"image completion needs images, got rows of shape {tuple(data.x.shape[1:])}")
        self.images = data.x
        self.target_width, self.side = int(data.x.shape[1]), (int(data.x.shape[2]), int(data.x.shape[3]))
        self.places = pixel_places(self.side)
        self.identity = digest((data.x,))

    def rows(self, n_tasks: int, n_rows: int, generator: torch.Generator, beyond: bool) -> FunctionRows:
        chosen = torch.randint(len(self.images), (n_tasks,), generator=generator)
        return self.pixels(chosen, n_rows, generator)

    def pixels(self, chosen: Tensor, n_rows: int, generator: torch.Generator) -> FunctionRows:
        """Pixels of some images (T,) in random order."""
        n_pixels = len(self.places)
        order = torch.rand(len(chosen), n_pixels, generator=generator).argsort(1)[:, :n_rows]  # (T, N)
        values = as_inputs(self.images[chosen]).flatten(2).mT  # (T, pixels, K)
        y = values.gather(1, order.unsqueeze(-1).expand(-1, -1, self.target_width))
        return FunctionRows(self.places[order], y, torch.full((len(chosen), 1), order.shape[1]))


def pixel_places(side: tuple[int, int]) -> Tensor:
    """Centres of pixels (H W, 2), row by row: height first."""
    down, across = ((2 * torch.arange(n, dtype=torch.float32) + 1) / n - 1 for n in side)
    return torch.cartesian_prod(down, across)

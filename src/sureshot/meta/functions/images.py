"""Images as functions from places in [-1, 1]^2 to intensities in [0, 1], one or three: to be completed from pixels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sureshot.data.few_shot import load_few_shot
from sureshot.data.labelled import LabelledSet, digest
from sureshot.data.root import Root
from sureshot.meta.functions.source import FunctionData, FunctionRows, FunctionSource
from sureshot.networks.backbones import as_inputs


class Images(FunctionSource):
    """Pixels of the images of a set, whatever their class."""

    input_width = 2

    def __init__(self, data: LabelledSet) -> None:
        if data.x.dim() != 4:
            raise ValueError(f"image completion needs images, got rows of shape {tuple(data.x.shape[1:])}")
        self.images, self.identity = data.x, digest((data.x,))
        self.target_width, *sides = data.x.shape[1:]
        # Centres of pixels (H W, 2), row by row: height first.
        self.places = torch.cartesian_prod(*((2 * torch.arange(n) + 1.0) / n - 1 for n in sides))

    def rows(self, n_tasks: int, n_rows: int, generator: torch.Generator, beyond: bool) -> FunctionRows:
        return self.pixels(torch.randint(len(self.images), (n_tasks,), generator=generator), n_rows, generator)

    def pixels(self, chosen: Tensor, n_rows: int, generator: torch.Generator) -> FunctionRows:
        """Pixels of some images (T,) in random order."""
        order = torch.rand(len(chosen), len(self.places), generator=generator, dtype=torch.float64).argsort(1)[
            :, :n_rows
        ]  # (T, N)
        values = as_inputs(self.images[chosen]).flatten(2).mT  # (T, pixels, K)
        y = values.gather(1, order.unsqueeze(-1).expand(-1, -1, self.target_width))
        return FunctionRows(self.places[order], y, torch.full((len(chosen), 1), order.shape[1]))


def images(root: Root = None, *, data: str, options: Mapping[str, Any] | None = None) -> FunctionData:
    """Images of a few-shot set (`sureshot.data.few_shot`), such as "omniglot-vinyals", of classes apart."""
    found = load_few_shot(data, root, **(options or {}))
    return FunctionData(Images(found.train), Images(found.val), Images(found.test), f"pixels of {found.description}")

"""Made-up functions: straight lines, each with its own slope and height."""

from __future__ import annotations

import torch

from sureshot.data.root import Root
from sureshot.meta.functions import FunctionData, FunctionRows, FunctionSource


class Ramps(FunctionSource):
    """Lines on [-1, 1] with noise, of which there is no end."""

    input_width = target_width = 1

    def __init__(self, slope: float, noise: float) -> None:
        self.slope, self.noise = slope, noise
        self.identity = f"ramps of slope {slope:g}, noise {noise:g}"  # what tells them from all others

    def rows(self, n_tasks: int, n_rows: int, generator: torch.Generator, beyond: bool) -> FunctionRows:
        """All of so many rows; `beyond` is for sources that state the range of their ``inputs``."""
        slope, height = torch.randn(2, n_tasks, 1, 1, generator=generator)
        x = 2 * torch.rand(n_tasks, n_rows, 1, generator=generator) - 1
        y = height + self.slope * slope * x + self.noise * torch.randn(x.shape, generator=generator)
        return FunctionRows(x, y, torch.full((n_tasks, 1), n_rows))


def ramps(root: Root = None, *, slope: float = 1.0, noise: float = 0.1) -> FunctionData:
    """To train on, to validate and to test on; of functions that are drawn all three are one source."""
    source = Ramps(slope, noise)
    return FunctionData(source, source, source, source.identity)

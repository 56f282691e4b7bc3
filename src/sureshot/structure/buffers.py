"""Memory that is used again.

A proposal's matrices are read once and thrown away; taking memory for them anew costs more than filling it (the system
clears every page of a large array). So whoever evaluates many proposals keeps what it puts them into.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


class Buffers:
    """Arrays by name; one of a name is valid until the next of this name is asked for. For one thread."""

    def __init__(self) -> None:
        self._held: dict[str, Tensor] = {}

    def take(self, name: str, *shape: int) -> Tensor:
        """An array with anything in it, float64."""
        size = math.prod(shape)
        if name not in self._held or self._held[name].numel() < size:
            self._held[name] = torch.empty(size, dtype=torch.float64)
        return self._held[name][:size].view(shape)

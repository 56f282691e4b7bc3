"""A few rows of each class that are kept to be shown again: exemplars."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from sureshot.incremental.herding import herded_rows


class Exemplars(NamedTuple):
    """Rows and their classes."""

    x: Tensor  # (M, ...)
    y: Tensor  # (M,) int64

    def with_rows(self, x: Tensor, y: Tensor) -> Exemplars:
        """These and further rows."""
        return Exemplars(torch.cat([self.x, x]), torch.cat([self.y, y]))

    def herded(
        self,
        embed: Callable[[Tensor], Tensor],  # rows (N, ...) to (N, D)
        n_classes: int,
        per_class: int,
    ) -> Exemplars:
        """Of each class those that herding chooses, by embeddings of unit length; all where there are no more."""
        unit = unit_directions(embed(self.x)).cpu()
        chosen = herded_rows(unit, self.y, torch.full((n_classes,), per_class))
        return Exemplars(self.x[chosen], self.y[chosen])

    def numbers(self) -> int:
        """How many numbers they are, labels among them."""
        return self.x.numel() + self.y.numel()


def unit_directions(rows: Tensor) -> Tensor:
    """Rows (N, D) of length one in float64; a row of zeros, which rectifiers can give, stays zero."""
    return functional.normalize(rows.double(), dim=-1)

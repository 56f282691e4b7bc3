"""Rows whose targets are numbers, as a search sees them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.computing.layout import aligned
from sureshot.estimators.numbers.target_scale import TargetScale
from sureshot.estimators.rows.labelled_rows import LabelledRows
from sureshot.estimators.rows.preprocessing import Scaling, kernel_inputs
from sureshot.estimators.rows.support import Support


@dataclass(frozen=True)
class NumberSupport(Support):
    """The rows are of one class for all that deals rows by class: folds, and the part that compares kernels."""

    numbers: Tensor  # (P, N), scaled

    @classmethod
    def scaled(
        cls, rows: LabelledRows, target: TargetScale, scaling: Scaling | None, device: torch.device
    ) -> NumberSupport:
        """Rows in the form in which they are kept, and their numbers as they are learnt."""
        x = kernel_inputs(rows.x, scaling, device)
        of_rows = (rows.weight, rows.left_out_shares, rows.evidence, target(rows.y).T)
        weight, left_out, evidence, numbers = (aligned(part, device) for part in of_rows)
        label = torch.zeros(len(x), dtype=torch.int64, device=device)
        return cls(x, label, weight, 1, left_out, evidence, numbers)

    @property
    def targets(self) -> tuple[Tensor, Tensor]:
        """The numbers, and their means (P,)."""
        return self.numbers, (self.numbers * self.weight).sum(-1) / self.weight.sum()

    @property
    def residuals(self) -> Tensor:
        """What the numbers are more than their means, (N, P)."""
        numbers, mean = self.targets
        return (numbers - mean[:, None]).mT.contiguous()

    @property
    def varies(self) -> bool:
        return bool((self.numbers != self.numbers[:, :1]).any())

    def part(self, rows: Tensor) -> NumberSupport:
        of_rows = (part[rows] for part in (self.x, self.y, self.weight))
        x, y, weight = of_rows
        return NumberSupport(x, y, weight, 1, self.left_out[rows], self.evidence[rows], self.numbers[:, rows])


def supports(target: TargetScale) -> Callable[[LabelledRows, Scaling, torch.device], Support]:
    """Rows as kernels see them under a map of the columns, on a device, with numbers on a scale."""
    return lambda rows, scaling, device: NumberSupport.scaled(rows, target, scaling, device)

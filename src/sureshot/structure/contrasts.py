"""Labels as contrasts of classes: one logistic factor for every pair of a row and a class other than its own.

With a latent function for each class a label says, for every other class c, that ``psi = (f_y - f_c) / sqrt(2)`` is
likely to be positive, with probability ``sigma(psi)``: one-vs-each, and for two classes exactly the logistic model
whose latent has the kernel of each f_c. So data are contrasts, all of them "positive", and a class that comes later
brings contrasts of the rows before.

Reference: Titsias 2016, for one-vs-each; `sureshot.inference.one_vs_each` without the root of two.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass(frozen=True)
class Contrasts:
    """P of them, each of a row."""

    row: Tensor  # (P,) int64
    own: Tensor  # (P,) int64, the class of the row
    other: Tensor  # (P,) int64

    def __len__(self) -> int:
        return len(self.row)

    @classmethod
    def none(cls) -> Contrasts:
        """No data."""
        nothing = torch.zeros(0, dtype=torch.int64)
        return cls(nothing, nothing, nothing)

    @classmethod
    def of_labels(
        cls,
        y: Tensor,  # (N,) int64
        n_classes: int,
        first_row: int = 0,  # the number of the first of these rows
        known: int = 0,  # classes from this one on count as others only
    ) -> Contrasts:
        """Those of rows with labels, row by row."""
        others = torch.arange(known, n_classes)
        keep = others != y.unsqueeze(-1)
        row = torch.arange(first_row, first_row + len(y)).unsqueeze(-1).expand(keep.shape)
        return cls(row[keep], y.unsqueeze(-1).expand(keep.shape)[keep], others.expand(keep.shape)[keep])

    @classmethod
    def of_rows(cls, n_rows: int, first_row: int = 0) -> Contrasts:
        """One for each row, all alike, so that its latent has the kernel itself: those of rows with numbers."""
        row = torch.arange(first_row, first_row + n_rows)
        return cls(row, torch.ones_like(row), torch.zeros_like(row))

    def followed_by(self, more: Contrasts) -> Contrasts:
        """These and more."""
        return Contrasts(*(torch.cat([getattr(self, part.name), getattr(more, part.name)]) for part in fields(self)))

    def chosen(self, places: Tensor) -> Contrasts:
        """Some of them."""
        return Contrasts(*(getattr(self, part.name)[places] for part in fields(self)))

    def agreement(self, others: Contrasts) -> Tensor:
        """By what the kernel of their rows is multiplied, (P, P')."""
        same = [
            (first.unsqueeze(-1) == second).to(torch.float64)
            for first in (self.own, self.other)
            for second in (others.own, others.other)
        ]
        return (same[0] - same[1] - same[2] + same[3]) / 2

    def of_classes(self, n_classes: int) -> Tensor:
        """The same with the latent of each class, (P, C)."""
        identity = torch.eye(n_classes, dtype=torch.float64)
        return (identity[self.own] - identity[self.other]) / 2**0.5

    def covariance(
        self,
        others: Contrasts,
        gram: Tensor,  # (..., N, M), the kernel of rows of these and rows of others
        nugget: Tensor,  # (...), the variance that belongs to a row alone
        agreement: Tensor | None = None,  # of the two, where it is known
    ) -> Tensor:
        """Prior covariance (..., P, P') of contrasts with others, the same rows having the same numbers."""
        agreement = self.agreement(others) if agreement is None else agreement
        values = (
            gram[..., self.row.unsqueeze(-1), others.row]
            if not (self.are_rows(gram.shape[-2]) and others.are_rows(gram.shape[-1]))
            else gram
        )
        own = (self.row.unsqueeze(-1) == others.row).to(gram.dtype)
        return (values + nugget[..., None, None] * own) * agreement

    def are_rows(self, n_rows: int) -> bool:
        """Whether they are one for each row in its order."""
        return len(self.row) == n_rows and bool((self.row == torch.arange(n_rows)).all())

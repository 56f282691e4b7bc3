"""Random features in O(R log D): a matrix of frequencies that is a product of diagonals, a permutation and transforms.

Columns are padded with zeros to a power of two d. A block of d frequencies is ``V = S H G P H B / sqrt(d)``: H is
Hadamard's matrix of entries -1 and 1, B random signs, P a permutation, G normal, and S makes rows of V as long as
independent frequencies of the kernel are, ``S_ii = |w_i| / |G|``. Blocks are stacked.

Reference: Le, Sarlos & Smola 2013.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from sureshot.approximations.random_features import FeatureMap, normal, tails
from sureshot.kernels import Expression


@dataclass(frozen=True)
class Fastfood(FeatureMap):
    """By the first F frequencies of K blocks of d."""

    name = "fastfood"
    signs: Tensor  # (K, d), of B
    order: Tensor  # (K, d) int64, of P: place j takes what was at ``order[j]``
    gains: Tensor  # (K, d), of G
    lengths: Tensor  # (F,), of S

    @classmethod
    def drawn(cls, kernel: Expression, width: int, most: int, generator: torch.Generator) -> Self:
        count, size = max(1, most // 2), 1 << (width - 1).bit_length()
        blocks = -(-count // size)
        signs, gains = normal(generator, blocks, size).sign(), normal(generator, blocks, size)
        order = normal(generator, blocks, size).argsort(-1)
        lengths = normal(generator, count, size).norm(dim=-1) * tails(kernel, count, generator)
        return cls(kernel, signs, order, gains, lengths / gains.norm(dim=-1).repeat_interleave(size)[:count])

    def angles(self, x: Tensor) -> Tensor:
        size = self.signs.shape[-1]
        mixed = hadamard(pad(x, (0, size - x.shape[-1])).unsqueeze(-2) * self.signs)  # (..., N, K, d)
        mixed = hadamard(mixed.gather(-1, self.order.expand(mixed.shape)) * self.gains)
        return mixed.flatten(-2)[..., : len(self.lengths)] * (self.lengths / size**0.5)


class ALaCarte(Fastfood):
    """By diagonals that begin as a draw, and that the evidence learns (Yang, Smola, Song & Wilson 2015).

    Lengths of frequencies are the kernel's radial shape, any isotropic one; the others bend it by direction.
    """

    name = "a_la_carte"
    learnt = ("signs", "gains", "lengths")


def hadamard(x: Tensor) -> Tensor:
    """``H x`` of vectors (..., d), d a power of two, in O(d log d); H is in Sylvester's order."""
    width = 1
    while width < x.shape[-1]:
        first, second = x.unflatten(-1, (-1, 2, width)).unbind(-2)
        x = torch.stack([first + second, first - second], -2).flatten(-3)
        width *= 2
    return x

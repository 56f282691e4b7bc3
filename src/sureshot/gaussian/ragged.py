"""Many problems of different sizes at once: the nodes of a tree, binary classifiers over subsets of the same rows.

Problems are sorted by size and cut into *buckets*, in each of which padding costs a stated factor at most and the
matrices fit a stated number of entries. Within a bucket padded rows have sites of precision zero, which say nothing,
exactly; so every prior and all above it serve.

A problem of n rows takes ``n^2`` entries by its kernel matrix and ``n R`` by R features: problems of thousands of rows
go by features, since the largest one is held whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.computing.blocks import AT_ONCE
from sureshot.gaussian.sites import Sites

LARGEST_WASTE = 1.5
"""How many times the matrix entries that a bucket's problems need on their own, it may hold."""


@dataclass(frozen=True)
class Bucket:
    """Problems of similar size, padded to the largest of them."""

    problems: Tensor  # (P,) int64, their places among all
    rows: Tensor  # (P, n) int64, which rows each is about; padded with these again, from the first on
    present: Tensor  # (P, n) bool, False for padding

    def gram(self, shared: Tensor) -> Tensor:
        """The problems' kernel matrices (P, 1, n, n) from that of all rows (N, N)."""
        return shared[self.rows.unsqueeze(-1), self.rows.unsqueeze(-2)].unsqueeze(1)

    def features(self, shared: Tensor) -> Tensor:
        """The problems' features (P, 1, n, R) from those of all rows (N, R)."""
        return shared[self.rows].unsqueeze(1)

    def values(self, of_rows: Tensor) -> Tensor:
        """What belongs to the rows (N,), for each problem, (P, n); padding repeats a row and must not be used."""
        return of_rows[self.rows]

    def sites(self, sites: Sites) -> Sites:
        """Sites (P, C, n) with those of the padding taken away."""
        present = self.present.unsqueeze(1)
        return Sites(*(part.masked_fill(~present, 0) for part in sites))


def size_buckets(
    members: Sequence[Tensor],  # of each problem its rows, (n_p,) int64, at least one
    largest_waste: float = LARGEST_WASTE,
    at_once: int = 2 * AT_ONCE,  # entries of the matrices of one bucket
    rank: int | None = None,  # R, of problems by features; by kernel matrices without it
    whole: int = 0,  # rows up to which problems go by kernel matrices all the same, in buckets of their own
) -> list[Bucket]:
    """Cut problems into buckets; a problem too large for the bound is one by itself.

    Raises
    ------
    ValueError
        For a problem without rows, or a waste below 1.
    """
    sizes = [len(rows) for rows in members]
    if not all(sizes):
        raise ValueError(f"problem {sizes.index(0)} has no rows: leave it out; without data a posterior is its prior.")
    if largest_waste < 1:
        raise ValueError(f"largest_waste must be at least 1, which is none; got {largest_waste:g}.")
    entries = [n**2 if rank is None or n <= whole else n * rank for n in sizes]
    order = sorted(range(len(members)), key=sizes.__getitem__, reverse=True)
    buckets, begin = [], 0
    while begin < len(order):
        largest, needed, end = entries[order[begin]], 0, begin
        while end < len(order):
            needed += entries[order[end]]
            held = (end - begin + 1) * largest
            other = sizes[order[end]] <= whole < sizes[order[begin]]
            if end > begin and (other or held > largest_waste * needed or held > at_once):
                break
            end += 1
        buckets.append(_bucket(order[begin:end], members))
        begin = end
    return buckets


def _bucket(problems: list[int], members: Sequence[Tensor]) -> Bucket:
    chosen = [members[p] for p in problems]
    n = max(map(len, chosen))
    places = torch.arange(n, device=chosen[0].device)
    rows = torch.stack([r[places % len(r)] for r in chosen])
    present = torch.stack([places < len(r) for r in chosen])
    return Bucket(torch.tensor(problems, device=rows.device), rows, present)

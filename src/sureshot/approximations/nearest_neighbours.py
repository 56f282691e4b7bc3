"""A kernel seen from each query by its nearest labelled rows only: a regression of its own on K of them.

Exact if K is the number of rows. Otherwise every query conditions on the rows that tell most about it, and memory is
the rows (Vecchia 1988; Gramacy & Apley 2015). Which are near says the kernel: rows are kept in units of its
length-scales.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from sureshot.computing.blocks import IN_CACHE, blocks
from sureshot.gaussian.local_regression import LocalProblem
from sureshot.kernels import Expression
from sureshot.kernels.leaf import Stationary

logger = logging.getLogger(__name__)

FARTHEST = 1e6  # length-scales from the origin: rows beyond are as unlike all others as those there
ROWS_IN_LISTS = 50_000  # rows from which on inverted lists are faster than all distances
LISTS, LISTS_ASKED, ROWS_OF_A_LIST = 4, 64, 64
"""Lists per square root of the rows, those a query looks through, and rows that find the centre of each. A query takes
.13 ms of 100,000 rows and .32 ms of a million, and finds 98 % of the nearest of independent normal rows of ten columns,
77 % of twenty."""
TIE = 1e-4  # length-scales by which rows equally far away are told apart
CANDIDATES = 3  # times as many rows, the nearest by Euclidean distance, among which another metric chooses
OFF = 1e12  # times the noise of a neighbour that says nothing


@dataclass(frozen=True)
class NearestRows:
    """Rows in units of length-scales, and which of them are nearest to queries.

    Many rows may be equally far from a query. Which are taken must not hang on the queries beside it: each row has a
    small distance more, all its own.
    """

    keys: Tensor  # (N, D + 1) float32, the small distance last

    @classmethod
    def of(cls, x: Tensor, lots: Tensor) -> NearestRows:
        """Rows (N, D) in units of length-scales, each with a number (N,) from 0 to 1 that is all its own."""
        return cls(torch.cat([rounded(x), TIE * lots.float().unsqueeze(-1)], 1))

    @property
    def x(self) -> Tensor:
        """The rows (N, D), `rounded`."""
        return self.keys[:, :-1]

    @cached_property
    def _search(self) -> Callable[[np.ndarray, int], np.ndarray]:
        """From queries (Q, D + 1) and a number to places (Q, number)."""
        keys = self.keys.numpy()
        if len(keys) > ROWS_IN_LISTS and find_spec("faiss") is not None:
            return _by_lists(keys)
        if len(keys) > ROWS_IN_LISTS:
            logger.info("pip install 'sureshot[large]' finds the nearest of %d rows several times as fast", len(keys))
        every = NearestNeighbors(algorithm="brute").fit(keys)
        return lambda queries, count: every.kneighbors(queries, count, return_distance=False)

    def nearest(self, queries: Tensor, count: int) -> Tensor:
        """Places (Q, count) of the rows nearest to `rounded` queries (Q, D), the nearest first."""
        keys = torch.cat([queries, queries.new_zeros(len(queries), 1)], 1)
        return torch.from_numpy(self._search(keys.numpy(), min(count, len(self.keys))))


def _by_lists(keys: np.ndarray) -> Callable[[np.ndarray, int], np.ndarray]:
    """By inverted lists around centres, of which a query looks through the nearest: about as many rows as distances."""
    import faiss

    n_lists = round(LISTS * len(keys) ** 0.5)
    index: Any = faiss.index_factory(keys.shape[1], f"IVF{n_lists},Flat")
    index.train(keys[:: max(1, len(keys) // (ROWS_OF_A_LIST * n_lists))])
    index.add(keys)
    index.nprobe = LISTS_ASKED

    def search(queries: np.ndarray, count: int) -> np.ndarray:
        found: np.ndarray = index.search(queries, count)[1]
        return np.where(found < 0, found[:, :1], found)  # lists that hold fewer: the nearest again

    return search


def rounded(x: Tensor) -> Tensor:
    """Rows (N, D) as neighbours are sought and kept, in single precision."""
    return x.clamp(-FARTHEST, FARTHEST).float()


class Neighbourhoods(NamedTuple):
    """Of a block of queries."""

    queries: slice
    place: Tensor  # (B, K), of their nearest rows
    problem: LocalProblem


@dataclass(frozen=True)
class NearestNeighbours:
    """Labelled rows under a kernel of variance 1, seen by their nearest neighbours."""

    kernel: Expression  # of rows in units of length-scales
    rows: NearestRows
    noise: Tensor  # (N,), variances
    count: int  # of neighbours

    def around(
        self,
        queries: Tensor,  # (Q, D), in units of length-scales
        own: Tensor | None = None,  # (Q,), where the queries are among the rows
        share: Tensor | None = None,  # (Q,), of their own weight that is left out
        entries: int = 1,  # numbers that are wanted of each query and neighbour
        hides: Callable[[Tensor, Tensor], Tensor] | None = None,  # of queries (B,) among the rows, rows (B, K): which
    ) -> Iterator[Neighbourhoods]:
        """By blocks, each query without itself if it is one of the rows."""
        count = min(self.count + (own is not None), len(self.noise))
        for block in blocks(len(queries), count * max(count, entries), 4 * IN_CACHE):
            asked = rounded(queries[block])
            hidden = None if hides is None or own is None else partial(hides, own[block])
            place = self.places(asked, count, hidden)
            noise = self.noise[place]
            if hidden is not None:
                noise = torch.where(hidden(place), OFF * noise, noise)
            if own is not None and share is not None:
                noise = noise_without(noise, place == own[block, None], share[block, None])
            beside = self.rows.x[place].double() - asked.double().unsqueeze(1)
            yield Neighbourhoods(block, place, local_problem(self.kernel, beside, noise))

    def places(
        self,
        queries: Tensor,
        count: int,
        hidden: Callable[[Tensor], Tensor] | None = None,  # which of rows at places (Q, K) do not count
    ) -> Tensor:
        """Of the nearest rows under the kernel, (Q, count), the nearest first, for `rounded` queries."""
        if isinstance(self.kernel, Stationary) and hidden is None:
            return self.rows.nearest(queries, count)
        place = self.rows.nearest(queries, CANDIDATES * count)
        beside = self.rows.x[place] - queries.unsqueeze(1)
        chosen = nearest_by(self.kernel, beside, count, None if hidden is None else hidden(place))
        return place.gather(1, chosen)


def nearest_by(kernel: Expression, x: Tensor, count: int, hidden: Tensor | None = None) -> Tensor:
    """Which of candidates (B, M, D), relative to their query, the kernel finds most like it, (B, count).

    Those that are hidden (B, M) come last.
    """
    values = cross_values(kernel, x)
    values = values if hidden is None else values.masked_fill(hidden, -1.0)
    return values.topk(min(count, x.shape[1]), -1).indices


def cross_values(kernel: Expression, x: Tensor) -> Tensor:
    """The kernel between queries, which are the origin, and neighbours (B, K, D)."""
    if isinstance(kernel, Stationary):
        return kernel.of_squared_distance((x / kernel.lengthscale).square().sum(-1))
    return kernel.values(x, torch.zeros_like(x[:, :1]), False).squeeze(-1)


def local_problem(kernel: Expression, x: Tensor, noise: Tensor) -> LocalProblem:
    """Of queries, which are the origin, and neighbours (B, K, D); differentiable in kernel and noise (B, K)."""
    if not isinstance(kernel, Stationary):
        return LocalProblem(kernel.values(x, x, False), cross_values(kernel, x), noise)
    # Rows are small numbers here, so their products keep the digits of distances, at a third of the time.
    x = x / kernel.lengthscale
    norms = x.square().sum(-1)
    squared = torch.baddbmm(norms.unsqueeze(-1) + norms.unsqueeze(-2), x, x.mT, alpha=-2).clamp_min(0)
    return LocalProblem(kernel.of_squared_distance(squared), kernel.of_squared_distance(norms), noise)


def noise_without(noise: Tensor, own: Tensor, share: Tensor) -> Tensor:
    """Noise (B, K) of neighbours of which some are the query itself, and go with a share (B, 1) of their weight."""
    return torch.where(own, noise / (1 - share).clamp_min(1 / OFF), noise)

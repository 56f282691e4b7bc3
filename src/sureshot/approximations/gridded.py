"""Rows of a grid, or between its points: ``K = W (K_1 x K_2 x ...) W'``, of a kernel that is a product over columns.

W (N, M) is sparse. `toeplitz` and `kronecker` are exact: W says which point of the grid a row is, and gaps are points
without rows. Factors of evenly spaced columns are Toeplitz matrices, multiplied by fast Fourier transforms; others are
dense, and if every point is a row, and all have one noise, their eigenvectors solve everything:
``log|K + s I| = sum log(l_1 l_2 ... + s)``. `kiss` interpolates rows between the four nearest nodes of each column.

References: Keys 1981; Saatci 2011; Wilson et al. 2014; Wilson & Nickisch 2015.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from math import prod
from typing import Any

import torch
from gpytorch.utils.interpolation import Interpolation
from linear_operator.operators import DenseLinearOperator, KroneckerProductLinearOperator, ToeplitzLinearOperator
from torch import Tensor

from sureshot.approximations.products import FACTORED, Factored, Products, across, by_factor
from sureshot.kernels.leaves import RBF, Laplacian
from sureshot.warned import warn

SAME, OFF_STEP = 1e-9, 1e-4  # of a column's range: values as near are one; of a step: how far off it a value may be
PARTS = 8  # steps that the shortest gap may have
MOST_LEVELS = 4000  # values of an uneven column
FULLEST, MOST_POINTS = 20, 2**23  # points of a grid to a row, and of a column, at most
NODES, MOST_COLUMNS = 2**17, 4  # of all columns together, and columns, that are interpolated
_INSTEAD = ": round columns to fewer values, or use approximation='kiss' (few columns) or 'iterative' (any rows)."
FINE, COARSE = 10, 2  # nodes in a length-scale that are wanted, and fewer than which change the function


@dataclass(frozen=True)
class Gridded(Products):
    """Of a scaled leaf."""

    columns: tuple[Tensor, ...]  # (M_d,), values of the grid
    factors: tuple[Any, ...]  # (M_d, M_d), linear operators; the first has the output scale
    mixing: Tensor  # W (N, M), sparse
    is_between: bool  # whether rows are interpolated

    def exact(self, vectors: Tensor) -> Tensor:
        return torch.sparse.mm(self.mixing, self._on_nodes(vectors))

    def of_queries(self, queries: Tensor, vectors: Tensor) -> Tensor:
        """Beyond what is interpolated the kernel itself tells what nodes have to say."""
        if not self.is_between:
            return across(self.kernel, self.x, queries, vectors)
        found = vectors.new_zeros(len(queries), vectors.shape[1])
        inside = ((queries >= self.x.min(0).values) & (queries <= self.x.max(0).values)).all(1)
        if bool(inside.any()):
            found[inside] = torch.sparse.mm(_interpolating(self.columns, queries[inside]), self._on_nodes(vectors))
        if not bool(inside.all()):
            nodes = torch.cartesian_prod(*self.columns).reshape(-1, len(self.columns))
            found[~inside] = across(self.kernel, nodes, queries[~inside], torch.sparse.mm(self._mixed, vectors))
        return found

    def factored(self, noise: Tensor) -> Factored | None:
        n, points = self.mixing.shape
        is_whole = n == points == len(self.mixing.indices()[1].unique()) and not self.is_between
        if is_whole and bool((noise == noise[0]).all()) and max(map(len, self.columns)) <= FACTORED:
            values, basis = KroneckerProductLinearOperator(*self.factors).eigh()
            total = values.clamp_min(0)[:, None] + noise[0]

            def solve(sides: Tensor) -> Tensor:
                along = basis.mT @ torch.sparse.mm(self._mixed, sides)
                return torch.sparse.mm(self.mixing, basis @ (along / total))

            return Factored(solve, total.log().sum())
        if n > FACTORED or (self.is_between and n * points > 2**26):
            return None
        unit = torch.eye(n, dtype=noise.dtype, device=noise.device)
        return by_factor(self.exact(unit) if self.is_between else self.kernel(self.x), noise)

    @cached_property
    def _mixed(self) -> Tensor:
        return self.mixing.t().coalesce()

    def _on_nodes(self, vectors: Tensor) -> Tensor:
        found: Tensor = KroneckerProductLinearOperator(*self.factors) @ torch.sparse.mm(self._mixed, vectors)
        return found


def toeplitz(kernel: Any, x: Tensor) -> Gridded:
    """Rows of a grid of even steps."""
    columns, places = [], []
    for values, level in map(_levels, x.unbind(1)):
        place = _even_places(values)
        if place is None or int(place[-1]) >= MOST_POINTS:
            raise ValueError(
                f"approximation='toeplitz' needs evenly spaced values of every column, gaps allowed, and {len(x)} rows "
                "have none: round times to their step, or use approximation='kronecker' (rows of uneven grids), 'kiss' "
                "(any rows of few columns) or 'iterative' (any rows)."
            )
        step = (values[-1] - values[0]) / place[-1].clamp_min(1)
        columns.append(values[0] + step * torch.arange(int(place[-1]) + 1, dtype=x.dtype, device=x.device))
        places.append(place[level])
    return _at_points("toeplitz", kernel, x, columns, places)


def kronecker(kernel: Any, x: Tensor) -> Gridded:
    """Rows of a grid of any values."""
    columns, places = zip(*map(_levels, x.unbind(1)), strict=True)
    if max(map(len, columns)) > MOST_LEVELS:
        raise ValueError(f"approximation='kronecker' takes {MOST_LEVELS} different values of a column{_INSTEAD}")
    return _at_points("kronecker", kernel, x, columns, places)


def kiss(kernel: Any, x: Tensor) -> Gridded:
    """Any rows of few columns, between nodes."""
    width, lengthscale = x.shape[1], kernel.base_kernel.lengthscale
    if width > MOST_COLUMNS:
        raise ValueError(
            f"approximation='kiss' interpolates 1 to {MOST_COLUMNS} columns, and {width} vary: use "
            "approximation='iterative' or 'nearest_neighbours', or fewer columns."
        )
    low, high, most = x.min(0).values, x.max(0).values, int(NODES ** (1 / width)) - 5
    wanted = (FINE * (high - low) / lengthscale).ceil().clamp_min(1)
    if bool((wanted > FINE / COARSE * most).any()):
        warn(
            f"approximation='kiss' has {most} nodes a column, fewer than {COARSE} in a length-scale, so that what is "
            "learnt is smoother than the kernel: use approximation='iterative'."
        )
    columns = []
    for first, last, count in zip(low, high, wanted.clamp_max(most), strict=True):
        step = (last - first) / count if last > first else torch.ones_like(last)
        columns.append(first + step * torch.arange(-2, int(count) + 3, dtype=x.dtype, device=x.device))
    factors = _factors("kiss", kernel, columns, True)
    return Gridded(kernel, x, tuple(columns), factors, _interpolating(columns, x), True)


def _at_points(name: str, kernel: Any, x: Tensor, columns: Any, places: Any) -> Gridded:
    shape = [len(one) for one in columns]
    if prod(shape) > FULLEST * len(x):
        raise ValueError(
            f"approximation={name!r} needs rows of a grid, and {len(x)} rows are few of the "
            f"{' x '.join(map(str, shape))} points that their columns' values make{_INSTEAD}"
        )
    place = reduce(lambda known, one: known * one[0] + one[1], zip(shape, places, strict=True), 0 * places[0])
    mixing = _sparse(place[:, None], torch.ones_like(x[:, :1]), prod(shape))
    return Gridded(kernel, x, tuple(columns), _factors(name, kernel, columns, name == "toeplitz"), mixing, False)


def _factors(name: str, kernel: Any, columns: Any, even: bool) -> tuple[Any, ...]:
    leaf, found = kernel.base_kernel, []
    if len(columns) > 1 and not isinstance(leaf, RBF | Laplacian):
        raise ValueError(
            f"approximation={name!r} needs a kernel that is a product over columns, 'rbf' or 'laplacian', and {leaf} "
            "is none: use one of these, or approximation='iterative'."
        )
    for place, (values, scale) in enumerate(zip(columns, leaf.lengthscale.expand(len(columns)), strict=True)):
        one = leaf.replace(lengthscale=scale[None]) * (kernel.outputscale if place == 0 else torch.ones_like(scale))
        column = values[:, None]
        found.append(
            ToeplitzLinearOperator(one(column, column[:1])[:, 0]) if even else DenseLinearOperator(one(column))
        )
    return tuple(found)


def _interpolating(columns: Any, x: Tensor) -> Tensor:
    node, weight = Interpolation().interpolate(list(columns), x)
    return _sparse(node, weight, prod(len(one) for one in columns))


def _sparse(place: Tensor, weight: Tensor, width: int) -> Tensor:
    """Rows (N, width) with weights (N, J) at places."""
    row = torch.arange(len(place), device=place.device)[:, None].expand_as(place)
    index, shape = torch.stack([row.reshape(-1), place.reshape(-1)]), (len(place), width)
    return torch.sparse_coo_tensor(index, weight.reshape(-1), shape, check_invariants=True).coalesce()


def _levels(column: Tensor) -> tuple[Tensor, Tensor]:
    """Distinct values (M,) of a column (N,), increasing, and the place (N,) of each row among them."""
    ordered, order = column.sort(stable=True)
    is_new = ordered.diff() > SAME * (ordered[-1] - ordered[0])
    place = torch.zeros_like(order)
    place[order[1:]] = is_new.cumsum(0)
    return torch.cat([ordered[:1], ordered[1:][is_new]]), place


def _even_places(values: Tensor) -> Tensor | None:
    """The places (M,) of increasing values among even steps from the first; None where there are none."""
    if len(values) == 1:
        return torch.zeros(1, dtype=torch.int64, device=values.device)
    distance, shortest = values - values[0], values.diff().min()
    for parts in range(1, PARTS + 1):
        step = distance[-1] / (distance[-1] / (shortest / parts)).round()
        place = (distance / step).round()
        if bool(((distance / step - place).abs() < OFF_STEP).all()):
            return place.long()
    return None

"""The leaves of structures: kinds of kernels, and how standard normal numbers become their parameters.

Every parameter is a transform of an independent N(0, 1) variable, so the prior over the parameters of any structure is
standard normal, elliptical slice sampling needs no tuning, and drawing a leaf anew is drawing normal numbers. Inputs
are standardised columns; length-scales are relative to the typical distance of rows, the root of the number of columns.

To add a kind of leaf, write the function from numbers to a kernel and register it: everything else (moves, canonical
form, files, pictures) follows.

>>> from sureshot.kernels import RationalQuadratic
>>> def rational_quadratic(z, scales):
...     return scales.amplitude(z[..., 0]) * RationalQuadratic(scales.lengthscale(z[..., 2:]), z[..., 1].exp())
>>> register_leaf(LeafKind("RATIONAL-QUADRATIC", rational_quadratic, numbers=2, has_lengthscales=True))
>>> print(LEAVES.pop("RATIONAL-QUADRATIC").kernel(torch.zeros(3, dtype=torch.float64), Scales(width=4)))
1 x RationalQuadratic(2, 1)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.data.typed_values import typed_value
from sureshot.kernels import (
    RBF,
    Brownian,
    CenteredLinear,
    Constant,
    Expression,
    GammaExponential,
    Linear,
    Matern,
    Periodic,
)
from sureshot.structure.structure import PRODUCT, SUM, is_leaf_name


@dataclass(frozen=True)
class LogNormal:
    """``exp(mean + sd z)``; ValueError for what are no finite numbers."""

    mean: float = 0.0
    sd: float = 1.0

    def __post_init__(self) -> None:
        for name in ("mean", "sd"):
            object.__setattr__(self, name, typed_value(name, float, getattr(self, name)))
        if not (math.isfinite(self.mean) and 0 <= self.sd < math.inf):
            raise ValueError(f"mean and sd must be finite, and sd not negative, got {self.mean:g} and {self.sd:g}")

    def __call__(self, z: Tensor) -> Tensor:
        return (self.mean + self.sd * z).exp()


STANDARD = LogNormal()


@dataclass(frozen=True)
class Scales:
    """Priors of what leaves have in common."""

    width: int  # D, columns that a leaf looks at
    amplitude: LogNormal = STANDARD
    relative_lengthscale: LogNormal = STANDARD  # in units of sqrt(D)
    per_column: bool = False  # one length-scale for each column
    offset: bool = False  # that linear kernels have one, N(0, 1) for each column
    period: LogNormal = STANDARD  # in units of the columns

    def lengthscale(
        self,
        z: Tensor,  # (..., D or 1)
    ) -> Tensor:
        """Length-scales of the columns (..., D or 1)."""
        return math.sqrt(self.width) * self.relative_lengthscale(z)

    @property
    def n_lengthscales(self) -> int:
        """D, or 1 where all columns share one."""
        return self.width if self.per_column else 1


@dataclass(frozen=True)
class LeafKind:
    """A kind of leaf."""

    name: str  # letters, digits, dashes and underlines, a letter first
    kernel: Callable[[Tensor, Scales], Expression]
    """From numbers (..., P) to the kernel, whose parameters have the leading dimensions."""
    numbers: int  # without length-scales, which come behind them
    has_lengthscales: bool = False
    has_offset: bool = False  # numbers for each column, behind all others, where `Scales.offset`
    closed_under: frozenset[str] = frozenset()
    """Operators under which two leaves of this kind on the same columns are one leaf, for other parameters."""
    contains_constant: bool = False
    """Whether the sum of this kind and a constant is of this kind."""
    constant: Callable[[Tensor, Scales], Tensor] | None = None
    """The largest constant (...) that leaves a kernel if it is taken off, from the same numbers; None: zero."""
    least_columns: int = 1
    """That a leaf must look at to say what no other kind does: a grammar draws none of fewer."""

    def size(self, scales: Scales) -> int:
        """P."""
        offsets = scales.width if self.has_offset and scales.offset else 0
        return self.numbers + self.has_lengthscales * scales.n_lengthscales + offsets


LEAVES: dict[str, LeafKind] = {}
"""Kinds of leaves by name."""


def register_leaf(kind: LeafKind) -> None:
    """Make a kind of leaf known to all grammars that name it; ValueError if there is one, or text cannot name it."""
    if not is_leaf_name(kind.name):
        raise ValueError(
            f"the name of a leaf is letters, digits, dashes and underlines behind a letter, and not {kind.name!r}, by "
            "which it could not be told from the rest of a structure's text"
        )
    if kind.name in LEAVES:
        raise ValueError(f"there is a leaf {kind.name!r} already")
    LEAVES[kind.name] = kind


def _linear(z: Tensor, scales: Scales) -> Expression:
    """``A (s0 + (x - w)' (x' - w) / D)``, w zero without an offset."""
    amplitude, constant = scales.amplitude(z[..., 0]), z[..., 1].exp()
    variance = (amplitude / scales.width).unsqueeze(-1)
    return Constant(amplitude * constant) + (
        CenteredLinear(z[..., 2:], variance) if scales.offset else Linear(variance)
    )


def _brownian(z: Tensor, scales: Scales) -> Expression:
    """``A (s0 + sum_d (|x_d| + |x'_d| - |x_d - x'_d|) / 2D)``."""
    amplitude, constant = scales.amplitude(z[..., 0]), z[..., 1].exp()
    return Constant(amplitude * constant) + Brownian((amplitude / scales.width).unsqueeze(-1))


def _squared_exponential(z: Tensor, scales: Scales) -> Expression:
    return scales.amplitude(z[..., 0]) * RBF(scales.lengthscale(z[..., 1:]))


def _matern(z: Tensor, scales: Scales) -> Expression:
    return scales.amplitude(z[..., 0]) * Matern(1.5, scales.lengthscale(z[..., 1:]))


def _gamma_exponential(z: Tensor, scales: Scales) -> Expression:
    gamma = 2 * torch.sigmoid(z[..., 1])
    return scales.amplitude(z[..., 0]) * GammaExponential(scales.lengthscale(z[..., 2:]), gamma)


def _periodic(z: Tensor, scales: Scales) -> Expression:
    """The period is in units of the columns' standard deviation; the kernel's length-scale is not squared."""
    lengthscale = scales.lengthscale(z[..., 2:]).square()
    return scales.amplitude(z[..., 0]) * Periodic(lengthscale, scales.period(z[..., 1]).unsqueeze(-1))


def _constant(z: Tensor, scales: Scales) -> Expression:
    return Constant(scales.amplitude(z[..., 0]))


def _offset(z: Tensor, scales: Scales) -> Tensor:
    """Of a linear kernel, and of Brownian motion."""
    return scales.amplitude(z[..., 0]) * z[..., 1].exp()


def _whole(z: Tensor, scales: Scales) -> Tensor:
    return scales.amplitude(z[..., 0])


def _mean_of_periods(z: Tensor, scales: Scales) -> Tensor:
    """Of ``exp((cos - 1) / l^2)`` over a period, in each column; other Fourier coefficients are positive, too."""
    means = torch.special.i0e(scales.lengthscale(z[..., 2:]).square().reciprocal())
    return scales.amplitude(z[..., 0]) * means.expand(*z.shape[:-1], scales.width).prod(-1)


_BOTH = frozenset({SUM, PRODUCT})
for _kind in (
    LeafKind("LINEAR", _linear, 2, False, True, frozenset({SUM}), contains_constant=True, constant=_offset),
    # In a single column it is one more kind of rough function: of planted structures fewer were found.
    LeafKind(
        *("BROWNIAN", _brownian, 2, False, False, frozenset({SUM})),
        contains_constant=True,
        constant=_offset,
        least_columns=2,
    ),
    LeafKind("SQUARED-EXPONENTIAL", _squared_exponential, 1, True, closed_under=frozenset({PRODUCT})),
    LeafKind("GAMMA-EXPONENTIAL", _gamma_exponential, 2, True),
    LeafKind("PERIODIC", _periodic, 2, True, constant=_mean_of_periods),
    LeafKind("CONSTANT", _constant, 1, False, False, _BOTH, contains_constant=True, constant=_whole),
    LeafKind("MATERN", _matern, 1, True),
):
    register_leaf(_kind)

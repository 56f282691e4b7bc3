"""Random features of stationary kernels: cosines and sines of frequencies drawn from the kernel's spectral density.

A stationary kernel is the mean of ``cos(w'(x - z))`` over its spectral density. With F frequencies inner products of
pairs ``F^-1/2 [cos w'x, sin w'x]`` are off by about ``F^-1/2``, however many columns there are, and ``k(x, x)`` is
exact. Pairs vary less than cosines with random phases where kernels are smooth. Length-scales divide the columns.

References: Rahimi & Recht 2007; Sutherland & Schneider 2015.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from sureshot.approximations.base import Finite
from sureshot.gaussian.prior import Queries
from sureshot.kernels import RBF, Constant, Expression, Matern, Scale, Sum
from sureshot.kernels.leaf import Stationary


def spectrum(kernel: Expression) -> tuple[Stationary, Tensor, Tensor]:
    """Leaf, gain and constant of a kernel ``gain x leaf + constant``; ValueError for one of no known density."""
    match kernel:
        case RBF() | Matern():
            return kernel, kernel.lengthscale.new_ones(()), kernel.lengthscale.new_zeros(())
        case Scale():
            leaf, *others = spectrum(kernel.base_kernel)
            gain, constant = (kernel.outputscale * one for one in others)
            return leaf, gain, constant
        case Sum(kernels=(first, Constant() as second)):
            leaf, gain, constant = spectrum(first)
            return leaf, gain, constant + second.constant
    raise ValueError(
        "features of frequencies need a stationary kernel: 'rbf', 'matern12', 'matern32' or 'matern52', or a scale "
        f"times such a kernel plus a constant; got {kernel}. Try approximation='inducing' for this one."
    )


class FeatureMap(Finite):
    """By pairs of cosines and sines, which are values already."""

    of_features = True

    @classmethod
    @abstractmethod
    def drawn(cls, kernel: Expression, width: int, most: int, generator: torch.Generator) -> Self:
        """By at most so many features, two at least, of rows of D columns."""

    @abstractmethod
    def angles(self, x: Tensor) -> Tensor:
        """Of rows (..., N, D) in units of length-scales with F frequencies, (..., N, F)."""

    def values(self, x: Tensor) -> Queries:
        leaf, gain, constant = spectrum(self.kernel)
        angles = self.angles(x / leaf.lengthscale)
        pairs = (gain / angles.shape[-1]).sqrt() * torch.cat([angles.cos(), angles.sin()], -1)
        if bool(constant > 0):
            pairs = torch.cat([pairs, constant.sqrt().expand(*pairs.shape[:-1], 1)], -1)
        return Queries(pairs, self.kernel.diagonal(x))


@dataclass(frozen=True)
class RandomFeatures(FeatureMap):
    """By frequencies that are drawn independently (random kitchen sinks)."""

    name = "random_features"
    frequencies: Tensor  # (F, D), of the kernel of length-scale 1

    @classmethod
    def drawn(cls, kernel: Expression, width: int, most: int, generator: torch.Generator) -> Self:
        count = max(1, most // 2)
        return cls(kernel, normal(generator, count, width) * tails(kernel, count, generator).unsqueeze(-1))

    def angles(self, x: Tensor) -> Tensor:
        return x @ self.frequencies.mT


class SparseSpectrum(RandomFeatures):
    """By frequencies that begin as a draw, and that the evidence learns (Lazaro-Gredilla et al. 2010).

    If they are many it overfits, and between and beyond the rows functions repeat themselves: left-out rows are to
    compare what is learnt with the draw.
    """

    name = "ssgp"
    learnt = ("frequencies",)


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    """Standard normal numbers of a shape."""
    return torch.randn(shape, dtype=torch.float64, generator=generator, device=generator.device)


def tails(kernel: Expression, count: int, generator: torch.Generator) -> Tensor:
    """By what frequencies are longer than normal ones, (count,): Matern's are Student's, with 2 nu degrees."""
    leaf = spectrum(kernel)[0]
    degrees = round(2 * leaf.nu) if isinstance(leaf, Matern) else 0
    return normal(generator, count, degrees).square().mean(-1).rsqrt().nan_to_num(1.0)

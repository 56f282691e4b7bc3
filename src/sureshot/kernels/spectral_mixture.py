"""Spectral mixtures: stationary kernels by what their spectrum looks like, a sum of normals of frequencies.

As many of them come near any stationary kernel, and a few are a few seasons, each of its own period and each with its
own pace of forgetting, which is what extrapolates. Their evidence has many poor maxima: a start at drawn frequencies
stays near these, so `SpectralMixture.from_periodogram` takes the frequencies that the numbers show.

Reference: Wilson & Adams 2013.
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.kernels import SpectralMixtureKernel as OfOneColumn
from torch import Tensor

from sureshot.kernels.expression import KINDS, Expression, kernel
from sureshot.kernels.fields import columns, scalar
from sureshot.kernels.gpytorch_kernels import SpectralMixtureKernel, set_values
from sureshot.kernels.leaf import Leaf, broadcast_over_pairs
from sureshot.kernels.leaves import RBF

PER_PERIOD = 5  # frequencies that are looked at, to one that fits a whole number of periods into the rows

MOST_GAPS = 10  # times the rows: neighbours may lie as close as they like


@kernel({SpectralMixtureKernel: (), OfOneColumn: ()})
class SpectralMixture(Leaf):
    """``sum_q w_q prod_d cos(2 pi m_qd t_d) exp(-2 pi^2 t_d^2 s_qd^2)`` of the difference t of rows.

    Weights w (..., Q), and means m and deviations s of frequencies (..., Q, D), in periods per unit of the columns; of
    one column they may be given as (Q,). GPyTorch's class of this name multiplies the mixtures of single columns, so
    that only that of one column is the same.
    """

    mixture_weights: Tensor = scalar(trailing=0)
    mixture_means: Tensor = columns()
    mixture_scales: Tensor = columns()
    in_units_of_columns = True

    def __post_init__(self) -> None:
        super().__post_init__()
        count = self.mixture_weights.shape[-1:]
        for name in ("mixture_means", "mixture_scales"):
            value = getattr(self, name)
            if value.ndim == 1 and self.mixture_weights.ndim == 1:
                value = value.unsqueeze(-1)
                object.__setattr__(self, name, value)
            if not count or value.shape[-2:-1] != count or value.shape[-1] != self.mixture_means.shape[-1]:
                raise ValueError(
                    "SpectralMixture takes weights (Q,), and means and deviations of frequencies (Q, columns); got "
                    f"shapes {tuple(self.mixture_weights.shape)} and {tuple(value.shape)} ({name})."
                )

    @classmethod
    def from_periodogram(cls, x: Any, y: Any, n_mixtures: int = 5) -> Self:
        """A start where waves of so many frequencies together come nearest to numbers y (n,) at x (n,), evenly or not.

        The highest peak of the periodogram (Lomb-Scargle) is found, all waves so far are fitted by least squares, and
        what they leave is looked at again. In units of x and y. Each wave is forgotten over the range of x.

        >>> years = np.arange(0, 20, 0.1)
        >>> print(SpectralMixture.from_periodogram(years, 2 * np.sin(2 * np.pi * years), 1))
        SpectralMixture(1.93, 0.995, 0.008)
        """
        from scipy.signal import lombscargle  # whose package takes as long to import as all of kernels

        at, values = (np.asarray(part, dtype=np.float64).squeeze() for part in (x, y))
        if at.ndim != 1 or at.shape != values.shape or not (np.isfinite(at).all() and np.isfinite(values).all()):
            raise ValueError(
                "from_periodogram takes one column x (n,) and numbers y (n,), all finite; got shapes "
                f"{np.shape(x)} and {np.shape(y)}. Of several columns give one at a time, see Columns."
            )
        extent, places = np.ptp(at), np.unique(at)
        if not 1 <= n_mixtures <= len(places) // 4:
            raise ValueError(
                f"n_mixtures must be from 1 to a quarter of the rows of different x; got {n_mixtures} for "
                f"{len(places)} such rows."
            )
        gaps = extent / np.median(np.diff(places))  # that many would fill the range: two rows a period at least
        tried = np.arange(1, PER_PERIOD * min(gaps, MOST_GAPS * len(at)) / 2) / (PER_PERIOD * extent)
        at, left, chosen = at - at.mean(), values - values.mean(), list[float]()
        for _ in range(n_mixtures):
            chosen.append(float(tried[lombscargle(at, left, 2 * math.pi * tried).argmax()]))
            tried = tried[np.abs(tried - chosen[-1]) > 0.5 / (PER_PERIOD * extent)]
            angle = 2 * math.pi * np.outer(at, chosen)
            waves = np.column_stack([np.cos(angle), np.sin(angle), np.ones_like(at)])
            sizes = np.linalg.lstsq(waves, values, rcond=1e-6)[0]
            left = values - waves @ sizes
        weights = np.square(sizes[:-1].reshape(2, -1)).sum(0) / 2
        weights = weights.clip(max(1e-4 * weights.max(), 1e-12))
        scales = np.full(n_mixtures, 1 / (2 * math.pi * extent))
        return cls(*(torch.from_numpy(part) for part in (weights, np.array(chosen), scales)))

    @property
    def width(self) -> int:
        """The number of columns."""
        return int(self.mixture_means.shape[-1])

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Leading dimensions, before those of mixtures."""
        of_columns = (value.shape[:-2] for value in (self.mixture_means, self.mixture_scales))
        return np.broadcast_shapes(self.mixture_weights.shape[:-1], *of_columns)

    def values(self, x1: Tensor, x2: Tensor, paired: bool) -> Tensor:
        parts = (self.mixture_weights.unbind(-1), self.mixture_means.unbind(-2), self.mixture_scales.unbind(-2))
        total = x1.new_zeros(())
        for weight, mean, scale in zip(*parts, strict=True):
            decay = RBF(1 / (2 * math.pi * scale)).values(x1, x2, paired)
            total = total + broadcast_over_pairs(weight, paired) * decay * self._waves(x1, x2, mean, paired)
        return total

    def _waves(self, x1: Tensor, x2: Tensor, mean: Tensor, paired: bool) -> Tensor:
        """``prod_d cos(2 pi m_d t_d)``, of all pairs by products of cosines and sines, in the memory of the matrix."""
        frequency = 2 * math.pi * self._row(mean, x1)
        if paired:
            return ((x1 - x2) * frequency).cos().prod(-1)
        first, second = (torch.stack([angle.cos(), angle.sin()], -1) for angle in (x1 * frequency, x2 * frequency))
        waves = x1.new_ones(())
        for one, other in zip(first.unbind(-2), second.unbind(-2), strict=True):
            waves = waves * (one @ other.mT)
        return waves

    def to_gpytorch(self) -> Kernel:
        kind = OfOneColumn if self.width == 1 else SpectralMixtureKernel
        made = kind(self.mixture_weights.shape[-1], self.width, batch_shape=torch.Size(self.batch_shape))
        return set_values(
            made,
            mixture_weights=self.mixture_weights,
            mixture_means=self.mixture_means.unsqueeze(-2),
            mixture_scales=self.mixture_scales.unsqueeze(-2),
        )

    @classmethod
    def from_gpytorch_class(cls, kernel: Kernel) -> Expression:
        if type(kernel) is OfOneColumn and kernel.ard_num_dims > 1:
            found: Expression = KINDS["GPyTorchKernel"](kernel)
            return found
        return super().from_gpytorch_class(kernel)

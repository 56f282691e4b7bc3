"""Kernels seen through M inducing inputs: rows have to do with each other only by what they have to do with these.

With inducing inputs z the latents under a kernel k are ``Phi w + e``: weights ``w ~ N(0, I)``, features
``Phi = K_xz P`` with ``P P' = K_zz^-1``, and for each row a variance of its own, ``k(x, x) - |phi|^2``, that no other
row has to do with. If the rows are the inducing inputs, this is the kernel itself. Queries keep that variance, so that
far from the inducing inputs they stay as uncertain as the kernel says; whether rows keep it in training, too (FITC), or
not (DTC), is the user's choice.

References: Williams & Seeger 2001; Snelson & Ghahramani 2006 (FITC); Quinonero-Candela & Rasmussen 2005.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from sureshot.approximations.base import Finite
from sureshot.approximations.exact import Roots, lifted
from sureshot.computing.threads import threads_for
from sureshot.gaussian.algebra import factors
from sureshot.gaussian.features import FeaturePrior
from sureshot.gaussian.prior import Queries
from sureshot.kernels.expression import Expression


@dataclass(frozen=True)
class Inducing(Finite):
    """By features of inducing inputs; values are the kernel against these. A gradient flows if these ask for one."""

    inputs: Tensor  # (M, D)
    orthogonal: bool = False  # features of the inducing inputs; see `Roots.of`
    residual: bool = False  # whether rows keep what features leave of their variance
    known: Roots | None = None  # of the kernel matrix of the inputs, where they are at hand

    @cached_property
    def roots(self) -> Roots:
        """Of the kernel matrix of the inputs."""
        with threads_for(len(self.inputs)), torch.set_grad_enabled(self._learns):
            return self.known or Roots.of(self.kernel(self.inputs), self.orthogonal)

    @property
    def _learns(self) -> bool:
        return torch.is_grad_enabled() and self.inputs.requires_grad

    @property
    def projection(self) -> Tensor:
        return self.roots.inverse

    def values(self, x: Tensor) -> Queries:
        # The inducing inputs first: they set the kernel's origin, so a query's values do not depend on its batch.
        return Queries(self.kernel(self.inputs, x).mT, self.kernel.diagonal(x))

    def weights(self, coefficients: Tensor) -> Tensor:
        return coefficients @ self.roots.features

    def queries(self, x: Tensor) -> Queries:
        """Of the inducing inputs themselves by their own root, but where these are to move."""
        if not self._learns and torch.equal(x, self.inputs):
            return Queries(self.roots.features, self.kernel.diagonal(x))
        return super().queries(x)

    def prior(self, x: Tensor, mean: Tensor) -> FeaturePrior:
        features, variance = self.queries(x)
        return FeaturePrior(features, mean, unexplained(variance, features) if self.residual else None, self.queries)

    def scaled(self, kernel: Expression, scale: float) -> Inducing:
        return replace(self, kernel=kernel, known=self.roots.scaled(scale))


def seen_through(
    gram: Tensor,  # (K, M, M), of the inducing inputs
    cross: Tensor,  # (K, M, N), between them and rows
    variance: Tensor,  # (K, N)
) -> tuple[Tensor, Tensor]:
    """Of many kernels: features (K, N, M), and what they leave of variances (K, N); NaN for what has no factor."""
    features = torch.linalg.solve_triangular(factors(lifted(gram)), cross, upper=False).mT
    return features, unexplained(variance, features)


def unexplained(variance: Tensor, features: Tensor) -> Tensor:
    """What features (..., N, R) leave of prior variances (..., N)."""
    return (variance - features.square().sum(-1)).clamp_min(0)

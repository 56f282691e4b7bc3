"""Finite features of a kernel: every posterior of the estimators lives in weight space.

``K = Phi Phi'`` holds exactly when the kernel has a known finite rank (cosine, linear, polynomial), or when all
distinct training rows serve as inducing inputs; with fewer inducing inputs it is the Nystrom approximation. The prior
variance of a query is the kernel's own, so that predictions far from the inducing inputs stay uncertain.

References: Williams & Seeger 2001 (Nystrom); Quinonero-Candela & Rasmussen 2005, section 6 (the residual).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from sureshot.gaussian.prior import Queries
from sureshot.kernels import ExplicitFeatures, evaluate, feature_map

# Eigenvalues below this fraction of the largest carry no information in float64.
RANK_TOLERANCE = 1e-12


@dataclass(frozen=True)
class FeatureMap:
    """Features of a kernel at any inputs."""

    kernel: Kernel
    inducing: Tensor | None  # (M, D); None where the kernel has explicit features
    projection: Tensor | None  # (M or R_full, R), applied to the kernel against these, or compresses explicit features

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Queries:
        """What the prior says of inputs (Q, D): features (1, Q, R) and prior variances (1, Q)."""
        if self.inducing is None:
            explicit = feature_map(self.kernel, x.shape[-1])
            assert explicit is not None
            full = explicit(x)
            features = full if self.projection is None else full @ self.projection
            return Queries(features.unsqueeze(0), full.square().sum(-1).unsqueeze(0))
        assert self.projection is not None
        # The inducing inputs first: they set the kernel's origin, so a query's features do not depend on its batch.
        features = evaluate(self.kernel, self.inducing, x).mT @ self.projection
        return Queries(features.unsqueeze(0), evaluate(self.kernel, x, diag=True).unsqueeze(0))

    @torch.no_grad()
    def from_cross(self, cross: Tensor) -> Queries:
        """As a call, from the kernel between queries and inducing inputs (Q, M).

        The kernel's diagonal at the queries is unknown then; the mean diagonal of the inducing inputs stands in, where
        the features do not explain more.
        """
        assert self.inducing is not None
        assert self.projection is not None
        features = cross @ self.projection
        prior = evaluate(self.kernel, self.inducing, diag=True).mean()
        return Queries(features.unsqueeze(0), features.square().sum(-1).clamp_min(prior).unsqueeze(0))


@torch.no_grad()
def explicit_features(
    kernel: Kernel,
    explicit: ExplicitFeatures,  # of the kernel
    x: Tensor,
) -> FeatureMap:
    """The exact map of a finite-rank kernel, rotated onto the data's span when that is smaller."""
    full = explicit(x)
    n, rank = full.shape
    if rank <= n:
        return FeatureMap(kernel, None, None)
    _, singular, right = torch.linalg.svd(full, full_matrices=False)
    return FeatureMap(kernel, None, right[singular > RANK_TOLERANCE**0.5 * singular.max()].mT.contiguous())


@torch.no_grad()
def nystrom_features(kernel: Kernel, inducing: Tensor) -> FeatureMap:
    """The map through inducing inputs (M, D); exact for the kernel when they are all the training rows."""
    return FeatureMap(kernel, inducing, inverse_root(evaluate(kernel, inducing)))


def inverse_root(gram: Tensor) -> Tensor:
    """``P`` (M, R) with ``K P`` the features of the M inputs themselves, dropping numerically empty directions."""
    eigenvalues, basis = torch.linalg.eigh(gram)
    kept = eigenvalues > RANK_TOLERANCE * eigenvalues[-1].clamp_min(torch.finfo(gram.dtype).tiny)
    return (basis[:, kept] / eigenvalues[kept].sqrt()).contiguous()

"""Finite features of a kernel: every posterior of the estimators lives in weight space.

``K = Phi Phi'`` holds exactly when the kernel has a known finite rank (cosine, linear, polynomial), or when all
distinct training rows serve as inducing inputs; with fewer inducing inputs it is the Nystrom approximation. The prior
variance of a query is the kernel's own, so that predictions far from the inducing inputs stay uncertain.

References: Williams & Seeger 2001 (Nystrom); Quinonero-Candela & Rasmussen 2005, section 6 (the residual).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from sureshot.computing.threads import threads_for
from sureshot.gaussian.prior import Queries
from sureshot.kernels import Expression, evaluate

# Eigenvalues below this fraction of the largest carry no information in float64.
RANK_TOLERANCE = 1e-12
# Variance that an inducing input does not share with others, in parts of the largest, for a Cholesky factor to do.
LEAST_OF_ITS_OWN = 1e-6


@dataclass(frozen=True)
class FeatureMap:
    """What posterior means are linear in, at any inputs: explicit features, or the kernel against inducing inputs."""

    kernel: Expression
    inducing: Tensor | None  # (M, D); None where the kernel has explicit features
    projection: Tensor | None = None  # (R_full, R), compresses explicit features

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Queries:
        """What the prior says of inputs (Q, D): features (1, Q, R or M) and prior variances (1, Q)."""
        if self.inducing is None:
            full = self.kernel.features(x)
            assert full is not None
            features = full if self.projection is None else full @ self.projection
            return Queries(features.unsqueeze(0), full.square().sum(-1).unsqueeze(0))
        # The inducing inputs first: they set the kernel's origin, so a query's features do not depend on its batch.
        cross = evaluate(self.kernel, self.inducing, x).mT
        return Queries(cross.unsqueeze(0), evaluate(self.kernel, x, diag=True).unsqueeze(0))

    @torch.no_grad()
    def from_cross(self, cross: Tensor) -> Queries:
        """As a call, from the kernel between queries and inducing inputs (Q, M).

        The kernel's diagonal at the queries is unknown then; the mean diagonal of the inducing inputs stands in.
        """
        assert self.inducing is not None
        prior = evaluate(self.kernel, self.inducing, diag=True).mean()
        return Queries(cross.unsqueeze(0), prior.expand(1, len(cross)))


class InducingRoots(NamedTuple):
    """Two factors of the kernel matrix of inducing inputs, ``K = F F'`` and ``P = K^-1 F``, on its numerical range."""

    inverse: Tensor  # P (M, R); ``k P`` are the features of a row whose kernel values are k
    features: Tensor  # F (M, R), those of the inducing inputs themselves

    @classmethod
    @torch.no_grad()
    def of(cls, kernel: Expression, inducing: Tensor, orthogonal: bool) -> InducingRoots:
        """From inducing inputs (M, D); exact for the kernel when they are all the training rows.

        Features of the inducing inputs are `orthogonal` where that is asked for, which takes ten times as long.
        """
        with threads_for(len(inducing)):
            gram = evaluate(kernel, inducing)
            return (None if orthogonal else triangular_roots(gram)) or inducing_roots(gram)

    def scaled(self, scale: float) -> InducingRoots:
        """Those of a kernel that is `scale` times as large."""
        return InducingRoots(self.inverse / scale**0.5, self.features * scale**0.5)


@torch.no_grad()
def explicit_features(kernel: Expression, x: Tensor) -> FeatureMap:
    """The exact map of a finite-rank kernel, rotated onto the data's span when that is smaller."""
    full = kernel.features(x)
    assert full is not None
    n, rank = full.shape
    if rank <= n:
        return FeatureMap(kernel, None, None)
    _, singular, right = torch.linalg.svd(full, full_matrices=False)
    return FeatureMap(kernel, None, right[singular > RANK_TOLERANCE**0.5 * singular.max()].mT.contiguous())


def triangular_roots(gram: Tensor) -> InducingRoots | None:
    """Of a kernel matrix (M, M), by its Cholesky factor; None where inputs say nearly the same."""
    factor, failed = torch.linalg.cholesky_ex(gram)
    own = factor.diagonal().square()  # of each input's variance what those before it leave
    if bool(failed) or bool(own.min() < LEAST_OF_ITS_OWN * own.max()):
        return None
    unit = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    return InducingRoots(torch.linalg.solve_triangular(factor, unit, upper=False).mT.contiguous(), factor)


def inducing_roots(gram: Tensor) -> InducingRoots:
    """Of a kernel matrix (M, M), dropping numerically empty directions."""
    eigenvalues, basis = torch.linalg.eigh(gram)
    kept = eigenvalues > RANK_TOLERANCE * eigenvalues[-1].clamp_min(torch.finfo(gram.dtype).tiny)
    root = eigenvalues[kept].sqrt()
    return InducingRoots((basis[:, kept] / root).contiguous(), basis[:, kept] * root)

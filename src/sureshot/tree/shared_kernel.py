"""One kernel for all nodes of a tree, each of which takes its rows of it.

The nodes' problems are about subsets of the same rows, so the kernel is evaluated once for all rows: the matrix
of all pairs (`SharedGram`), or features where that matrix is too large (`SharedFeatures`); `shared_rows` has both, each
for the nodes that it suits. A node has the prior
``N(a, s K)`` on its rows, with a prior mean a and an output scale s of its own or those of all nodes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from sureshot.approximations.base import Finite
from sureshot.approximations.exact import Exact
from sureshot.gaussian.features import FeaturePrior
from sureshot.gaussian.gram import GramPrior
from sureshot.gaussian.prior import Covariance, Prior, Queries
from sureshot.gaussian.ragged import Bucket
from sureshot.kernels.expression import Expression


class PairedQueries(NamedTuple):
    """Prior moments of queries, of which each node is asked about some only."""

    variance: Tensor  # (Q,), prior variances
    of: Callable[[Bucket, Tensor, Tensor], Queries]
    """Of a bucket's nodes, their output scales (P,) and which queries each is asked about (P, m): dimensions (P, 1)."""


class SharedKernel(ABC):
    """What is known of one kernel at all training rows, and how queries covary with them."""

    covariance: Covariance
    """Prior moments of query inputs: `Queries` without leading dimensions."""

    whole: int = 0
    """Rows up to which a node goes by its kernel matrix although there is a `rank`."""

    @property
    @abstractmethod
    def values(self) -> Tensor:
        """The matrix that holds the kernel, with one row for each training row."""

    @property
    @abstractmethod
    def rank(self) -> int | None:
        """R of features, None for a kernel matrix: what buckets are cut by."""

    @abstractmethod
    def prior(self, bucket: Bucket, mean: Tensor, scale: Tensor) -> Prior:
        """The prior of a bucket's nodes, with prior means and output scales (P,)."""

    @abstractmethod
    def bucket_queries(self, bucket: Bucket, scale: Tensor, queries: Queries) -> Queries:
        """What `queries` is to the rows of a bucket's nodes, with leading dimensions (P, 1)."""

    @abstractmethod
    def paired(self, x: Tensor) -> PairedQueries:
        """What `queries` and `bucket_queries` say, for pairs of nodes and queries only."""

    def cut(self, queries: Queries, part: slice) -> Queries:
        """Some of the queries, each a column unless they are features."""
        return Queries(queries.cross[:, part], queries.variance[part])

    def queries(self, x: Tensor) -> Queries:
        """Prior moments of query inputs; ValueError where they are not finite."""
        queries = self.covariance(x)
        if not all(bool(torch.isfinite(part).all()) for part in queries):
            raise ValueError("x must be finite and the kernel defined there, but its covariances hold NaN or infinity.")
        return queries


@dataclass(frozen=True)
class SharedGram(SharedKernel):
    """A kernel held as the matrix of all rows."""

    gram: Tensor  # (N, N)
    covariance: Covariance
    """Of query inputs: the kernel between rows and queries (N, Q), and prior variances (Q,)."""

    @classmethod
    def of(cls, kernel: Expression, x: Tensor) -> SharedGram:
        """Of a kernel at rows (N, D)."""
        prior = Exact(kernel, x).prior(x, x.new_zeros(()))
        return cls(prior.gram, prior.queries)

    def __post_init__(self) -> None:
        if self.gram.dim() != 2 or self.gram.shape[0] != self.gram.shape[1]:
            raise ValueError(f"gram must be a square matrix, got shape {tuple(self.gram.shape)}.")
        _check_finite("gram", self.gram)

    @property
    def values(self) -> Tensor:
        """The matrix (N, N)."""
        return self.gram

    @property
    def rank(self) -> None:
        return None

    def prior(self, bucket: Bucket, mean: Tensor, scale: Tensor) -> GramPrior:
        return GramPrior(bucket.gram(self.gram) * scale[:, None, None, None], mean[:, None, None])

    def bucket_queries(self, bucket: Bucket, scale: Tensor, queries: Queries) -> Queries:
        factor = scale[:, None, None]
        return Queries(queries.cross[bucket.rows].mul_(factor).unsqueeze(1), factor * queries.variance)

    def paired(self, x: Tensor) -> PairedQueries:
        cross, variance = self.queries(x)

        def of(bucket: Bucket, scale: Tensor, which: Tensor) -> Queries:
            factor = scale[:, None, None]
            own = cross[bucket.rows.unsqueeze(-1), which.unsqueeze(-2)].mul_(factor)
            return Queries(own.unsqueeze(1), factor * variance[which].unsqueeze(1))

        return PairedQueries(variance, of)


@dataclass(frozen=True)
class SharedFeatures(SharedKernel):
    """A kernel held as features, ``K = Phi Phi' + diag(residual)``."""

    features: Tensor  # (N, R)
    covariance: Covariance
    """Of query inputs: their features (Q, R), and prior variances (Q,), which features may leave a part of."""
    residual: Tensor | None = None  # (N,), not negative

    @classmethod
    def of(cls, approximation: Finite, x: Tensor) -> SharedFeatures:
        """Of a kernel at rows (N, D)."""
        prior = approximation.prior(x, x.new_zeros(()))
        return cls(prior.features, prior.queries, prior.residual)

    def __post_init__(self) -> None:
        if self.features.dim() != 2:
            raise ValueError(f"features must be a matrix (rows, features), got shape {tuple(self.features.shape)}.")
        _check_finite("features", self.features)
        if self.residual is not None:
            _check_finite("residual", self.residual)
            if self.residual.shape != self.features.shape[:1] or bool((self.residual < 0).any()):
                raise ValueError(
                    f"residual must be {len(self.features)} variances, one for each row, got shape "
                    f"{tuple(self.residual.shape)} and a smallest value of {float(self.residual.min()):g}."
                )

    @property
    def values(self) -> Tensor:
        """The features (N, R)."""
        return self.features

    @property
    def rank(self) -> int:
        return int(self.features.shape[1])

    def prior(self, bucket: Bucket, mean: Tensor, scale: Tensor) -> FeaturePrior:
        factor = scale[:, None, None]
        residual = None if self.residual is None else bucket.values(self.residual).unsqueeze(1) * factor
        features = bucket.features(self.features) * factor.sqrt().unsqueeze(1)
        return FeaturePrior(features, mean[:, None, None], residual)

    def bucket_queries(self, bucket: Bucket, scale: Tensor, queries: Queries) -> Queries:
        factor = scale[:, None, None]
        return Queries(queries.cross * factor.sqrt().unsqueeze(1), factor * queries.variance)

    def paired(self, x: Tensor) -> PairedQueries:
        cross, variance = self.queries(x)

        def of(bucket: Bucket, scale: Tensor, which: Tensor) -> Queries:
            factor = scale[:, None, None]
            return Queries((cross[which] * factor.sqrt()).unsqueeze(1), factor * variance[which].unsqueeze(1))

        return PairedQueries(variance, of)

    def cut(self, queries: Queries, part: slice) -> Queries:
        return Queries(queries.cross[part], queries.variance[part])


def _check_finite(name: str, values: Tensor) -> None:
    finite = torch.isfinite(values.detach())
    if not bool(finite.all()):
        row = int((~finite).flatten(1).any(-1).nonzero()[0]) if values.dim() > 1 else int((~finite).nonzero()[0])
        raise ValueError(f"{name} must be finite, but row {row} holds NaN or infinity.")

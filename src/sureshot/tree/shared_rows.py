"""One kernel for all nodes of a large tree: exact where nodes are small, by inducing points above.

With R inducing points for the few nodes that have more than R rows below them, and the kernel matrices of all others
evaluated at their own rows, everything grows as N, times R^2 and the tree's depth. Inducing points are the centres of
k-means in every class, or in every branch where there are more classes than centres. What they leave of the prior
variance counts in training as in prediction (FITC), so that a node is not surer of what it knows less well.

References: Snelson & Ghahramani 2006 (FITC); Achituve et al. 2021 (centres of classes).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sureshot.approximations.inducing import Inducing
from sureshot.approximations.inducing_inputs import kmeans_inducing
from sureshot.gaussian.features import FeaturePrior
from sureshot.gaussian.gram import GramPrior
from sureshot.gaussian.prior import Queries
from sureshot.gaussian.ragged import Bucket
from sureshot.kernels.expression import Expression
from sureshot.tree.class_tree import ClassTree
from sureshot.tree.shared_kernel import PairedQueries, SharedFeatures, SharedKernel

N_INDUCING = 400
"""Inducing points of nodes with more rows than these."""


@dataclass(frozen=True)
class SharedRows(SharedKernel):
    """A kernel at rows; see the module's docstring."""

    kernel: Expression
    x: Tensor  # (N, D)
    above: SharedFeatures  # of the nodes with more than R rows

    @classmethod
    def of(cls, kernel: Expression, x: Tensor, y: Tensor, tree: ClassTree, n_inducing: int = N_INDUCING) -> SharedRows:
        """With about so many inducing points, for rows of the classes of a tree."""
        points = Inducing(kernel, branch_centres(x, y, tree, n_inducing), residual=True)
        return cls(kernel, x, SharedFeatures.of(points, x))

    @property
    def values(self) -> Tensor:
        """The rows."""
        return self.x

    @property
    def rank(self) -> int:
        """R."""
        return self.above.rank

    @property
    def whole(self) -> int:  # type: ignore[override]
        """R too."""
        return self.above.rank

    def covariance(self, query: Tensor) -> Queries:
        """The kernel between rows and queries beside the queries' features, (N + R, Q), and prior variances."""
        features, variance = self.above.covariance(query)
        return Queries(torch.cat([self.kernel(self.x, query), features.mT]), variance)

    def prior(self, bucket: Bucket, mean: Tensor, scale: Tensor) -> GramPrior | FeaturePrior:
        if bucket.rows.shape[1] > self.whole:
            return self.above.prior(bucket, mean, scale)
        return GramPrior(
            self.kernel(self.x[bucket.rows]).unsqueeze(1) * scale[:, None, None, None], mean[:, None, None]
        )

    def bucket_queries(self, bucket: Bucket, scale: Tensor, queries: Queries) -> Queries:
        if bucket.rows.shape[1] > self.whole:
            return self.above.bucket_queries(bucket, scale, Queries(queries.cross[len(self.x) :].mT, queries.variance))
        factor = scale[:, None, None]
        return Queries(queries.cross[bucket.rows].mul_(factor).unsqueeze(1), factor * queries.variance)

    def paired(self, x: Tensor) -> PairedQueries:
        """Small nodes are compared with their own queries only."""
        above, query = self.above.paired(x), x

        def of(bucket: Bucket, scale: Tensor, which: Tensor) -> Queries:
            if bucket.rows.shape[1] > self.whole:
                return above.of(bucket, scale, which)
            factor = scale[:, None, None]
            cross = self.kernel(self.x[bucket.rows], query[which]).mul_(factor)
            return Queries(cross.unsqueeze(1), factor * above.variance[which].unsqueeze(1))

        return PairedQueries(above.variance, of)


def branch_centres(x: Tensor, y: Tensor, tree: ClassTree, n_centres: int) -> Tensor:
    """About so many centres of k-means (R, D): in every class, or in every branch where there are more classes."""
    most = max(1, -(-2 * tree.n_classes // n_centres)) if tree.n_classes > n_centres else 1
    branches = tree.branches(most)
    group = torch.empty(tree.n_classes, dtype=torch.int64)
    for number, (begin, end) in enumerate(branches):
        group[torch.from_numpy(tree.leaves[begin:end].copy())] = number
    return kmeans_inducing(x, group.to(y.device)[y], max(1, n_centres // len(branches)))
